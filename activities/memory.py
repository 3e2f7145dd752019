"""The activities about memory: documents and what waits go in, and people look things up.

The activities about memory: what waits is brought in, and what is in there is looked up for people.

The activity that brings documents into memory.
"""

import logging

from temporalio import activity

from activities.attempts import beating, reported
from waystation.kernel.temporal_names import COUNT_PASSAGES, SEARCH_MEMORY
from waystation.memory.archive import Archive, Drained, Librarian
from waystation.memory.memory import Located, MemoryQuery
from waystation.memory.passages import Remembering


class MemoryActivities:
    """The outbox, and the memory behind it."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    @activity.defn(name="StorePendingPassages")
    async def drain(self) -> Drained:
        """Write what waits. Qdrant being down is no failure here: the passages wait on, and the answer says so."""
        async with beating():
            with reported():
                return await self._archive.drain()

    @activity.defn(name=SEARCH_MEMORY)
    async def search(self, query: MemoryQuery) -> tuple[Located, ...]:
        """Which passages the query finds; its text is redacted. Theirs comes into no history."""
        with reported():
            found = await self._archive.memory.search(query)
            return tuple(Located(passage_id=one.passage.id, score=one.score) for one in found)

    @activity.defn(name=COUNT_PASSAGES)
    async def count(self, tenant: str) -> int:
        """Points of a tenant."""
        with reported():
            return await self._archive.memory.count(tenant)


_logger = logging.getLogger(__name__)


class DocumentActivities:
    """The documents of tasks."""

    def __init__(self, librarian: Librarian) -> None:
        self._librarian = librarian

    @activity.defn(name="RememberDocuments")
    async def remember(self, so_far: Remembering) -> Remembering:
        """One slice further."""
        async with beating():
            with reported():
                now = await self._librarian.next_slice(so_far)
        if now.done and now.left_out:
            _logger.info("%s: memory does not get %s characters of documents", now.ref.task_id, now.left_out)
        return now
