"""The port for encrypting columns."""

from typing import Final, Protocol

DAMAGED_DATA: Final = "it is encrypted, but "
"""Beginning of the message of a `WrongKey` for bytes that no key decrypts: the key is right, but not the bytes."""


class Cipher(Protocol):
    """Encrypts bytes for one purpose with one key."""

    def encrypt(self, plain: bytes, context: bytes) -> bytes:
        """Encrypt `plain`. `context` says what the bytes are; they can be decrypted under the same context only."""
        ...

    def decrypt(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt bytes that were encrypted under the same `context`.

        Raises:
            WrongKey: no available key decrypts them.
            RetiredKey: only a key that is no longer accepted decrypts them.
        """
        ...
