"""WebSockets: an API of answers over one connection, response after response. Imported with the first client's offer.

A message of the client becomes an `Exchange` (`turn.py`), which the router handles as any other: the same key, limits,
providers, ledger and log. What differs is in this package: the answers that only the same connection can continue, and
the end of a connection.
"""
