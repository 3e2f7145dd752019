"""Redaction by Presidio: it detects private text, our code replaces it."""
