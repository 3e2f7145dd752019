"""Where an agent gets its answer that wants to call a tool which asks first: from a person, by the task's inbox."""

from temporalio import workflow

from waystation.domain.action_requests import opened, overtaken
from waystation.domain.notices import Event
from workflows.board import Board, record
from workflows.notice import keep_and_tell
from workflows.waiting import wait_for_answer


async def ask_person(board: Board, step_id: str) -> None:
    """Come back when each of the agent's calls is decided on, an edit is to be carried out first, or the workflow wants
    its agents back.

    No activity runs meanwhile; requests that are open stay open through continue-as-new.
    """
    now, state = workflow.now(), board.state
    requests = opened(state, step_id, now, board.start.terms.unattended.deadline(now))
    if requests:
        for request in requests:
            state = state.asked(request)
        await keep_and_tell(board, state, Event.ASKED, *requests)
    await wait_for_answer(board, step_id)


async def take_back_requests(board: Board, step_id: str) -> None:
    """Close the requests for calls that an edit took back."""
    requests = overtaken(board.state, step_id, workflow.now())
    if not requests:
        return
    state = board.state
    for request in requests:
        state = state.answered(request)
    board.change(state)
    await record(board, *requests)
