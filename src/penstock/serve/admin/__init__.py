"""The admin API, on a listener of its own: manages keys, reads the ledger, shows live calls, and serves the page.

| file | does |
|---|---|
| `endpoint.py` | the listening socket and the admin token; both exist before any worker is forked |
| `listener.py` | `Admin`: connections, and the way of a request: host, origin, user, role, audit log, handler |
| `routes.py`, `route.py` | the table of routes: who may use each, what is recorded, its parameters and bodies |
| `openapi.py`, `schemas.py` | the OpenAPI document, from the table; the bodies of responses |
| `handlers/` | the handlers; their docstrings are the documentation of the routes |
| `request.py`, `queries.py` | a request as handlers get it; query strings → filters, groups, pages |
| `visible.py` | what a user with roles in teams may see |
| `backend.py` | what handlers use that run in the event loop |
| `replies.py` | sends responses; waits for the threads that query databases |
| `live_stream.py` | event streams of live calls and of a call's text; the data is from `serve/workers` |
| `inspection.py` | inspects uploaded streams in a process of its own |
| `access.py` | credentials: tokens, sessions, the links that create sessions, trusted proxies |
| `authentication.py` | the user of a request, also while the ledger does not answer |
| `audit_log.py`, `refusals.py` | records what users do and what they are refused |
| `sign_in.py`, `openid.py` | users sign in with OpenID Connect |
| `page.py`, `page_files.py` | the page at `/`; its files are in `serve/web` |
"""
