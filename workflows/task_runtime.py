"""A task's state inside its workflow, and its effects: details, search attributes, audit, notifications."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, TypeVar

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    SearchAttributeUpdate,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from waystation.activities.ledger import AuditRequest, LedgerActivities
from waystation.agents.agent_run import AgentRun
from waystation.agents.delegation import TeammateState, list_teammates
from waystation.budgets.budget import BudgetAccount
from waystation.kernel import temporal_names as names
from waystation.kernel.amount import Amount
from waystation.kernel.refs import TaskRef
from waystation.tasks.approvals import ApprovalContext
from waystation.tasks.continuation import TaskWorkflowInput
from waystation.tasks.notifications import NotificationEvent, TaskNotification
from waystation.tasks.progress import build_task_progress, iter_step_progress, truncate_progress
from waystation.tasks.reallocation import compute_drawable_budget, with_reallocation_config
from waystation.tasks.signals import was_encrypted
from waystation.tasks.state import TaskState
from waystation.tasks.task import ApprovalRequest, AuditEntry, TaskPhase, TaskProgress
from waystation.workflows.notification import NotificationWorkflow
from waystation.workflows.options import SHORT, with_summary

TENANT = SearchAttributeKey.for_keyword(names.TENANT_ATTRIBUTE)
SESSION = SearchAttributeKey.for_keyword(names.SESSION_ATTRIBUTE)
PHASE = SearchAttributeKey.for_keyword(names.PHASE_ATTRIBUTE)
TOKENS = SearchAttributeKey.for_int(names.TOKENS_ATTRIBUTE)
COST = SearchAttributeKey.for_float(names.COST_ATTRIBUTE)
PENDING = SearchAttributeKey.for_int(names.PENDING_ATTRIBUTE)


AUDIT_BATCH_SIZE = 20
"""Entries in one payload. Each has at most a few kilobytes."""


def build_initial_search_attributes(ref: TaskRef) -> TypedSearchAttributes:
    """Return the search attributes that a task is started with."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(TENANT, ref.tenant),
            SearchAttributePair(SESSION, ref.session),
            SearchAttributePair(PHASE, TaskPhase.SUBMITTED.value),
        ]
    )


SPENDING_INTERVAL = timedelta(minutes=1)
"""Minimum time between two upserts for the sake of tokens and cost alone."""


class _SearchAttributes(NamedTuple):
    """Values of a task's search attributes."""

    phase: str
    pending_approvals: int
    tokens: int
    cost_micro_usd: int | None


class TaskRuntime:
    """Shared state of a task's workflow, read and changed by its parts."""

    def __init__(self, start: TaskWorkflowInput) -> None:
        self.start = start
        self.state = with_reallocation_config(TaskState(account=BudgetAccount(limit=start.config.budget)), start.config)
        self.ready = False
        """Whether the state is loaded. Handlers wait until then: an earlier message would change a state that is about
        to be replaced.
        """
        self.continue_as_new_pending = False
        """Whether the workflow wants to continue as new: nothing new is started, and waiting agents return."""
        self._upserted = _SearchAttributes("", 0, 0, None)
        self._upserted_at = workflow.now() - SPENDING_INTERVAL
        self._to_upsert = False

    @property
    def is_stopping(self) -> bool:
        """Whether agents must return without going on."""
        return self.continue_as_new_pending or self.state.cancelled

    @property
    def progress(self) -> TaskProgress:
        """The progress that people see, bounded in size."""
        start = self.start
        return truncate_progress(build_task_progress(self.state, start.ref, start.config, start.title, start.privacy))

    @property
    def approval_context(self) -> ApprovalContext:
        """What an answer to an approval request is validated against."""
        return ApprovalContext(
            approvals=self.state.approvals,
            limit=self.state.account.limit,
            ceiling=self.start.config.ceiling,
            ending=self.state.is_ending,
            editing=self.state.plan_edit is not None,
            revising=self.state.proposed_revision is not None,
            approvers=self.start.approvers,
        )

    def accepts(self, sent: tuple[JsonValue, ...]) -> bool:
        """Return whether a message may take effect.

        A task that was admitted under encryption accepts encrypted messages only.
        """
        return not self.start.requires_encrypted_messages or was_encrypted(sent)

    @property
    def task_id(self) -> str:
        """ID of the task, which is also its workflow's ID."""
        return self.start.ref.task_id

    @property
    def task_used(self) -> float:
        """Share of the task's budget that is spent (0 to 1)."""
        return self.state.used_share

    def list_other_agents(self, step_id: str) -> tuple[TeammateState, ...]:
        """Return the other agents of the task, as shown to this agent."""
        return list_teammates(iter_step_progress(self.state), step_id)

    def get_drawable_budget(self, step_id: str) -> Amount:
        """Return the budget that this agent can draw from its task now."""
        return compute_drawable_budget(self.state, step_id, self.start.config.mode)

    def get_run(self, step_id: str) -> AgentRun:
        """Return an agent run by the ID of its step."""
        return self.state.runs[step_id]

    def update_run(self, run: AgentRun) -> None:
        """Replace an agent run."""
        self.replace_state(self.state.with_run(run))

    def begin_from_state(self, state: TaskState | None) -> None:
        """Continue from this state, or start a new task if there is none; messages take effect from now on."""
        if state is not None:
            self.replace_state(state)
        self.ready = True

    async def wait_until_ready(self) -> None:
        """Wait until the state is loaded."""
        await workflow.wait_condition(lambda: self.ready)

    def replace_state(self, state: TaskState) -> None:
        """Replace the state by one derived from the current one, with no await in between.

        The search attributes are upserted once for all changes of one loop iteration.
        """
        self.state = state
        if not self._to_upsert:
            self._to_upsert = True
            asyncio.get_running_loop().call_soon(self._upsert)

    def _upsert(self) -> None:
        """Upsert search attributes if the server has them: an unknown attribute would hang the workflow.

        Each upsert is an event, and a billed action: what a task spends is upserted at most once a minute, and whenever
        its phase or its number of requests changes.
        """
        self._to_upsert = False
        totals = self.state.totals
        wanted = _SearchAttributes(
            self.state.phase.value, len(self.state.pending_approvals), totals.spent.tokens, totals.cost_micro_usd
        )
        if not self.start.search_attributes or wanted == self._upserted:
            return
        if wanted[:2] == self._upserted[:2] and workflow.now() - self._upserted_at < SPENDING_INTERVAL:
            return
        self._upserted, self._upserted_at = wanted, workflow.now()
        updates: list[SearchAttributeUpdate[str] | SearchAttributeUpdate[int] | SearchAttributeUpdate[float]] = [
            PHASE.value_set(wanted.phase),
            TOKENS.value_set(wanted.tokens),
            PENDING.value_set(wanted.pending_approvals),
        ]
        if wanted.cost_micro_usd is not None:
            updates.append(COST.value_set(wanted.cost_micro_usd / 1_000_000))
        workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]: its other overload has a bare generic


