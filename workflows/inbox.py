"""What people send to a task: validated, put on its board, kept in the audit trail."""

from pydantic import JsonValue
from temporalio import workflow

from waystation.domain import approvals, edits
from waystation.domain.action_requests import decided
from waystation.domain.inbound import UNSEALED, whole
from waystation.domain.task import Approval
from workflows.board import Board, record
from workflows.budget_gate import BudgetGate


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
        answer = edits.asked(state, whole(sent), workflow.now())
        self._board.change(edits.with_edit(state, answer))
        await record(self._board, answer)
