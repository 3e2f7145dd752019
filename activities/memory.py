"""The activities about memory: documents and what waits go in, and people look things up.

The activities about memory: what waits is brought in, and what is in there is looked up for people.

The activity that brings documents into memory.
"""

import logging

from temporalio import activity

from activities.activity_errors import heartbeating, translating_errors
from waystation.kernel.temporal_names import COUNT_PASSAGES, SEARCH_MEMORY
from waystation.memory.indexing import DocumentIndexer, DrainResult, OutboxDrainer
from waystation.memory.passage_builder import IndexingState
from waystation.memory.passages import MemoryQuery, ScoredPassageRef


class MemoryActivities:
    """The outbox, and the memory behind it."""

    def __init__(self, archive: OutboxDrainer) -> None:
        self._archive = archive

    @activity.defn(name="StorePendingPassages")
    async def drain_outbox(self) -> DrainResult:
        """Write what waits. Qdrant being down is no failure here: the passages wait on, and the answer says so."""
        async with heartbeating():
            with translating_errors():
                return await self._archive.drain()

    @activity.defn(name=SEARCH_MEMORY)
    async def search_memory(self, query: MemoryQuery) -> tuple[ScoredPassageRef, ...]:
        """Which passages the query finds; its text is redacted. Theirs comes into no history."""
        with translating_errors():
            found = await self._archive.memory.search(query)
            return tuple(ScoredPassageRef(passage_id=one.passage.id, score=one.score) for one in found)

    @activity.defn(name=COUNT_PASSAGES)
    async def count_passages(self, tenant: str) -> int:
        """Points of a tenant."""
        with translating_errors():
            return await self._archive.memory.count(tenant)


_logger = logging.getLogger(__name__)


class DocumentActivities:
    """The documents of tasks."""

    def __init__(self, librarian: DocumentIndexer) -> None:
        self._librarian = librarian

    @activity.defn(name="RememberDocuments")
    async def index_next_slice(self, so_far: IndexingState) -> IndexingState:
        """One slice further."""
        async with heartbeating():
            with translating_errors():
                now = await self._librarian.index_next_slice(so_far)
        if now.done and now.left_out:
            _logger.info("%s: memory does not get %s characters of documents", now.ref.task_id, now.left_out)
        return now
