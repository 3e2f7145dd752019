"""Ports to what finds and forgets: redaction, embeddings, memory, document search, and the clock.

Ports to what is encrypted: the cipher, and the vault of originals behind placeholders.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

from waystation.domain.documents import DocumentHit, DocumentPassage, ShownDocument
from waystation.domain.memory import EmbeddedPassage, MemoryQuery, Recalled
from waystation.domain.ownership import OfTask
from waystation.domain.privacy import Original, Place, Redacted

Use = Literal["passage", "query"]
"""What a text is embedded for: some models make of a question another vector than of a passage."""


class Redactor(Protocol):
    """Replaces private parts of a text by placeholders that are stable within a tenant."""

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        """One result for each text, in order. CPU work happens off the event loop.

        Raises:
            RedactionFailed: the texts must then go nowhere.
        """
        ...


class Placeholders(Protocol):
    """Makes placeholders for values that are known to be private, whatever a redactor would say of them."""

    async def placeholders(self, type_: str, values: Sequence[str], tenant: str) -> Mapping[str, str]:
        """By value: what a redactor puts in its place where it finds one of this type, such as `EMAIL`.

        Raises RedactionFailed.
        """
        ...


class Embedder(Protocol):
    """Turns texts into vectors. They must be redacted: an embedder may be somebody else's server."""

    name: str
    """Of the model. Vectors of two names cannot be compared."""
    dimension: int | None
    """None: there is no dense embedder; memory then works by BM25 alone."""

    async def embed(self, texts: Sequence[str], use: Use = "passage") -> tuple[tuple[float, ...] | None, ...]:
        """One vector of length 1 for each text, in order; None where there is no dense embedder or nothing to embed.

        Raises MemoryUnavailable.
        """
        ...

    async def likeness(self, query: str, texts: Sequence[str], above: Sequence[str] = ()) -> tuple[float, ...]:
        """How alike the words of each text are to those of the query, from 0 to 1, where the rarer ones among these
        texts count more. What stands above a text counts for it, too, up to 2, where that alone says what is looked
        for (`words.said_above`). Nothing leaves the machine for it.

        Raises MemoryUnavailable.
        """
        ...


class MemorySearch(Protocol):
    """What can be looked up in memory."""

    async def search(self, query: MemoryQuery) -> tuple[Recalled, ...]:
        """The best passages that the query admits. Raises MemoryUnavailable."""
        ...

    async def count(self, tenant: str) -> int:
        """Points of a tenant. Raises MemoryUnavailable."""
        ...


class PassagePoints(MemorySearch, Protocol):
    """Passages in Qdrant: dense and BM25 vectors, filtered by tenant, fused."""

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """Write points; the same passage id twice is one point.

        Raises:
            MemoryUnavailable: they are to be written later.
            PassagesRefused: one of them at least will never be taken; some of them may have been.
        """
        ...

    async def delete(self, passage_ids: Sequence[str]) -> None:
        """Take points away; an id that is not there changes nothing. Raises MemoryUnavailable."""
        ...

    async def aclose(self) -> None:
        """Flush and close."""
        ...


class Memory(PassagePoints, Protocol):
    """The memory that is in use."""

    async def purge(self) -> None:
        """Have what was deleted lie in no file either, where that is in our hands. Raises MemoryUnavailable."""
        ...


class MemoryDraft(PassagePoints, Protocol):
    """A memory that is made anew beside the one in use, and takes its place when it is ready. It outlives a crash."""

    async def ids(self) -> frozenset[str]:
        """Of all points, of all tenants. Raises MemoryUnavailable."""
        ...

    async def publish(self) -> None:
        """It is the memory from now on; what was there before is gone. May be done again. Raises MemoryUnavailable."""
        ...


class DocumentSearch(Protocol):
    """Full-text search in a task's documents."""

    async def search(self, task: OfTask, query: str, limit: int, among: range | None = None) -> tuple[DocumentHit, ...]:
        """Best stretches first; empty where nothing matches. `among`: only documents of these numbers, from 1."""
        ...

    async def take(self, task_id: str, shown: Sequence[ShownDocument]) -> None:
        """Search these documents as they are shown from here on, and say so in hits: nothing else of them is found."""
        ...


class DocumentCutter(Protocol):
    """Cuts documents into passages."""

    def __call__(self, name: str, text: str, /) -> Iterator[DocumentPassage]:
        """Stretches of whole lines, in the order of the document."""
        ...


class Clock(Protocol):
    """The time, for everything outside workflows."""

    def __call__(self) -> datetime:
        """Now, with a time zone."""
        ...


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
