"""How an agent waits for a person's answer: until it comes, its deadline passes, or something comes between."""

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

from waystation.domain.action_requests import decided
from waystation.domain.notices import Event
from waystation.domain.task import Approval
from waystation.domain.task_state import TaskState, merged
from workflows.board import Board, record
from workflows.notice import tell_of_request


def _never() -> bool:
    return False


async def wait_for_answer(board: Board, step_id: str, settled: Callable[[], bool] = _never) -> None:
    """Come back when a person has answered, nobody did until the deadline, the workflow wants its agents back, an edit
    of the agent's context is to be carried out first, or it is settled without a person.

    Several requests of an agent are made in one moment, and have one deadline.
    """
    request = next(iter(_requests(board, step_id)), None)
    deadline = None if request is None or _is_overdue(board, request) else request.answer_by
    left = None if deadline is None else max(deadline - workflow.now(), timedelta())
    try:
        await workflow.wait_condition(
            lambda: settled() or _is_over(board, step_id), timeout=left, timeout_summary="deadline"
        )
    except TimeoutError:
        if not await _expire(board, step_id):
            await workflow.wait_condition(lambda: settled() or _is_over(board, step_id))


def _requests(board: Board, step_id: str) -> tuple[Approval, ...]:
    return tuple(asked for asked in board.state.pending if asked.agent == step_id)


def _is_over(board: Board, step_id: str) -> bool:
    run = board.run(step_id)
    return run.phase not in {"spent", "asking"} or run.next_edit is not None or board.stopping


async def _expire(board: Board, step_id: str) -> bool:
    """The deadline has passed. False where the requests still wait."""
    now, state, requests = workflow.now(), board.state, _requests(board, step_id)
    if not requests:  # answered in the same moment
        return True
    if board.start.terms.unattended.then == "wait":
        board.change(state.with_(notes=merged(state.notes, tuple(map(_overdue, requests)))))
        for request in requests:
            await tell_of_request(board, Event.OVERDUE, request)
        return False
    for request in requests:
        state = _expired(state, request, now)
    board.change(state)
    await record(board, *(_closed(request, now) for request in requests))
    for request in requests:
        await tell_of_request(board, Event.EXPIRED, request)
    return True


def _expired(state: TaskState, request: Approval, now: datetime) -> TaskState:
    if request.action is None:
        return state.expired(request, now)
    return decided(state.answered(_closed(request, now)), _closed(request, now))


def _closed(request: Approval, now: datetime) -> Approval:
    return request.model_copy(update={"decision": "expired", "answered_at": now})


def _is_overdue(board: Board, request: Approval) -> bool:
    """Whether it was told before. Histories in which it was told again must still replay."""
    return _overdue(request) in board.state.notes and workflow.patched("overdue-told-once")


def _overdue(request: Approval) -> str:
    return f"{request.request_id} is overdue: nobody answered until its deadline; it still waits."
