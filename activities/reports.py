"""The activities at a task's end, and where it goes on after all."""

from datetime import datetime

from temporalio import activity

from activities.failures import reported
from waystation.agents.publisher import Published, Publisher
from waystation.domain.task import TaskProgress, TaskRef
from waystation.domain.task_state import TaskState
from waystation.domain.value import Value


class PublishRequest(Value):
    """How the task ended."""

    ref: TaskRef
    progress: TaskProgress
    state: TaskState | None = None
    """What it goes on from if it is taken back."""
    at: datetime | None = None
    """The moment."""


class ReportActivities:
    """Reports."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    @activity.defn(name="StoreReport")
    async def store(self, request: PublishRequest) -> Published:
        """Assemble, check and store the report, and how the task ended."""
        with reported():
            return await self._publisher.publish(request.ref, request.progress, request.state, request.at)
