"""The activities about memory: what waits is brought in, and what is in there is looked up for people."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.archive import Archive, Drained
from waystation.domain.memory import Located, MemoryQuery
from waystation.domain.names import COUNT_PASSAGES, SEARCH_MEMORY


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
