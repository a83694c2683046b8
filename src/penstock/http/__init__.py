"""HTTP/1.1 on llhttp, both sides: connections, limits, timeouts and backpressure. Knows nothing of models."""
