"""Drives one agent run from action to action inside its task's workflow, and runs subagents as child workflows."""

import asyncio
from contextlib import suppress
from typing import assert_never

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, is_cancelled_exception

from waystation.activities.agents import ContextActivities
from waystation.activities.ledger import LedgerActivities
from waystation.agents.agent_run import (
    AgentRun,
    ApplyContextEdit,
    CompactContext,
    FinishRun,
    RequestApproval,
    RequestBudget,
    RunLeg,
    StartSubagents,
)
from waystation.agents.cache_refresh import REFRESH_INTERVAL, CacheRefreshRequest
from waystation.agents.compaction_request import EditOutcome, EditRequest
from waystation.agents.delegation import get_parent_id
from waystation.security.untrusted import neutralize_markdown
from waystation.tasks.state import start_subagents
from waystation.workflows.approvals import BudgetGate, close_obsolete_requests, wait_for_action_approval
from waystation.workflows.options import CACHE_REFRESH, CONTEXT, SHORT, with_summary
from waystation.workflows.subagent import (
    AgentActivityRunner,
    SubagentWorkflow,
    SubagentWorkflowInput,
    get_failure_reason,
)
from waystation.workflows.task_runtime import TaskRuntime, record_audit_entries

CHILD_ENDED_REASON = "someone ended its workflow"


async def run_as_child_workflow(runtime: TaskRuntime, step_id: str) -> None:
    """Run the subagent's child workflow until it needs its task or the task calls it back.

    While the child runs, it owns the agent run; the task only receives its progress and people's edits. If the child
    was terminated, was cancelled or failed on its own, the subagent delivers what it has.
    """
    child = await workflow.start_child_workflow(
        SubagentWorkflow.run_until_it_needs_its_task,
        SubagentWorkflowInput(
            run=_without_edits(runtime.get_run(step_id)),
            title=_title(runtime, step_id),
            task_spent_share=runtime.task_used,
            teammates=runtime.list_other_agents(step_id),
            available_from_task=runtime.get_drawable_budget(step_id),
        ),
        id=f"{runtime.task_id}/{step_id}",
        # A task that was reset finds the child of its earlier run, which reports to no one any more.
        id_reuse_policy=WorkflowIDReusePolicy.TERMINATE_IF_RUNNING,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        static_summary=f"{step_id}: {neutralize_markdown(_title(runtime, step_id))}",
    )
    try:
        await workflow.wait_condition(
            lambda: child.done() or runtime.is_stopping or runtime.get_run(step_id).next_edit is not None
        )
        if not child.done():
            with suppress(ApplicationError):  # the child has returned at the same moment
                await child.signal(SubagentWorkflow.call_back)
        worked = await child
        runtime.update_run(worked.replace(context_edits=runtime.get_run(step_id).context_edits))
    except asyncio.CancelledError:
        child.cancel()
        await asyncio.gather(child, return_exceptions=True)
        raise
    except ChildWorkflowError as error:
        if is_cancelled_exception(error) and runtime.is_stopping:
            raise
        await _lost(runtime, step_id)


async def _lost(runtime: TaskRuntime, step_id: str) -> None:
    """Settle a lost subagent from the store.

    An attempt that still runs is fenced off, so that it writes nothing more.
    """
    run = runtime.get_run(step_id)
    totals = await workflow.execute_activity_method(
        LedgerActivities.take_over_run, run.run, **with_summary(SHORT, f"{step_id}: settle a subagent that was lost")
    )
    runtime.update_run(runtime.get_run(step_id).with_settled_usage(totals).finish_partial(CHILD_ENDED_REASON))


def _title(runtime: TaskRuntime, step_id: str) -> str:
    order = runtime.get_run(get_parent_id(step_id) or step_id).find_open_order(step_id)
    return order.title if order is not None else ""


def _without_edits(run: AgentRun) -> AgentRun:
    """Return the run without its edits: the task applies those."""
    return run.replace(context_edits=())


