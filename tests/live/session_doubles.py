"""A session that looks after its tasks all the time, and a task that does nothing: for tests of what lies between."""

from temporalio import workflow

from waystation.tasks.continuation import TaskWorkflowInput
from waystation.tasks.session import SessionWorkflowInput
from waystation.workflows.session import SessionWorkflow


@workflow.defn(name="Session")
class EagerCheckSessionWorkflow(SessionWorkflow):
    """Looks after its tasks at the very moment in which one is being started, instead of every five minutes."""

    @workflow.init
    def __init__(self, start: SessionWorkflowInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: SessionWorkflowInput) -> None:
        """See base class."""
        await super().run(start)

    async def _quiet(self) -> bool:
        await workflow.wait_condition(self._is_starting_beside_others)
        return True

    def _is_starting_beside_others(self) -> bool:
        open_tasks = set(self._state.open_tasks)
        return bool(open_tasks & self._starting and open_tasks - self._starting)


@workflow.defn(name="Task")
class IdleTaskWorkflow:
    """Runs until somebody ends it."""

    @workflow.run
    async def run(self, start: TaskWorkflowInput) -> None:
        """For ever."""
        await workflow.wait_condition(lambda: False)
