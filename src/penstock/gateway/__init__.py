"""What decides: the configuration, who answers a call, when to try again, and what the client is told."""