class AgentRunner:
    """Drives one agent run in the task's workflow: a step's agent, or a subagent.

    A subagent's legs and compactions run in a child workflow. Its budget, requests and edits are decided here.
    """

    def __init__(self, runtime: TaskRuntime, gate: BudgetGate, step_id: str) -> None:
        self._runtime, self._gate, self._step_id = runtime, gate, step_id
        self._work = AgentActivityRunner(runtime, step_id)

    async def run_agent(self) -> None:
        """Run until the agent has delivered or the workflow stops its agents."""
        while not self._runtime.is_stopping:
            move = self._run.get_next_action()
            if isinstance(move, FinishRun):
                if late := self._run.late_edits:
                    await record_audit_entries(self._runtime, *late)
                return
            if isinstance(move, RunLeg | CompactContext) and get_parent_id(self._step_id) is not None:
                await run_as_child_workflow(self._runtime, self._step_id)
            else:
                await self._carry_out(move)

    async def _carry_out(
        self, move: RunLeg | CompactContext | ApplyContextEdit | RequestBudget | StartSubagents | RequestApproval
    ) -> None:
        match move:
            case RunLeg():
                await self._work.run_leg(move.request)
            case CompactContext():
                await self._work.compact(move.request_tokens)
            case ApplyContextEdit():
                await self._edit(move.request)
            case RequestBudget():
                await self._gate.wait(self._step_id)
            case StartSubagents():
                await self._wait_for_subagents()
            case RequestApproval():
                await wait_for_action_approval(self._runtime, self._step_id)
            case _:
                assert_never(move)

    @property
    def _run(self) -> AgentRun:
        return self._runtime.get_run(self._step_id)

    async def _wait_for_subagents(self) -> None:
        """Wait for subagents, which the task starts as it starts steps. The agent holds no resources meanwhile.

        Now and then it reads its prompt cache, as long as that is cheaper than writing it again.
        """
        self._runtime.replace_state(start_subagents(self._runtime.state, self._step_id, self._runtime.start.config))
        while True:
            refreshes = self._run.count_open_refreshes(workflow.now().date())
            try:
                await workflow.wait_condition(
                    lambda: (
                        self._run.phase != "delegating" or self._run.next_edit is not None or self._runtime.is_stopping
                    ),
                    timeout=REFRESH_INTERVAL if refreshes else None,
                    timeout_summary=f"{self._step_id}: keep its prompt cache warm",
                )
            except TimeoutError:
                await self._warm_cache()
            else:
                return

    async def _warm_cache(self) -> None:
        """Read the agent's cached prefix, unless a person is asked: no activity runs while a task is paused."""
        run = self._run
        if self._runtime.state.pending_approvals:
            self._runtime.update_run(run.release_cache())
            return
        request = CacheRefreshRequest(
            run=run.run, config=run.config, limit=run.limit, number=run.cache_refreshes + 1, due=workflow.now()
        )
        summary = f"{self._step_id}: keep its prompt cache warm ({request.number})"
        try:
            outcome = await workflow.execute_activity_method(
                ContextActivities.warm_cache, request, **with_summary(CACHE_REFRESH, summary)
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self._runtime.update_run(self._run.release_cache())
        else:
            self._runtime.update_run(self._run.after_cache_refresh(outcome))

    async def _edit(self, request: EditRequest) -> None:
        """Apply a person's edit. An edit that fails changes nothing: the agent goes on working or waiting."""
        edit = request.edit
        summary = f"{self._step_id}: {edit.short_description}, requested by a person"
        try:
            outcome = await workflow.execute_activity_method(
                ContextActivities.edit, request, **with_summary(CONTEXT, summary)
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            outcome = EditOutcome(state="refused", reason=get_failure_reason(error))
        run = self._run.after_edit(edit, outcome)
        self._runtime.update_run(run)
        await record_audit_entries(self._runtime, run.get_edit(edit.id))
        await close_obsolete_requests(self._runtime, self._step_id)
