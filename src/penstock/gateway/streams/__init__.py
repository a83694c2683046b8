"""Durable streams: the log of what a client is sent, which readers can come back to."""
