"""Writes captures of what providers send: one thread, one directory, no secrets."""
