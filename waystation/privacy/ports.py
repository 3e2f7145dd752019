"""Ports for redaction, for the vault, and for the record of texts whose redaction took too long."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from waystation.privacy.policy import RedactionResult, TextDestination, VaultEntry


class Redactor(Protocol):
    """Replaces private parts of a text by placeholders that are stable within a tenant.

    An implementation:

    - replaces at each place as much as the policy wants there (`get_redaction_level`): an identifier stays in a text
      of `RedactionLevel.SECRETS`.
    - writes placeholders as `PLACEHOLDER_PATTERN` has them: a type in capitals, and digits of a keyed hash of tenant,
      type and value. The same value has the same one within a tenant, and another one in any other tenant.
    - gives for each replacement a `Span` in characters of the text that it was given, in order and without overlaps:
      originals are kept by them. `with_placeholders` makes the result of text and spans.
    - leaves placeholders that are in a text as they are, so that redacting its own result changes nothing: texts are
      redacted again at every place that they go to.
    - may be called from several tasks of one event loop at once, keeps nothing of a text beyond the call but in memory,
      and shows nothing of it in errors and logs.
    """

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        """One result for each text, in order. CPU work happens off the event loop, within a time limit.

        Args:
            texts: as they are, of any length; the same one may be among them twice.
            place: where they go.
            tenant: the tenant's hash, part of what placeholders are made of.

        Raises:
            TextRedactionError: one of the texts cannot be redacted; it is tried again, and then left out.
            RedactionTimeoutError: the same, because it takes too long; after a second time it is left out.
            RedactionFailed: none can be now. In each case the texts go nowhere.
        """
        ...


@runtime_checkable
class ConfiguredRedactor(Redactor, Protocol):
    """A redactor as a process opens it by its settings: also says what it is, and is closed at the end."""

    @property
    def version(self) -> str:
        """Changes with everything that a result depends on beside text, place and tenant: rules, word lists, options,
        versions of libraries. Documents that were redacted under another version are redacted again.
        """
        ...

    @property
    def placeholder_types(self) -> frozenset[str]:
        """Types of all placeholders that it could ever have made, such as `EMAIL`, whatever its options are now: people
        search and erase by them. Capitals, joined by underscores.
        """
        ...

    @property
    def description(self) -> str:
        """What it replaces, in a few words for `waystation doctor`. Raises BadInput for options that it cannot use."""
        ...

    def close(self) -> None:
        """Begin nothing more, and end what it started."""
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
