"""How a task takes what people tell it: kept by the store, from where its agents hear it at their next turns."""

from pydantic import JsonValue
from temporalio import workflow

from activities.tellings import TellingActivities, TellRequest
from waystation.domain.inbound import whole
from waystation.domain.task import Refusal
from waystation.domain.told import not_kept, told, with_telling
from workflows.board import Board, record
from workflows.options import SHORT, named


async def take(board: Board, sent: tuple[JsonValue, ...]) -> None:
    """The signal `tell`. It wakes nobody: who waits hears it when they go on."""
    words = told(board.state, whole(sent), workflow.now())
    if isinstance(words, Refusal):
        board.change(board.state.answered(words))
        await record(board, words)
        return
    board.change(with_telling(board.state, words.telling))
    request = TellRequest(task_id=board.task_id, words=words)
    summary = f"keep message {words.telling.number} of a person"
    kept = await workflow.execute_activity_method(TellingActivities.keep, request, **named(SHORT, summary))
    if not kept.reason:
        board.change(with_telling(board.state, kept.telling))
        return
    state, refused = not_kept(board.state, kept.telling, kept.reason, workflow.now())
    board.change(state)
    await record(board, refused)
