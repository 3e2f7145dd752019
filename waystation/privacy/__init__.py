"""Redaction policies, encryption keys, and the vault of originals behind placeholders."""
