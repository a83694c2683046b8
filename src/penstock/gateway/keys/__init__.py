"""The keys of clients: what they are, how they change, how they are shown."""
