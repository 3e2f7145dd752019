"""Hashed ids that reveal no names."""

import hashlib

SHORT_HASH = 16


def short_hash(*parts: str) -> str:
    """Return 64 bits of SHA-256 over the parts, in hex, for ids that reveal no names."""
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:SHORT_HASH]
