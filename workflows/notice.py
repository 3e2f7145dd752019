"""A notice on its way: a workflow of its own, so that a task waits for no delivery and fails for none."""

from temporalio import workflow

from activities.notices import NoticeActivities
from waystation.domain.notices import Event, Notice
from waystation.domain.task import Approval, TaskPhase
from waystation.domain.task_state import TaskState
from workflows.board import Board, record
from workflows.detached import leave_to_child
from workflows.options import NOTICE, named


@workflow.defn(name="Notice")
class NoticeWorkflow:
    """One notice, attempted for a day. Its failure is seen in the Temporal UI and nowhere else."""

    @workflow.run
    async def run(self, notice: Notice) -> None:
        """Send it."""
        await workflow.execute_activity_method(NoticeActivities.send, notice, **named(NOTICE, "post to the webhook"))


async def keep_and_tell(board: Board, state: TaskState, event: Event, *requests: Approval) -> None:
    """The state in which these requests were made or closed; they go into the audit trail, and people are told."""
    board.change(state)
    await record(board, *requests)
    for request in requests:
        await tell_of_request(board, event, request)


async def tell_of_request(board: Board, event: Event, request: Approval) -> None:
    """Tell of a request for budget."""
    await _tell(board, _notice(board, event, board.state.phase).model_copy(update={"request": request}))


async def tell_of_end(board: Board, phase: TaskPhase, reason: str = "") -> None:
    """Tell how the task ends, and why where it failed."""
    event = Event.FAILED if phase is TaskPhase.FAILED else Event.FINISHED
    await _tell(board, _notice(board, event, phase).model_copy(update={"reason": reason}))


def _notice(board: Board, event: Event, phase: TaskPhase) -> Notice:
    return Notice(
        event=event,
        task_id=board.start.ref.task_id,
        title=board.start.title,
        phase=phase,
        at=workflow.now(),
        spent=board.state.totals.spent,
        limit=board.state.account.limit,
    )


async def _tell(board: Board, notice: Notice) -> None:
    """Leave the notice to a child that outlives its task. An event that was told before is not told again."""
    if board.start.notices:
        await leave_to_child(NoticeWorkflow.run, notice, notice.delivery_id, notice.summary)
