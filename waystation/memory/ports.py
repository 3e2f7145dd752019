"""Ports to embedders and to memory."""

from collections.abc import Sequence
from typing import Literal, Protocol

from waystation.memory.passages import EmbeddedPassage, MemoryQuery, ScoredPassage

EmbeddingUse = Literal["passage", "query"]
"""Purpose of an embedding: some models give a question a different vector than a passage."""


class Embedder(Protocol):
    """Turns texts into vectors. Texts must be redacted: an embedder may be someone else's server."""

    name: str
    """Name of the model. Vectors of two names cannot be compared."""
    dimension: int | None
    """None if there is no dense embedder; memory then works by BM25 alone."""

    async def embed(self, texts: Sequence[str], use: EmbeddingUse = "passage") -> tuple[tuple[float, ...] | None, ...]:
        """Return one vector of length 1 for each text, in order; None without an embedder or for a text without words.

        Raises:
            MemoryUnavailable: the embedder does not answer.
        """
        ...

    async def compute_similarity(
        self, query: str, texts: Sequence[str], above: Sequence[str] = ()
    ) -> tuple[float, ...]:
        """Compute how similar the words of each text are to those of the query, from 0 to 1.

        Rare words among these texts count more. Nothing leaves the machine for it.

        Args:
            query: what is looked for.
            texts: texts to compare.
            above: what stands above each text. It counts for the text too, up to 2, if it alone says what is looked for
                (`compute_heading_scores`).

        Raises:
            MemoryUnavailable: the embedder does not answer.
        """
        ...


class MemorySearch(Protocol):
    """Search in memory."""

    async def search(self, query: MemoryQuery) -> tuple[ScoredPassage, ...]:
        """Return the best passages that the query admits.

        Raises:
            MemoryUnavailable: memory does not answer.
        """
        ...

    async def count(self, tenant: str) -> int:
        """Count the points of a tenant.

        Raises:
            MemoryUnavailable: memory does not answer.
        """
        ...


class PassageVectorStore(MemorySearch, Protocol):
    """Passages in Qdrant: dense and BM25 vectors, filtered by tenant, fused."""

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """Write points; the same passage id a second time overwrites the point.

        Raises:
            MemoryUnavailable: they have to be written later.
            PassagesRejectedError: at least one of them will never be accepted; some of them may have been written.
        """
        ...

    async def delete(self, passage_ids: Sequence[str]) -> None:
        """Delete points; an unknown id changes nothing.

        Raises:
            MemoryUnavailable: memory does not answer.
        """
        ...

    async def aclose(self) -> None:
        """Flush and close."""
        ...


class Memory(PassageVectorStore, Protocol):
    """The memory that is in use."""

    async def erase_deleted_points(self) -> None:
        """Remove deleted content from every file, if that is in our hands.

        Raises:
            MemoryUnavailable: memory does not answer.
        """
        ...


class MemoryDraft(PassageVectorStore, Protocol):
    """A memory that is built next to the one in use, and replaces it when it is ready. It survives a crash."""

    async def list_point_ids(self) -> frozenset[str]:
        """Return the ids of all points of all tenants.

        Raises:
            MemoryUnavailable: memory does not answer.
        """
        ...

    async def publish(self) -> None:
        """Make this the memory in use and delete the previous one. May be repeated.

        Raises:
            MemoryUnavailable: memory does not answer.
        """
        ...
