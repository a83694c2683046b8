"""The sans-IO core: bytes in, events out, and back. No sockets, clock, randomness, threads or logging."""
