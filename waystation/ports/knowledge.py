"""Ports to what finds and forgets: redaction, embeddings, memory, document search, and the clock."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from waystation.domain.documents import DocumentHit
from waystation.domain.memory import EmbeddedPassage, MemoryQuery, Recalled
from waystation.domain.redaction import Redacted, Scope


class Redactor(Protocol):
    """Replaces private parts of a text by placeholders that are stable within a tenant."""

    async def redact(self, texts: Sequence[str], scope: Scope, tenant: str) -> tuple[Redacted, ...]:
        """One result for each text, in order. CPU work happens off the event loop.

        Raises:
            RedactionFailed: the texts must then go nowhere.
        """
        ...


class Embedder(Protocol):
    """Turns texts into vectors."""

    name: str
    dimension: int | None
    """None: there is no dense embedder on this platform; memory then works by BM25 alone."""

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...] | None, ...]:
        """One vector for each text (None each without a dense embedder). Raises MemoryUnavailable."""
        ...


class Memory(Protocol):
    """Passages in Qdrant: dense and BM25 vectors, filtered by tenant, fused."""

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """Write points; the same passage id twice is one point. Raises MemoryUnavailable."""
        ...

    async def delete(self, passage_ids: Sequence[str]) -> None:
        """Take points away; an id that is not there changes nothing. Raises MemoryUnavailable."""
        ...

    async def search(self, query: MemoryQuery) -> tuple[Recalled, ...]:
        """The best passages of this tenant and session. Raises MemoryUnavailable."""
        ...

    async def count(self, tenant: str) -> int:
        """Points of a tenant."""
        ...

    async def aclose(self) -> None:
        """Flush and close."""
        ...


class DocumentSearch(Protocol):
    """Full-text search in a task's documents."""

    async def search(self, task_id: str, query: str, limit: int) -> tuple[DocumentHit, ...]:
        """Best stretches first; empty where nothing matches."""
        ...


class Clock(Protocol):
    """The time, for everything outside workflows."""

    def __call__(self) -> datetime:
        """Now, with a time zone."""
        ...
