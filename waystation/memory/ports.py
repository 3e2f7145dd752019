"""Ports to embedders, to memory, and to passages in the store."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import ReadScope, SessionScope
from waystation.memory.passages import EmbeddedPassage, MemoryQuery, Passage, ScoredPassage

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


class PassageReader(Protocol):
    """Passages in the store, of which memory has the vectors."""

    async def find_passages(self, prefix: str, reader: ReadScope) -> tuple[Passage, ...]:
        """Return the reader's passages whose ids begin with this prefix of at least eight hexadecimal digits."""
        ...

    async def get_passages(self, passage_ids: Sequence[str], reader: ReadScope) -> tuple[Passage, ...]:
        """Return the valid ones among these passages, of which there may be a few hundred."""
        ...


class OutboxBatch(NamedTuple):
    """What memory has to do next."""

    pending: tuple[Passage, ...]
    """Passages that wait for memory, the oldest first."""
    withdrawn: tuple[str, ...]
    """IDs of passages that may still be in memory and must leave it."""


class PassageOutbox(Protocol):
    """Passages that were committed with their compaction and are not in Qdrant yet, and those that must leave it."""

    async def load_outbox_batch(self, limit: int, run_id: str | None = None) -> OutboxBatch:
        """Return up to `limit` of the passages that wait, of one agent run or of all, and of those to delete of all."""
        ...

    async def count_pending_passages(self, task_id: str | None = None) -> int:
        """Count the waiting passages of one task or of all."""
        ...

    async def mark_passages_stored(self, passage_ids: Sequence[str]) -> None:
        """Mark the passages as stored in Qdrant."""
        ...

    async def mark_passages_rejected(self, passage_ids: Sequence[str]) -> None:
        """Mark passages that Qdrant rejects: they wait no longer, but stay in the store."""
        ...

    async def list_rejected_passage_ids(self, task_id: str | None = None) -> tuple[str, ...]:
        """Return the ids of rejected passages of one task or of all."""
        ...

    async def list_passage_ids_to_delete(self, limit: int) -> tuple[str, ...]:
        """Return the ids of passages whose conversation was rewound and which may still be in Qdrant."""
        ...

    async def mark_passages_deleted(self, passage_ids: Sequence[str]) -> None:
        """Mark the passages as removed from Qdrant."""
        ...

    async def list_passage_ids(self, *, refused: bool = False) -> frozenset[str]:
        """Return the ids of all valid passages of all tenants; rejected ones only with `refused`."""
        ...

    async def list_deleted_passage_ids(self) -> frozenset[str]:
        """Return the ids of all passages of all tenants that are no longer valid."""
        ...


class DocumentPassageOutbox(Protocol):
    """Document passages on their way to memory: the same document in two tasks of one session is stored there once."""

    async def begin_document_indexing(self, ref: TaskRef, shown: Mapping[str, str]) -> bool:
        """Register the task among those that have its documents in memory.

        Passages of versions that it no longer has move to another task of the session that still has them, or leave
        memory. Repeating this changes nothing.

        Args:
            ref: the task.
            shown: by document name, the name that its passages bear.

        Returns:
            False if the task was forgotten.

        Raises:
            WrongStore: the task belongs to another store.
        """
        ...

    async def commit_document_passages(self, ref: TaskRef, passages: Sequence[Passage]) -> bool:
        """Add these passages to the outbox, except those of a version that was replaced meanwhile.

        Existing passages stay unchanged, whichever task added them.

        Returns:
            False if the task was forgotten meanwhile, and nothing is stored.

        Raises:
            WrongStore: the task belongs to another store.
        """
        ...


class ResultPassageOutbox(Protocol):
    """Passages of reports and findings on their way to memory."""

    async def commit_result_passages(self, ref: TaskRef, results: Sequence[Passage]) -> None:
        """Add these passages to the outbox, and remove those of an earlier end of the task from memory.

        The same passages a second time change nothing; nothing is stored for a forgotten task.

        Raises:
            WrongStore: the task belongs to another store.
        """
        ...


class SessionNames(Protocol):
    """Names that people gave to sessions."""

    async def get_session_name(self, reader: SessionScope) -> str | None:
        """Return the name of the reader's session; None if it has no task."""
        ...
