"""Children that outlive the workflow that starts them, each once for its id."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

WorkflowT = TypeVar("WorkflowT")
InputT = TypeVar("InputT")


async def leave_to_child(
    run: Callable[[WorkflowT, InputT], Awaitable[object]], given: InputT, workflow_id: str, summary: str
) -> None:
    """Start it and go on. One of the same id that was started before is left as it is."""
    with suppress(WorkflowAlreadyStartedError):
        child = await workflow.start_child_workflow(
            run,
            given,
            id=workflow_id,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
            static_summary=summary,
        )
        # What becomes of it is its own affair; asyncio would log a failure that nobody looked at as an error.
        child.add_done_callback(lambda done: done.cancelled() or done.exception())
