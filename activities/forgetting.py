"""The activities by which tasks are forgotten: first by the store, which decides, then by memory."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.archive import Archive
from waystation.domain.forgetting import ForgetOrder, Forgotten
from waystation.ports import Forgetting


class ForgettingActivities:
    """Both are safe to repeat."""

    def __init__(self, store: Forgetting, archive: Archive) -> None:
        self._store, self._archive = store, archive

    @activity.defn(name="ForgetTasks")
    async def forget(self, order: ForgetOrder) -> Forgotten:
        """Remove from the store what the order names."""
        async with beating():
            with reported():
                return await self._store.forget(order)

    @activity.defn(name="ForgetPassages")
    async def forget_passages(self) -> int:
        """Take out of memory what the store has given up; how many points. Repeated until memory answers."""
        async with beating():
            with reported():
                return await self._archive.forget_for_good()
