"""The activities by which tasks are forgotten when their time is over: which ones, and what lies outside the store."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity

from activities.failures import reported
from waystation.domain.forgetting import Due, Retired, orders_of
from waystation.ports import Clock, TaskStore

MOST_TASKS = 5_000
"""Of one look; the next one finds the rest."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetentionActivities:
    """Both are safe to repeat."""

    days: int | None
    tasks: TaskStore
    clock: Clock
    runs: Callable[[str], Awaitable[bool]]
    """Whether the workflow of this id is open."""
    delete_histories: Callable[[Sequence[str]], Awaitable[int]]
    delete_reports: Callable[[Sequence[str]], int]
    """From the home folder of this process."""

    @activity.defn(name="FindExpiredTasks")
    async def due(self) -> Due:
        """Tasks of all tenants that ended so many days ago. One that was never told to have ended may still run."""
        if self.days is None:
            return Due(days=None)
        with reported():
            before = self.clock() - timedelta(days=self.days)
            rows = await self.tasks.tasks(limit=MOST_TASKS, ended_before=before)
            over = [row.ref for row in rows if row.ended_at is not None or not await self.runs(row.ref.task_id)]
            return Due(days=self.days, orders=orders_of(over))

    @activity.defn(name="TidyUpExpiredTasks")
    async def tidy_up(self, retired: Retired) -> None:
        """Delete histories and reports, too; and say what went."""
        with reported():
            histories = await self.delete_histories(retired.order.task_ids)
        files, gone = self.delete_reports(retired.order.task_ids), retired.forgotten
        logger.info(
            "after %s days: forgot %s tasks, %s passages, %s documents, %s messages, %s histories, %s reports",
            *(self.days, gone.tasks, gone.passages, gone.documents, gone.messages, histories, files),
        )
