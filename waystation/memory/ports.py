"""Ports to embeddings and to the memory."""

from collections.abc import Sequence
from typing import Literal, Protocol

from waystation.memory.passages import EmbeddedPassage, MemoryQuery, ScoredPassage

EmbeddingUse = Literal["passage", "query"]
"""What a text is embedded for: some models make of a question another vector than of a passage."""


class Embedder(Protocol):
    """Turns texts into vectors. They must be redacted: an embedder may be somebody else's server."""

    name: str
    """Of the model. Vectors of two names cannot be compared."""
    dimension: int | None
    """None: there is no dense embedder; memory then works by BM25 alone."""

    async def embed(self, texts: Sequence[str], use: EmbeddingUse = "passage") -> tuple[tuple[float, ...] | None, ...]:
        """One vector of length 1 for each text, in order; None where there is no dense embedder or nothing to embed.

        Raises MemoryUnavailable.
        """
        ...

    async def compute_similarity(
        self, query: str, texts: Sequence[str], above: Sequence[str] = ()
    ) -> tuple[float, ...]:
        """How alike the words of each text are to those of the query, from 0 to 1, where the rarer ones among these
        texts count more. What stands above a text counts for it, too, up to 2, where that alone says what is looked
        for (`words.compute_heading_scores`). Nothing leaves the machine for it.

        Raises MemoryUnavailable.
        """
        ...


class MemorySearch(Protocol):
    """What can be looked up in memory."""

    async def search(self, query: MemoryQuery) -> tuple[ScoredPassage, ...]:
        """The best passages that the query admits. Raises MemoryUnavailable."""
        ...

    async def count(self, tenant: str) -> int:
        """Points of a tenant. Raises MemoryUnavailable."""
        ...


class PassageVectorStore(MemorySearch, Protocol):
    """Passages in Qdrant: dense and BM25 vectors, filtered by tenant, fused."""

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """Write points; the same passage id twice is one point.

        Raises:
            MemoryUnavailable: they are to be written later.
            PassagesRejectedError: one of them at least will never be taken; some of them may have been.
        """
        ...

    async def delete(self, passage_ids: Sequence[str]) -> None:
        """Take points away; an id that is not there changes nothing. Raises MemoryUnavailable."""
        ...

    async def aclose(self) -> None:
        """Flush and close."""
        ...


class Memory(PassageVectorStore, Protocol):
    """The memory that is in use."""

    async def erase_deleted_points(self) -> None:
        """Have what was deleted lie in no file either, where that is in our hands. Raises MemoryUnavailable."""
        ...


class MemoryDraft(PassageVectorStore, Protocol):
    """A memory that is made anew beside the one in use, and takes its place when it is ready. It outlives a crash."""

    async def list_point_ids(self) -> frozenset[str]:
        """Of all points, of all tenants. Raises MemoryUnavailable."""
        ...

    async def publish(self) -> None:
        """It is the memory from now on; what was there before is gone. May be done again. Raises MemoryUnavailable."""
        ...
