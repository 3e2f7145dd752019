"""A person's documents: read from files, split into passages, found by full-text search."""
