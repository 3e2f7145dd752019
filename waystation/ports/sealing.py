"""Ports to what is encrypted: the cipher, and the vault of originals behind placeholders."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from waystation.domain.redaction import Original


class Cipher(Protocol):
    """Encrypts bytes for one purpose with one key."""

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Encrypt. `context` says what the bytes are; they open under the same context only."""
        ...

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt. Raises WrongKey."""
        ...


class Vault(Protocol):
    """What placeholders of a tenant stand for, encrypted."""

    async def keep(self, tenant: str, originals: Sequence[Original], session: str = "") -> frozenset[str]:
        """Keep each original whose placeholder has none yet, and that this session met it; of one value the first
        spelling stays. `session` is its hash; empty: it was met in none.

        Returns the fingerprints of those whose placeholder stands for another value already: it must not be used for
        them. Raises StoreError.
        """
        ...

    async def originals(
        self, tenant: str, placeholders: Collection[str], session: str | None = None
    ) -> Mapping[str, str]:
        """The original of each of these placeholders that is kept; with a session, that was met in it.

        Raises StoreError, WrongKey.
        """
        ...

    async def drop(self, tenant: str, placeholders: Collection[str]) -> int:
        """Keep the originals of these placeholders no more; how many there were. Raises StoreError."""
        ...
