"""HTTP/1.1 on llhttp, both sides: connections, limits, time-outs and back-pressure. Knows nothing of models."""
