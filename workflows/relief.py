"""How an agent waits for money that a person was asked for: it also goes on with what comes free meanwhile."""

from temporalio import workflow

from waystation.domain.drawing import freed, withdrawn
from waystation.domain.notices import Event
from workflows.board import Board
from workflows.notice import keep_and_tell
from workflows.waiting import wait_for_answer


async def wait_for_money(board: Board, step_id: str) -> None:
    """Come back as `wait_for_answer` does, or with money that came free: then nobody has to answer any more.

    Histories in which nothing but a person's answer was waited for must still replay.
    """
    takes_freed = workflow.patched("freed-money-answers")
    await wait_for_answer(board, step_id, lambda: takes_freed and freed(board.state, step_id) is not None)
    state = freed(board.state, step_id) if takes_freed else None
    if state is None:
        return
    requests = withdrawn(state, step_id, workflow.now())
    for request in requests:
        state = state.answered(request)
    await keep_and_tell(board, state, Event.WITHDRAWN, *requests)
