"""Durable streams over HTTP: the exchange that writes to a log, and the readers of logs."""
