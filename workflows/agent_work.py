"""What an agent run has done for it by activities: its legs, and room in its context. Shared by tasks and subagents."""

from typing import Protocol

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.agents import AgentActivities
from activities.context import ContextActivities
from activities.ledger import LedgerActivities
from waystation.domain.agent_run import AgentRun
from waystation.domain.compaction.request import CompactionRequest
from waystation.domain.leg import LegOutcome, LegRequest
from waystation.domain.team import Teammate
from workflows.options import CONTEXT, LEG, SHORT, named


class RunBoard(Protocol):
    """Where a workflow keeps its agent runs."""

    def run(self, step_id: str) -> AgentRun:
        """As it is now."""
        ...

    def keep(self, run: AgentRun) -> None:
        """As it is from now on."""
        ...

    @property
    def task_used(self) -> float:
        """The share of the task's budget that is spent."""
        ...

    def team(self, step_id: str) -> tuple[Teammate, ...]:
        """Who else works on the task, as this agent is told."""
        ...


class AgentWork:
    """The activities of one agent run, and what becomes of the run by them."""

    def __init__(self, board: RunBoard, step_id: str) -> None:
        self._board, self._step_id = board, step_id

    async def leg(self, request: LegRequest) -> None:
        """Carry out a leg."""
        try:
            told = {"task_used": self._board.task_used, "team": self._board.team(self._step_id)}
            outcome = await self._execute(request.model_copy(update=told))
        except ActivityError as error:
            await self._failed(error)
        else:
            self._board.keep(self._run.after_leg(outcome))

    async def compact(self, request_tokens: int) -> None:
        """Make room in the context."""
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
            self._board.keep(self._run.after_compaction(outcome))

    @property
    def _run(self) -> AgentRun:
        return self._board.run(self._step_id)

    async def _execute(self, request: LegRequest) -> LegOutcome:
        summary = f"{self._step_id}: leg {request.leg}, {self._run.totals.spent.tokens:,} tokens so far"
        match request.run.role:
            case "analysis":
                return await workflow.execute_activity_method(AgentActivities.analysis, request, **named(LEG, summary))
            case "writing":
                return await workflow.execute_activity_method(AgentActivities.writing, request, **named(LEG, summary))
            case "research" | "planning" | "reviewing":
                return await workflow.execute_activity_method(AgentActivities.research, request, **named(LEG, summary))

    async def _failed(self, error: ActivityError) -> None:
        """An activity failed for good: the store says what was spent, and the run delivers what it has."""
        if is_cancelled_exception(error):
            raise error
        totals = await workflow.execute_activity_method(LedgerActivities.totals, self._run.run, **SHORT)
        self._board.keep(self._run.settled(totals).cannot_go_on(cause_of(error)))


def cause_of(error: ActivityError) -> str:
    """Why an activity failed, as its error says: our errors hold values, never content."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return f"{cause.type}: {cause.message}"
    return type(cause).__name__ if cause is not None else "the activity failed"
