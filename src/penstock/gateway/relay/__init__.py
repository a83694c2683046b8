"""Forwards one attempt's answer to the client: backpressure, timeouts, recording."""
