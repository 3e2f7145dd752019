"""The port to what encrypts columns."""

from typing import Protocol


class Cipher(Protocol):
    """Encrypts bytes for one purpose with one key."""

    def encrypt(self, plain: bytes, context: bytes) -> bytes:
        """Encrypt. `context` says what the bytes are; they open under the same context only."""
        ...

    def decrypt(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt. Raises WrongKey."""
        ...
