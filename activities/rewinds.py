"""The activity by which a finished task goes on from a message of one of its agents."""

from temporalio import activity

from activities.failures import reported
from waystation.agents.rewinder import Rewinder
from waystation.domain.rewind import TaskRewind
from waystation.domain.task_state import TaskState


class RewindActivities:
    """Tasks that go on."""

    def __init__(self, rewinder: Rewinder) -> None:
        self._rewinder = rewinder

    @activity.defn(name="ReopenTask")
    async def reopen(self, asked: TaskRewind) -> TaskState:
        """Take the agent back, let those that built on it begin anew, and say from where the task goes on."""
        with reported():
            return await self._rewinder.reopen(asked)
