"""The activity that finds tasks whose time is over."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity

from activities.failures import reported
from waystation.domain.forgetting import Due, orders_of
from waystation.domain.ownership import Installation
from waystation.ports import Clock, TaskStore

MOST_TASKS = 5_000
"""Of one look; the next one finds the rest."""


@dataclass(frozen=True)
class RetentionActivities:
    """It is safe to repeat."""

    days: int | None
    tasks: TaskStore
    clock: Clock
    runs: Callable[[str], Awaitable[bool]]
    """Whether the workflow of this id is open."""

    @activity.defn(name="FindExpiredTasks")
    async def due(self) -> Due:
        """Tasks of all tenants that ended so many days ago. One that was never told to have ended may still run."""
        if self.days is None:
            return Due(days=None)
        with reported():
            before = self.clock() - timedelta(days=self.days)
            rows = await self.tasks.tasks(Installation(), MOST_TASKS, ended_before=before)
            over = [row.ref for row in rows if row.ended_at is not None or not await self.runs(row.ref.task_id)]
            return Due(days=self.days, orders=orders_of(over))
