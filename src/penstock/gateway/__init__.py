"""Decides: the configuration, which target answers a call, what it may cost, and what the client receives."""
