"""What answers a call: a remote provider, or a model on this machine."""
