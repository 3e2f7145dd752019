"""Drives one agent run from move to move. A plain class: it runs inside a Task's workflow."""

from typing import assert_never

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.context import ContextActivities
from waystation.domain.agent_run import AgentRun
from waystation.domain.compaction.edit import EditOutcome, EditRequest
from waystation.domain.delegation import parent_of
from waystation.domain.moves import AskMoney, AskPerson, Compact, Delegate, Deliver, Edit, RunLeg
from waystation.domain.subagents import taken_on
from workflows.action_gate import ask_person, take_back_requests
from workflows.agent_work import AgentWork, cause_of
from workflows.board import Board, record
from workflows.budget_gate import BudgetGate
from workflows.calling import work_as_child
from workflows.options import CONTEXT, named


class AgentRunner:
    """The agent of a step, or a subagent: which works in a workflow of its own, and decides nothing there."""

    def __init__(self, board: Board, gate: BudgetGate, step_id: str) -> None:
        self._board, self._gate, self._step_id = board, gate, step_id
        self._work = AgentWork(board, step_id)

    async def drive(self) -> None:
        """Go on until the run has delivered, or the workflow wants its agents back."""
        while not self._board.stopping:
            move = self._run.next_move()
            if isinstance(move, Deliver):
                if late := self._run.late_edits:
                    await record(self._board, *late)
                return
            if isinstance(move, RunLeg | Compact) and parent_of(self._step_id) is not None:
                await work_as_child(self._board, self._step_id)
            else:
                await self._carry_out(move)

    async def _carry_out(self, move: RunLeg | Compact | Edit | AskMoney | Delegate | AskPerson) -> None:
        match move:
            case RunLeg():
                await self._work.leg(move.request)
            case Compact():
                await self._work.compact(move.request_tokens)
            case Edit():
                await self._edit(move.request)
            case AskMoney():
                await self._gate.pass_(self._step_id)
            case Delegate():
                await self._wait_for_subagents()
            case AskPerson():
                await ask_person(self._board, self._step_id)
            case _:
                assert_never(move)

    @property
    def _run(self) -> AgentRun:
        return self._board.run(self._step_id)

    async def _wait_for_subagents(self) -> None:
        """Nothing is held meanwhile. The task starts them, as it starts steps."""
        self._board.change(taken_on(self._board.state, self._step_id, self._board.start.terms))
        await workflow.wait_condition(
            lambda: self._run.phase != "delegating" or self._run.next_edit is not None or self._board.stopping
        )

    async def _edit(self, request: EditRequest) -> None:
        """What cannot be carried out changes nothing: the agent goes on, or goes on waiting."""
        edit = request.edit
        summary = f"{self._step_id}: {edit.what}, asked for by a person"
        try:
            outcome = await workflow.execute_activity_method(ContextActivities.edit, request, **named(CONTEXT, summary))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            outcome = EditOutcome(state="refused", reason=cause_of(error))
        run = self._run.after_edit(edit, outcome)
        self._board.keep(run)
        await record(self._board, run.edit(edit.id))
        await take_back_requests(self._board, self._step_id)
