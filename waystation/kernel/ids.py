"""Ids that show no names."""

import hashlib

SHORT_HASH = 16


def short_hash(*parts: str) -> str:
    """64 bits of SHA-256 over the parts, in hex: for ids that show no names."""
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:SHORT_HASH]
