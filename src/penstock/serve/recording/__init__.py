"""Records providers' responses as capture files: in a thread of its own, within limits, without secrets."""
