"""Accounts of keys that several processes share, in SQLite or Redis."""
