"""How a finished task goes on."""

from temporalio import workflow

from activities.rewinds import RewindActivities
from waystation.domain.rewind import TaskRewind
from waystation.domain.task_state import TaskState
from workflows.options import CONTEXT_SHORT, named


async def reopened(rewind: TaskRewind) -> TaskState:
    """The state from which it goes on. Before anything else: where this fails, the task stays as it had ended."""
    summary = f"{rewind.agent}: go back to {rewind.message}"
    return await workflow.execute_activity_method(RewindActivities.reopen, rewind, **named(CONTEXT_SHORT, summary))
