"""Framing: from the bytes of a transport to frames. Knows nothing of models."""
