"""How a task begins that does not begin from nothing: a finished one goes on, a forked one takes over what is done."""

from temporalio import workflow

from activities.forks import ForkActivities
from activities.rewinds import RewindActivities
from waystation.domain.task_start import TaskStart
from waystation.domain.task_state import TaskState
from workflows.options import CONTEXT_SHORT, SHORT, named


async def reopened(start: TaskStart) -> TaskState | None:
    """The state of a finished task to go on from; None for one that begins. Where this fails, it ended as it had."""
    rewind = start.rewind
    if start.state is not None or rewind is None:
        return None
    summary = f"{rewind.agent}: go back to {rewind.message}"
    return await workflow.execute_activity_method(RewindActivities.reopen, rewind, **named(CONTEXT_SHORT, summary))


async def taken_over(start: TaskStart) -> TaskState | None:
    """The state of a fork to begin with, or None for the one that there is."""
    if start.state is not None or start.rewind is not None or not start.forked:
        return None
    summary = "take over finished steps of another task"
    return await workflow.execute_activity_method(ForkActivities.take_over, start.ref, **named(SHORT, summary))
