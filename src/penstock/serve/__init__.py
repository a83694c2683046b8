"""The server: the composition root, the APIs for clients and for admins, worker processes and telemetry."""
