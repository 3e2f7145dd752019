"""Redaction by Presidio: it finds what is private, our code replaces it."""
