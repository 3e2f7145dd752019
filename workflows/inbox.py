"""What people send to a task: validated, put on its board, kept in the audit trail.

How a task takes what people tell it: kept by the store, from where its agents hear it at their next turns.

How a task takes new versions of its documents: the store puts them in place, where its agents read them.

What the Temporal UI says of the messages that a task takes.
"""

from pydantic import JsonValue
from temporalio import workflow

from activities.bookkeeping import TellingActivities, TellRequest, UpdateActivities, UpdateRequest
from waystation.domain import approvals, signals
from waystation.domain.signals import (
    UNSEALED,
    documents_not_kept,
    told,
    update_asked,
    whole,
    with_telling,
    with_update,
    words_not_kept,
)
from waystation.domain.task import Approval, Refusal
from waystation.domain.task_state import decided
from workflows.approvals import BudgetGate
from workflows.board import Board, record
from workflows.options import SHORT, named


class Inbox:
    """Any JSON, or none, is taken: a malformed message is refused where the person sees it."""

    def __init__(self, board: Board, gate: BudgetGate) -> None:
        self._board, self._gate = board, gate

    async def takes(self, signal: str, sent: tuple[JsonValue, ...]) -> bool:
        """Whether this may have an effect; what came unencrypted where it must not is refused."""
        if self._board.takes(sent):
            return True
        refused = approvals.refusal(signal, whole(sent), ValueError(UNSEALED), workflow.now())
        self._board.change(self._board.state.answered(refused))
        await record(self._board, refused)
        return False

    async def approve(self, sent: tuple[JsonValue, ...]) -> None:
        """The signal `approve_budget`."""
        state = self._board.state
        answer = approvals.approve(self._board.standing, whole(sent), workflow.now())
        state = state.answered(answer)
        if isinstance(answer, Approval):
            state = state.granted(answer.agent, answer.granted) if answer.action is None else decided(state, answer)
        self._board.change(state)
        await record(self._board, answer)
        if isinstance(answer, Approval) and answer.action is None:
            await self._gate.tell_granted(answer.granted)

    async def deny(self, sent: tuple[JsonValue, ...]) -> None:
        """The signal `deny_budget`."""
        state = self._board.state
        answer = approvals.deny(self._board.standing, whole(sent), workflow.now())
        state = state.answered(answer)
        if isinstance(answer, Approval):
            state = state.denied(answer.agent) if answer.action is None else decided(state, answer)
        self._board.change(state)
        await record(self._board, answer)

    async def edit(self, sent: tuple[JsonValue, ...]) -> None:
        """The signal `edit_context`: the agent's runner carries it out."""
        state = self._board.state
        answer = signals.edit_asked(state, whole(sent), workflow.now())
        self._board.change(signals.with_edit(state, answer))
        await record(self._board, answer)


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
    state, refused = words_not_kept(board.state, kept.telling, kept.reason, workflow.now())
    board.change(state)
    await record(board, refused)


async def update(board: Board, sent: tuple[JsonValue, ...]) -> None:
    """The signal `update_documents`. It wakes nobody: who waits hears of it when they go on."""
    wanted = update_asked(board.state, whole(sent), workflow.now())
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
    state, refused = documents_not_kept(board.state, done.update, done.reason, workflow.now())
    board.change(state)
    await record(board, refused)


APPROVE = (
    'Grant a budget request: {"request_id": "research-1-1", "tokens": 20000, "by": "your name", "note": "why"}. '
    "tokens: as many as were asked for, if left out."
)
DENY = (
    'Deny a budget request: {"request_id": "research-1-1", "finish": "partial" or "cancel", "by": "your name", '
    '"note": "why"}.'
)
EDIT = (
    'Change the context of an agent at work, between two legs: {"action": "compact", "pin", "unpin" or "restore", '
    '"agent": "research-1", "message": "m4" or "compaction": "its id", "by": "your name"}.'
)
TELL_DESCRIPTION = 'Tell all agents, each at its next turn: {"text": "…", "by": "your name"}.'
UPDATE = "New versions of the documents, which `waystation documents` puts into the store before it sends this."
