"""A subagent's thin child workflow, and the activities of agent runs that tasks share with it.

The activities are legs and compactions.
"""

from typing import Protocol

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

from waystation.activities.agents import LEGS, ContextActivities
from waystation.activities.ledger import LedgerActivities
from waystation.agents.agent_run import AgentRun, CompactContext, RunLeg
from waystation.agents.compaction_request import CompactionRequest
from waystation.agents.delegation import SubagentProgress, TeammateState
from waystation.agents.leg import LegOutcome, LegRequest
from waystation.kernel.amount import Amount
from waystation.kernel.roles import get_role_spec
from waystation.kernel.temporal_names import SUBAGENT_NEWS, SUBAGENT_WORKFLOW, UNEXPECTED_FAILURE
from waystation.kernel.value import Value
from waystation.tasks.progress import render_run_details
from waystation.workflows.options import CONTEXT, LEG, SHORT, raise_if_cancelled, with_summary


class AgentRunContext(Protocol):
    """Owner of agent runs: a task's workflow, or a subagent's."""

    def get_run(self, step_id: str) -> AgentRun:
        """Return the current agent run."""
        ...

    def update_run(self, run: AgentRun) -> None:
        """Replace the agent run."""
        ...

    @property
    def task_used(self) -> float:
        """Share of the task's budget that is spent (0 to 1)."""
        ...

    def list_other_agents(self, step_id: str) -> tuple[TeammateState, ...]:
        """Return the other agents of the task, as shown to this agent."""
        ...

    def get_drawable_budget(self, step_id: str) -> Amount:
        """Return the budget that this agent could draw from its task."""
        ...


class AgentActivityRunner:
    """Runs the activities of one agent run and applies their outcomes to it."""

    def __init__(self, runtime: AgentRunContext, step_id: str) -> None:
        self._runtime, self._step_id = runtime, step_id

    async def run_leg(self, request: LegRequest) -> None:
        """Run one leg."""
        try:
            outcome = await self._execute(
                request.replace(
                    task_spent_share=self._runtime.task_used,
                    teammates=self._runtime.list_other_agents(self._step_id),
                    available_from_task=self._runtime.get_drawable_budget(self._step_id),
                )
            )
        except ActivityError as error:
            await self._failed(error)
        else:
            self._runtime.update_run(self._run.after_leg(outcome))

    async def compact(self, request_tokens: int) -> None:
        """Compact the agent's context."""
        run = self._run
        request = CompactionRequest(
            run=run.run,
            config=run.config,
            limit=run.limit,
            request_tokens=request_tokens,
            window_exceeded=run.window_exceeded,
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
            self._runtime.update_run(self._run.after_compaction(outcome))

    @property
    def _run(self) -> AgentRun:
        return self._runtime.get_run(self._step_id)

    async def _execute(self, request: LegRequest) -> LegOutcome:
        summary = f"{self._step_id}: leg {request.leg}, {self._run.totals.spent.tokens:,} tokens so far"
        leg = LEGS[get_role_spec(request.run.role).activity]
        return await workflow.execute_activity_method(leg, request, **with_summary(LEG, summary))

    async def _failed(self, error: ActivityError) -> None:
        """Settle a run whose activity failed for good from the store.

        The run delivers what it has; if the error is of no known kind, a person decides whether it tries again.
        """
        if is_cancelled_exception(error):
            raise error
        totals = await workflow.execute_activity_method(LedgerActivities.read_run_totals, self._run.run, **SHORT)
        settled, reason = self._run.with_settled_usage(totals), get_failure_reason(error)
        is_unexpected = isinstance(error.cause, ApplicationError) and error.cause.type == UNEXPECTED_FAILURE
        self._runtime.update_run(settled.halt(reason) if is_unexpected else settled.finish_partial(reason))


def get_failure_reason(error: ActivityError | ApplicationError) -> str:
    """Return the error's reason. Our errors hold values, never content."""
    cause = error if isinstance(error, ApplicationError) else error.cause
    return (cause.message if isinstance(cause, FailureError) else "") or "the activity failed"


class SubagentWorkflowInput(Value):
    """Input of `SubagentWorkflow`."""

    run: AgentRun
    title: str
    """Redacted."""
    task_spent_share: float
    """Share of the task's budget that was spent when the subagent was started (0 to 1)."""
    teammates: tuple[TeammateState, ...] = ()
    """Other agents of the task when the subagent was started."""
    available_from_task: Amount = Amount()
    """Budget that it could draw from its task when it was started."""


@workflow.defn(name=SUBAGENT_WORKFLOW)
class SubagentWorkflow:
    """Runs a subagent until it returns to its task: with its result, or because it needs budget, subagents of its own
    or the approval of a tool call.

    It makes no decisions: budgets and answers live in the task only, which starts this workflow again with the run as
    it is then. A paused subagent is therefore no workflow at all.
    """

    @workflow.init
    def __init__(self, start: SubagentWorkflowInput) -> None:
        self._start, self._run, self._called_back = start, start.run, False
        self._reported_legs = start.run.leg
        self._work = AgentActivityRunner(self, start.run.run.step_id)

    @workflow.run
    async def run_until_it_needs_its_task(self, start: SubagentWorkflowInput) -> AgentRun:
        """Return the run when it needs its task or was called back."""
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

    @workflow.signal(description="Return to the task when the current leg ends. Sent by the task.")
    def call_back(self, *_: JsonValue) -> None:
        """Call the subagent back. The input is ignored."""
        self._called_back = True

    def get_run(self, step_id: str) -> AgentRun:  # noqa: ARG002 (there is one)
        """Return the agent run."""
        return self._run

    def update_run(self, run: AgentRun) -> None:
        """Replace the agent run."""
        self._run = run

    def render_details(self) -> str:
        """Return what the Temporal UI shows of the agent run."""
        return render_run_details(self._run, self._start.title)

    @property
    def task_used(self) -> float:
        """Share of the task's budget that was spent when the subagent was started (0 to 1)."""
        return self._start.task_spent_share

    def list_other_agents(self, step_id: str) -> tuple[TeammateState, ...]:  # noqa: ARG002 (there is one)
        """Return the other agents of the task when the subagent was started."""
        return self._start.teammates

    def get_drawable_budget(self, step_id: str) -> Amount:  # noqa: ARG002 (there is one)
        """Return the drawable budget when the subagent was started."""
        return self._start.available_from_task

    async def _tell(self) -> None:
        """Report progress to the task before the next leg, so that the task counts and shows what was spent."""
        run = self._run
        if run.leg == self._reported_legs:
            return
        self._reported_legs = run.leg
        news = SubagentProgress(id=run.run.step_id, totals=run.totals, leg=run.leg, work_counts=run.work_counts)
        try:
            await workflow.get_external_workflow_handle(run.run.task_id).signal(SUBAGENT_NEWS, news)
        except ApplicationError:
            workflow.logger.warning("the task of this subagent is gone")
