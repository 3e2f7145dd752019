"""Children that outlive the workflow that starts them."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

WorkflowT = TypeVar("WorkflowT")
InputT = TypeVar("InputT")


async def leave_to_child(
    run: Callable[[WorkflowT, InputT], Awaitable[object]],
    given: InputT,
    workflow_id: str,
    summary: str,
    *,
    again: bool = False,
) -> None:
    """Start it and go on. One of the same id that was started before is left as it is; or it is done `again`, in the
    place of one that still runs.
    """
    once, anew = WorkflowIDReusePolicy.REJECT_DUPLICATE, WorkflowIDReusePolicy.TERMINATE_IF_RUNNING
    with suppress(WorkflowAlreadyStartedError):
        child = await workflow.start_child_workflow(
            run,
            given,
            id=workflow_id,
            id_reuse_policy=anew if again else once,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
            static_summary=summary,
        )
        # What becomes of it is its own affair; asyncio would log a failure that nobody looked at as an error.
        child.add_done_callback(lambda done: done.cancelled() or done.exception())
