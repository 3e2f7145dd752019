"""How a task takes new versions of its documents: the store puts them in place, where its agents read them."""

from pydantic import JsonValue
from temporalio import workflow

from activities.updates import UpdateActivities, UpdateRequest
from waystation.domain.inbound import whole
from waystation.domain.task import Refusal
from waystation.domain.updating import asked, not_kept, with_update
from workflows.board import Board, record
from workflows.options import SHORT, named


async def update(board: Board, sent: tuple[JsonValue, ...]) -> None:
    """The signal `update_documents`. It wakes nobody: who waits hears of it when they go on."""
    wanted = asked(board.state, whole(sent), workflow.now())
    if isinstance(wanted, Refusal):
        board.change(board.state.answered(wanted))
        await record(board, wanted)
        return
    board.change(with_update(board.state, wanted))
    request = UpdateRequest(task_id=board.task_id, update=wanted)
    summary = f"update {wanted.number} of the documents"
    done = await workflow.execute_activity_method(UpdateActivities.update, request, **named(SHORT, summary))
    if not done.reason:
        board.change(with_update(board.state, done.update))
        return
    state, refused = not_kept(board.state, done.update, done.reason, workflow.now())
    board.change(state)
    await record(board, refused)
