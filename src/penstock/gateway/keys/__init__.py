"""The keys of clients: their data, their changes, and their reports."""
