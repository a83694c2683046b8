"""What is known about providers, as data."""
