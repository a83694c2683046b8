"""The admin API: keys are managed and the ledger is read over HTTP, on a listener of its own.

| file | does |
|---|---|
| `place.py` | where it listens, and the token that opens it: both before any worker is forked |
| `listener.py` | `Admin`: connections, who is let in, which route is meant |
| `desk.py` | the thread in which the book is asked, so that no stream waits for it |
| `routes.py` | the routes that ask the book, and what each does with it |
| `direct.py` | the routes that ask the gateway itself |
| `watching.py` | event streams for those who watch; `../live.py` and `../overhearing.py` are what they see |
| `inspection.py` | streams that are handed in, inspected by a process of its own |
| `answers.py` | how it answers |
| `queries.py` | query strings → filters, groups, pages |
| `entries.py` | entries and usage, as they are told |
| `access.py` | the token, sessions, and the links that make them |
| `page.py`, `files.py` | the page at `/`: its files are in `serve/web` |
"""
