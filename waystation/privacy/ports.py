"""Ports to redaction, to the vault, and to what remembers texts whose redaction took too long."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from waystation.privacy.policy import RedactionResult, TextDestination, VaultEntry


class Redactor(Protocol):
    """Replaces private parts of a text by placeholders that are stable within a tenant."""

    async def redact(self, texts: Sequence[str], place: TextDestination, tenant: str) -> tuple[RedactionResult, ...]:
        """One result for each text, in order. CPU work happens off the event loop.

        Raises:
            RedactionFailed: the texts must then go nowhere.
        """
        ...


class PlaceholderFactory(Protocol):
    """Makes placeholders for values that are known to be private, whatever a redactor would say of them."""

    async def make_placeholders(self, type_: str, values: Sequence[str], tenant: str) -> Mapping[str, str]:
        """By value: what a redactor puts in its place where it finds one of this type, such as `EMAIL`.

        Raises RedactionFailed.
        """
        ...


class Vault(Protocol):
    """What placeholders of a tenant stand for, encrypted."""

    async def store_originals(self, tenant: str, originals: Sequence[VaultEntry], session: str = "") -> frozenset[str]:
        """Keep each original whose placeholder has none yet, and that this session met it; of one value the first
        spelling stays. `session` is its hash; empty: it was met in none.

        Returns the fingerprints of those whose placeholder stands for another value already: it must not be used for
        them. Raises StoreError.
        """
        ...

    async def load_originals(
        self, tenant: str, placeholders: Collection[str], session: str | None = None
    ) -> Mapping[str, str]:
        """The original of each of these placeholders that is kept; with a session, that was met in it.

        Raises StoreError, WrongKey.
        """
        ...

    async def delete_originals(self, tenant: str, placeholders: Collection[str]) -> int:
        """Keep the originals of these placeholders no more; how many there were. Raises StoreError."""
        ...


class SlowTextStore(Protocol):
    """Texts whose redaction took too long under one set of rules, by keyed fingerprints: no word of them is kept."""

    async def load_slow_texts(self) -> Mapping[str, int]:
        """How often each took too long, by fingerprint; of very many the newest. Raises StoreError."""
        ...

    async def record_timeout(self, tenant: str, fingerprint: str) -> int:
        """Count one time more; how often it was by now, for all workers together. Raises StoreError."""
        ...

    async def reset_timeouts(self, tenant: str, fingerprint: str) -> None:
        """What was counted of this text counts no more. Raises StoreError."""
        ...