async def record_audit_entries(runtime: TaskRuntime, *entries: AuditEntry) -> None:
    """Store requests, answers, edits and rejected messages in the audit trail."""
    for batch in _batches(entries):
        request = AuditRequest(task_id=runtime.task_id, entries=batch)
        await workflow.execute_activity_method(
            LedgerActivities.record_audit_entries, request, **with_summary(SHORT, "store the audit trail")
        )


def _batches(entries: Sequence[AuditEntry]) -> Iterator[tuple[AuditEntry, ...]]:
    """Split entries into payloads: one message may answer many requests and repeats its note in each of them."""
    for start in range(0, len(entries), AUDIT_BATCH_SIZE):
        yield tuple(entries[start : start + AUDIT_BATCH_SIZE])


WorkflowT = TypeVar("WorkflowT")
_InputT = TypeVar("_InputT")


async def start_detached_child(
    run: Callable[[WorkflowT, _InputT], Awaitable[object]],
    given: _InputT,
    workflow_id: str,
    summary: str,
    *,
    again: bool = False,
) -> None:
    """Start a child workflow that outlives this one, without waiting for it.

    Args:
        run: Run method of the child's workflow class.
        given: Its input.
        workflow_id: Its ID. A child of the same ID that was started before is left as it is.
        summary: Its summary in the Temporal UI.
        again: Start it even if it ran before, and replace one that is still running.
    """
    once, anew = WorkflowIDReusePolicy.REJECT_DUPLICATE, WorkflowIDReusePolicy.TERMINATE_IF_RUNNING
    with suppress(WorkflowAlreadyStartedError):
        child = await workflow.start_child_workflow(
            run,
            given,
            id=workflow_id,
            id_reuse_policy=anew if again else once,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
            static_summary=summary,
        )
        # Nothing here depends on its outcome; without this, asyncio would log a failure as never retrieved.
        child.add_done_callback(lambda done: done.cancelled() or done.exception())


async def persist_and_notify(
    runtime: TaskRuntime, state: TaskState, event: NotificationEvent, *requests: ApprovalRequest
) -> None:
    """Replace the state, record the requests that it opened or closed in the audit trail, and notify people."""
    runtime.replace_state(state)
    await record_audit_entries(runtime, *requests)
    for request in requests:
        await notify_about_request(runtime, event, request)


async def notify_about_request(runtime: TaskRuntime, event: NotificationEvent, request: ApprovalRequest) -> None:
    """Notify people of an approval request."""
    await _tell(runtime, _notice(runtime, event, runtime.state.phase).replace(request=request))


async def notify_task_ended(runtime: TaskRuntime, phase: TaskPhase, reason: str = "") -> None:
    """Notify people of the task's end, with the reason if it failed."""
    event = NotificationEvent.FAILED if phase is TaskPhase.FAILED else NotificationEvent.FINISHED
    await _tell(runtime, _notice(runtime, event, phase).replace(reason=reason))


def _notice(runtime: TaskRuntime, event: NotificationEvent, phase: TaskPhase) -> TaskNotification:
    return TaskNotification(
        event=event,
        task_id=runtime.start.ref.task_id,
        title=runtime.start.title,
        phase=phase,
        at=workflow.now(),
        spent=runtime.state.totals.spent,
        limit=runtime.state.account.limit,
    )


async def _tell(runtime: TaskRuntime, notice: TaskNotification) -> None:
    """Hand the notification to a child that outlives the task. The same event is never sent twice."""
    if runtime.start.notifications:
        await start_detached_child(NotificationWorkflow.run, notice, notice.delivery_id, notice.summary)
