"""What the gateway reports of itself: the log, Prometheus metrics, OpenTelemetry traces and histograms."""
