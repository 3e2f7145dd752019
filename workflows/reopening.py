"""How a task begins that does not begin from nothing: a finished one goes on, a forked one takes over what is done."""

from temporalio import workflow

from activities.forks import ForkActivities
from activities.rewinds import RewindActivities
from waystation.domain.rewind import TaskRewind
from waystation.domain.task_start import TaskStart
from waystation.domain.task_state import TaskState
from workflows.options import CONTEXT_SHORT, SHORT, named


async def taken_up(start: TaskStart) -> TaskState | None:
    """The state to begin with, or None for the one that there is. Where this fails, nothing has been done yet."""
    if start.state is not None:
        return None
    if start.rewind is not None:
        return await _reopened(start.rewind)
    if start.forked:
        summary = "take over finished steps of another task"
        return await workflow.execute_activity_method(ForkActivities.take_over, start.ref, **named(SHORT, summary))
    return None


async def _reopened(rewind: TaskRewind) -> TaskState:
    summary = f"{rewind.agent}: go back to {rewind.message}"
    return await workflow.execute_activity_method(RewindActivities.reopen, rewind, **named(CONTEXT_SHORT, summary))
