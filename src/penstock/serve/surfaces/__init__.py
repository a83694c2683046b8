"""The APIs that Penstock offers to clients: generation in each dialect, and embeddings."""
