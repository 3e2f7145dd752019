"""The activity that brings waiting passages into memory."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.archive import Archive, Drained


class MemoryActivities:
    """The outbox."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    @activity.defn(name="StorePendingPassages")
    async def drain(self) -> Drained:
        """Write what waits. Qdrant being down is no failure here: the passages wait on, and the answer says so."""
        async with beating():
            with reported():
                return await self._archive.drain()
