"""Drives one agent run from move to move. A plain class: it runs inside a Task's workflow."""

from typing import assert_never

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.agents import AgentActivities
from activities.context import ContextActivities
from activities.ledger import LedgerActivities
from waystation.domain.agent_run import AgentRun, AskMoney, Compact, Deliver, Edit, RunLeg
from waystation.domain.compaction.edit import EditOutcome, EditRequest
from waystation.domain.compaction.request import CompactionRequest
from waystation.domain.leg import LegOutcome, LegRequest
from workflows.board import Board, record
from workflows.budget_gate import BudgetGate
from workflows.options import CONTEXT, LEG, SHORT, named


class AgentRunner:
    """One step's agent."""

    def __init__(self, board: Board, gate: BudgetGate, step_id: str) -> None:
        self._board, self._gate, self._step_id = board, gate, step_id

    async def drive(self) -> None:
        """Go on until the run has delivered, or the workflow wants its agents back."""
        while not self._board.stopping:
            move = self._run.next_move()
            match move:
                case RunLeg():
                    await self._leg(move.request.model_copy(update={"task_used": self._board.state.used}))
                case Compact():
                    await self._compact(move.request_tokens)
                case Edit():
                    await self._edit(move.request)
                case AskMoney():
                    await self._gate.pass_(self._step_id)
                case Deliver():
                    if late := self._run.late_edits:
                        await record(self._board, *late)
                    return
                case _:
                    assert_never(move)

    @property
    def _run(self) -> AgentRun:
        return self._board.run(self._step_id)

    def _change(self, run: AgentRun) -> None:
        self._board.change(self._board.state.with_run(run))

    async def _leg(self, request: LegRequest) -> None:
        try:
            outcome = await self._execute(request)
        except ActivityError as error:
            await self._failed(error)
        else:
            self._change(self._run.after_leg(outcome))

    async def _execute(self, request: LegRequest) -> LegOutcome:
        summary = f"{self._step_id}: leg {request.leg}, {self._run.totals.spent.tokens:,} tokens so far"
        match request.run.role:
            case "analysis":
                return await workflow.execute_activity_method(AgentActivities.analysis, request, **named(LEG, summary))
            case "writing":
                return await workflow.execute_activity_method(AgentActivities.writing, request, **named(LEG, summary))
            case "research" | "planning":
                return await workflow.execute_activity_method(AgentActivities.research, request, **named(LEG, summary))

    async def _compact(self, request_tokens: int) -> None:
        run = self._run
        request = CompactionRequest(
            run=run.run,
            terms=run.terms,
            limit=run.limit,
            request_tokens=request_tokens,
            known_records=run.known_records,
        )
        summary = f"{self._step_id}: compact a request of {request_tokens:,} tokens"
        try:
            outcome = await workflow.execute_activity_method(
                ContextActivities.compress, request, **named(CONTEXT, summary)
            )
        except ActivityError as error:
            await self._failed(error)
        else:
            self._change(self._run.after_compaction(outcome))

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
        self._change(run)
        await record(self._board, run.edit(edit.id))

    async def _failed(self, error: ActivityError) -> None:
        """An activity failed for good: the store says what was spent, and the run delivers what it has."""
        if is_cancelled_exception(error):
            raise error
        totals = await workflow.execute_activity_method(LedgerActivities.totals, self._run.run, **SHORT)
        self._change(self._run.settled(totals).cannot_go_on(cause_of(error)))


def cause_of(error: ActivityError) -> str:
    """Why an activity failed, as its error says: our errors hold values, never content."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return f"{cause.type}: {cause.message}"
    return type(cause).__name__ if cause is not None else "the activity failed"
