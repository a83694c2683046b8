"""The admin API, on a listener of its own: manages keys, reads the ledger, shows live calls, and serves the page.

| file | does |
|---|---|
| `endpoint.py` | the listening socket and the admin token; both exist before any worker is forked |
| `listener.py` | `Admin`: connections, authentication, routing |
| `routes.py` | the routes that query the book |
| `people_routes.py` | the routes for API tokens and the audit log, which query the book |
| `permissions.py` | what each route needs: the table of roles and routes |
| `live_routes.py` | the routes that query the gateway itself |
| `live_stream.py` | event streams of live calls and of a call's text; the data is from `serve/workers` |
| `inspection.py` | inspects uploaded streams in a process of its own |
| `replies.py` | sends responses |
| `queries.py` | query strings → filters, groups, pages |
| `entries.py` | ledger entries and usage as JSON |
| `access.py` | authentication: tokens, sessions, the links that create sessions, trusted proxies |
| `sign_in.py`, `openid.py` | users sign in with OpenID Connect |
| `page.py`, `page_files.py` | the page at `/`; its files are in `serve/web` |
"""
