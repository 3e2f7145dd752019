"""Embedders: texts to vectors, without a download."""
