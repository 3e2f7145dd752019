"""Memory: redacted passages, their embeddings, and search."""
