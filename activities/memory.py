"""Activities of memory: store pending passages, index documents, and search for people."""

import logging

from temporalio import activity

from waystation.activities.activity_errors import heartbeating, translating_errors
from waystation.kernel.temporal_names import COUNT_PASSAGES, SEARCH_MEMORY
from waystation.memory.indexing import DocumentIndexer, DrainResult, OutboxDrainer
from waystation.memory.passage_builder import IndexingState
from waystation.memory.passages import MemoryQuery, ScoredPassageRef


class MemoryActivities:
    """The outbox, and the memory that it feeds."""

    def __init__(self, archive: OutboxDrainer) -> None:
        self._outbox_drainer = archive

    @activity.defn(name="StorePendingPassages")
    async def drain_outbox(self) -> DrainResult:
        """Write pending passages.

        If Qdrant is down, this does not fail: the passages stay pending, as the result says.
        """
        async with heartbeating():
            with translating_errors():
                return await self._outbox_drainer.drain()

    @activity.defn(name=SEARCH_MEMORY)
    async def search_memory(self, query: MemoryQuery) -> tuple[ScoredPassageRef, ...]:
        """Return references to the passages that match a redacted query. Their text enters no history."""
        with translating_errors():
            found = await self._outbox_drainer.memory.search(query)
            return tuple(ScoredPassageRef(passage_id=one.passage.id, score=one.score) for one in found)

    @activity.defn(name=COUNT_PASSAGES)
    async def count_passages(self, tenant: str) -> int:
        """Return the number of a tenant's passages in memory."""
        with translating_errors():
            return await self._outbox_drainer.memory.count(tenant)


_logger = logging.getLogger(__name__)


class DocumentActivities:
    """Indexing of task documents."""

    def __init__(self, librarian: DocumentIndexer) -> None:
        self._document_indexer = librarian

    @activity.defn(name="RememberDocuments")
    async def index_next_slice(self, so_far: IndexingState) -> IndexingState:
        """Index the next slice of a task's documents."""
        async with heartbeating():
            with translating_errors():
                now = await self._document_indexer.index_next_slice(so_far)
        if now.done and now.skipped_characters:
            _logger.info(
                "%s: %s characters of documents are not written to memory", now.ref.task_id, now.skipped_characters
            )
        return now
