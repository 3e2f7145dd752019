"""Embedders: turn texts into vectors, without downloading anything."""
