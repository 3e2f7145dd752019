"""Ports for redaction, for the vault, and for the record of texts whose redaction took too long."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from waystation.privacy.policy import RedactionResult, TextDestination, VaultEntry


class Redactor(Protocol):
    """Replaces private parts of a text by placeholders that are stable within a tenant."""

    async def redact(self, texts: Sequence[str], place: TextDestination, tenant: str) -> tuple[RedactionResult, ...]:
        """Return one result for each text, in order. CPU work happens off the event loop.

        Raises:
            RedactionFailed: the texts must then go nowhere.
        """
        ...


class PlaceholderFactory(Protocol):
    """Makes placeholders for values that are known to be private, whether or not a redactor would find them."""

    async def make_placeholders(self, type_: str, values: Sequence[str], tenant: str) -> Mapping[str, str]:
        """Return, by value, the placeholder that a redactor would use for a value of this type, such as `EMAIL`.

        Raises:
            RedactionFailed: no placeholder could be made.
        """
        ...


class Vault(Protocol):
    """Encrypted originals behind a tenant's placeholders."""

    async def store_originals(self, tenant: str, originals: Sequence[VaultEntry], session: str = "") -> frozenset[str]:
        """Store each original whose placeholder has none yet, and record that this session encountered it.

        The first spelling of a value stays.

        Args:
            tenant: hash of the tenant.
            originals: what to store.
            session: hash of the session; empty if the values were encountered in none.

        Returns:
            Fingerprints whose placeholder already stands for another value: it must not be used for them.

        Raises:
            StoreError: the store did not accept the write.
        """
        ...

    async def load_originals(
        self, tenant: str, placeholders: Collection[str], session: str | None = None
    ) -> Mapping[str, str]:
        """Return the stored originals by placeholder; with a session, only those encountered in it.

        Raises:
            StoreError: the store could not be read.
            WrongKey: no available key decrypts an original.
        """
        ...

    async def delete_originals(self, tenant: str, placeholders: Collection[str]) -> int:
        """Delete the originals of these placeholders and return how many there were.

        Raises:
            StoreError: the store did not accept the write.
        """
        ...


class SlowTextStore(Protocol):
    """Texts whose redaction timed out under one set of rules, by keyed fingerprint; none of their words are stored."""

    async def load_slow_texts(self) -> Mapping[str, int]:
        """Return the number of time-outs by fingerprint; only the newest if there are very many.

        Raises:
            StoreError: the store could not be read.
        """
        ...

    async def record_timeout(self, tenant: str, fingerprint: str) -> int:
        """Count one more time-out and return the number so far across all workers.

        Raises:
            StoreError: the store did not accept the write.
        """
        ...

    async def reset_timeouts(self, tenant: str, fingerprint: str) -> None:
        """Delete the count of time-outs of this text.

        Raises:
            StoreError: the store did not accept the write.
        """
        ...
