"""Memory: redacted passages, their embeddings, and how they are found again."""
