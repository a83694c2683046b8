"""The server: the composition root, the surfaces it offers, its workers and its log."""
