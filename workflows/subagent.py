"""A subagent: a thin workflow around its agent run, started by its task and gone whenever that has to decide.

What an agent run has done for it by activities: its legs, and room in its context. Shared by tasks and subagents.
"""

from typing import Protocol

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

from activities.agents import LEGS, ContextActivities
from activities.ledger import LedgerActivities
from waystation.agents.agent_run import AgentRun, CompactContext, RunLeg
from waystation.agents.delegation import SubagentProgress, TeammateState
from waystation.agents.leg import LegOutcome, LegRequest
from waystation.context.compaction import CompactionRequest
from waystation.kernel.amount import Amount
from waystation.kernel.roles import get_role_spec
from waystation.kernel.temporal_names import SUBAGENT_NEWS, SUBAGENT_WORKFLOW
from waystation.kernel.value import Value
from waystation.tasks.progress import render_run_details
from workflows.options import CONTEXT, LEG, SHORT, raise_if_cancelled, with_summary


class AgentRunContext(Protocol):
    """Where a workflow keeps its agent runs."""

    def get_run(self, step_id: str) -> AgentRun:
        """As it is now."""
        ...

    def update_run(self, run: AgentRun) -> None:
        """As it is from now on."""
        ...

    @property
    def task_used(self) -> float:
        """The share of the task's budget that is spent."""
        ...

    def list_team(self, step_id: str) -> tuple[TeammateState, ...]:
        """Who else works on the task, as this agent is told."""
        ...

    def get_drawable_budget(self, step_id: str) -> Amount:
        """What this agent could draw from its task."""
        ...


class AgentActivityRunner:
    """The activities of one agent run, and what becomes of the run by them."""

    def __init__(self, board: AgentRunContext, step_id: str) -> None:
        self._board, self._step_id = board, step_id

    async def run_leg(self, request: LegRequest) -> None:
        """Carry out a leg."""
        try:
            outcome = await self._execute(
                request.replace(
                    task_used=self._board.task_used,
                    team=self._board.list_team(self._step_id),
                    drawable=self._board.get_drawable_budget(self._step_id),
                )
            )
        except ActivityError as error:
            await self._failed(error)
        else:
            self._board.update_run(self._run.after_leg(outcome))

    async def compact(self, request_tokens: int) -> None:
        """Make room in the context."""
        run = self._run
        request = CompactionRequest(
            run=run.run,
            terms=run.terms,
            limit=run.limit,
            request_tokens=request_tokens,
            known_records=run.committed_compaction_count,
        )
        summary = f"{self._step_id}: compact a request of {request_tokens:,} tokens"
        try:
            outcome = await workflow.execute_activity_method(
                ContextActivities.compress, request, **with_summary(CONTEXT, summary)
            )
        except ActivityError as error:
            await self._failed(error)
        else:
            self._board.update_run(self._run.after_compaction(outcome))

    @property
    def _run(self) -> AgentRun:
        return self._board.get_run(self._step_id)

    async def _execute(self, request: LegRequest) -> LegOutcome:
        summary = f"{self._step_id}: leg {request.leg}, {self._run.totals.spent.tokens:,} tokens so far"
        leg = LEGS[get_role_spec(request.run.role).activity]
        return await workflow.execute_activity_method(leg, request, **with_summary(LEG, summary))

    async def _failed(self, error: ActivityError) -> None:
        """An activity failed for good: the store says what was spent, and the run delivers what it has."""
        if is_cancelled_exception(error):
            raise error
        totals = await workflow.execute_activity_method(LedgerActivities.read_run_totals, self._run.run, **SHORT)
        self._board.update_run(self._run.with_settled_usage(totals).finish_partial(get_failure_reason(error)))


def get_failure_reason(error: ActivityError | ApplicationError) -> str:
    """Why an activity failed, or could not be scheduled, as its error says: our errors hold values, never content."""
    cause = error if isinstance(error, ApplicationError) else error.cause
    return (cause.message if isinstance(cause, FailureError) else "") or "the activity failed"


class SubagentWorkflowInput(Value):
    """Input of the workflow."""

    run: AgentRun
    title: str
    """Redacted."""
    task_used: float
    """The share of the task's budget that was spent when it was started."""
    team: tuple[TeammateState, ...] = ()
    """As it was then."""
    drawable: Amount = Amount()
    """What it could draw from its task then."""


@workflow.defn(name=SUBAGENT_WORKFLOW)
class SubagentWorkflow:
    """Works until it needs its task: for money, for subagents of its own, or because it has delivered.

    It holds no decision: its task is the one place where budgets and answers are kept, and starts it again with the
    run as it is then. So a paused subagent is no workflow at all.
    """

    @workflow.init
    def __init__(self, start: SubagentWorkflowInput) -> None:
        self._start, self._run, self._called_back = start, start.run, False
        self._told = start.run.leg
        self._work = AgentActivityRunner(self, start.run.run.step_id)

    @workflow.run
    async def run_until_it_needs_its_task(self, start: SubagentWorkflowInput) -> AgentRun:
        """The run as it is when it can go no further on its own, or was called back."""
        self.update_run(start.run)
        while not (self._called_back or workflow.info().is_continue_as_new_suggested()):
            raise_if_cancelled()
            match self._run.get_next_action():
                case RunLeg(request=request):
                    await self._tell()
                    await self._work.run_leg(request)
                case CompactContext(request_tokens=tokens):
                    await self._tell()
                    await self._work.compact(tokens)
                case _:
                    break
        return self._run

    @workflow.signal(description="Come back to the task when the present leg is over. Sent by the task.")
    def call_back(self, *_: JsonValue) -> None:
        """Whatever is sent."""
        self._called_back = True

    def get_run(self, step_id: str) -> AgentRun:  # noqa: ARG002 (there is one)
        """As it is now."""
        return self._run

    def update_run(self, run: AgentRun) -> None:
        """As it is from now on, shown at once."""
        self._run = run
        workflow.set_current_details(render_run_details(run, self._start.title))

    @property
    def task_used(self) -> float:
        """As it was when the subagent was started."""
        return self._start.task_used

    def list_team(self, step_id: str) -> tuple[TeammateState, ...]:  # noqa: ARG002 (there is one)
        """As it was when the subagent was started."""
        return self._start.team

    def get_drawable_budget(self, step_id: str) -> Amount:  # noqa: ARG002 (there is one)
        """As it was when the subagent was started."""
        return self._start.drawable

    async def _tell(self) -> None:
        """How far it is after a leg, where it goes on: the task counts what it spends, and shows it."""
        run = self._run
        if run.leg == self._told:
            return
        self._told = run.leg
        news = SubagentProgress(id=run.run.step_id, totals=run.totals, leg=run.leg, made=run.made)
        try:
            await workflow.get_external_workflow_handle(run.run.task_id).signal(SUBAGENT_NEWS, news)
        except ApplicationError:
            workflow.logger.warning("the task of this subagent is gone")
