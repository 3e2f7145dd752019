"""The activities by which tasks are forgotten: by the store, which decides, then by memory, then by what is outside."""

import logging

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.archive import Archive
from waystation.domain.forgetting import CarriedOut, ForgetOrder, Forgotten, Tidying
from waystation.ports import Forgetting, Outside

logger = logging.getLogger(__name__)


class ForgettingActivities:
    """All are safe to repeat."""

    def __init__(self, store: Forgetting, archive: Archive, outside: Outside) -> None:
        self._store, self._archive, self._outside = store, archive, outside

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

    @activity.defn(name="TidyUpAfterTasks")
    async def tidy_up(self, tidying: Tidying) -> CarriedOut:
        """Delete histories and reports, and say what went. An attempt counts what the ones before it have left."""
        task_ids = tidying.order.task_ids
        async with beating():
            with reported():
                files = self._outside.delete_reports(task_ids)
                histories = await self._outside.delete_histories(task_ids)
        gone = tidying.forgotten
        logger.info(
            "forgot %s tasks, %s passages, %s documents, %s messages, %s histories, %s reports",
            *(gone.tasks, gone.passages, gone.documents, gone.messages, histories, files),
        )
        return CarriedOut(forgotten=gone, histories=histories, files=files)
