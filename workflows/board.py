"""A task's state inside its workflow, its display, and who is told: details, search attributes, audit and notices."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

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

from activities.bookkeeping import AuditRequest, LedgerActivities
from waystation.agents.agent_run import AgentRun
from waystation.agents.delegation import TeammateState, list_teammates
from waystation.budgets.budget import BudgetAccount
from waystation.kernel import temporal_names as names
from waystation.kernel.amount import Amount
from waystation.tasks.approvals import Circumstances
from waystation.tasks.continuation import TaskStart
from waystation.tasks.details import details
from waystation.tasks.notices import Event, Notice
from waystation.tasks.progress import bounded, progress_of
from waystation.tasks.reallocation import drawable, lending
from waystation.tasks.signals import is_sealed
from waystation.tasks.state import TaskState
from waystation.tasks.task import Approval, AuditEntry, TaskPhase, TaskProgress
from workflows.notice import NoticeWorkflow
from workflows.options import SHORT, with_summary

SESSION = SearchAttributeKey.for_keyword(names.SESSION_ATTRIBUTE)
PHASE = SearchAttributeKey.for_keyword(names.PHASE_ATTRIBUTE)
TOKENS = SearchAttributeKey.for_int(names.TOKENS_ATTRIBUTE)
COST = SearchAttributeKey.for_float(names.COST_ATTRIBUTE)
PENDING = SearchAttributeKey.for_int(names.PENDING_ATTRIBUTE)


AUDITED_AT_ONCE = 20
"""Entries in one payload. Each has a few kilobytes at most."""


def first_attributes(session: str) -> TypedSearchAttributes:
    """What a task is started with."""
    return TypedSearchAttributes(
        [SearchAttributePair(SESSION, session), SearchAttributePair(PHASE, TaskPhase.SUBMITTED.value)]
    )


class TaskRuntime:
    """Where the parts of a task's workflow read and change its state."""

    def __init__(self, start: TaskStart) -> None:
        self.start = start
        self.state = lending(TaskState(account=BudgetAccount(limit=start.terms.budget)), start.terms)
        self.ready = False
        """The state is there. Until then a message would change a state that is about to be replaced: handlers wait."""
        self.parking = False
        """The workflow wants to continue as new: nothing new is started, and waiting agents come back."""
        self._shown: tuple[str, int, int, int | None] | None = None
        self._to_show = False

    @property
    def stopping(self) -> bool:
        """Whether agents shall come back without going on."""
        return self.parking or self.state.cancelled

    @property
    def progress(self) -> TaskProgress:
        """What people see, in a bounded size."""
        start = self.start
        return bounded(progress_of(self.state, start.ref, start.terms, start.title, start.privacy))

    @property
    def standing(self) -> Circumstances:
        """What an answer is held against."""
        return Circumstances(
            approvals=self.state.approvals,
            limit=self.state.account.limit,
            ceiling=self.start.terms.ceiling,
            ending=self.state.ending,
            editing=self.state.plan_edit is not None,
            revising=self.state.proposed is not None,
            approvers=self.start.approvers,
        )

    def takes(self, sent: tuple[JsonValue, ...]) -> bool:
        """Whether a message may have an effect: where the task was admitted under encryption, if it came so."""
        return not self.start.sealed_answers or is_sealed(sent)

    @property
    def task_id(self) -> str:
        """Of the task, and of its workflow."""
        return self.start.ref.task_id

    @property
    def task_used(self) -> float:
        """The share of the task's budget that is spent."""
        return self.state.used

    def team(self, step_id: str) -> tuple[TeammateState, ...]:
        """Who else works on the task, as this agent is told."""
        return list_teammates(self.progress.steps, step_id)

    def drawable(self, step_id: str) -> Amount:
        """What this agent could draw from its task now."""
        return drawable(self.state, step_id)

    def run(self, step_id: str) -> AgentRun:
        """A step's agent run."""
        return self.state.runs[step_id]

    def keep(self, run: AgentRun) -> None:
        """An agent run as it is from now on, shown at once."""
        self.change(self.state.with_run(run))

    def begin(self, state: TaskState | None) -> None:
        """The task goes on from this state, or begins where there is none; messages take effect from now on."""
        if state is not None:
            self.change(state)
        self.ready = True

    async def wait_until_ready(self) -> None:
        """Return when the state is there."""
        await workflow.wait_condition(lambda: self.ready)

    def change(self, state: TaskState) -> None:
        """Replace the state by one that was made of the present one: no await may lie between.

        What people see follows once for all changes of a moment: with a hundred agents it takes long to put together.
        """
        self.state = state
        if not self._to_show:
            self._to_show = True
            asyncio.get_running_loop().call_soon(self._show)

    def _show(self) -> None:
        self._to_show = False
        workflow.set_current_details(details(self.progress))
        self._upsert()

    def _upsert(self) -> None:
        """Search attributes, where the server has them: upserting an unknown one would hang the workflow."""
        totals = self.state.totals
        shown = (self.state.phase.value, totals.spent.tokens, len(self.state.pending), totals.cost_micro_usd)
        if not self.start.search_attributes or shown == self._shown:
            return
        self._shown = shown
        updates: list[SearchAttributeUpdate[str] | SearchAttributeUpdate[int] | SearchAttributeUpdate[float]] = [
            PHASE.value_set(self.state.phase.value),
            TOKENS.value_set(totals.spent.tokens),
            PENDING.value_set(len(self.state.pending)),
        ]
        if totals.cost_micro_usd is not None:
            updates.append(COST.value_set(totals.cost_micro_usd / 1_000_000))
        workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]: its other overload has a bare generic


async def record(board: TaskRuntime, *entries: AuditEntry) -> None:
    """Keep requests, answers, edits and what was refused in the store's audit trail."""
    for batch in _batches(entries):
        request = AuditRequest(task_id=board.task_id, entries=batch)
        await workflow.execute_activity_method(
            LedgerActivities.audit, request, **with_summary(SHORT, "keep the audit trail")
        )


def _batches(entries: Sequence[AuditEntry]) -> Iterator[tuple[AuditEntry, ...]]:
    """One message may answer many requests, and repeats its note in each of them."""
    for start in range(0, len(entries), AUDITED_AT_ONCE):
        yield tuple(entries[start : start + AUDITED_AT_ONCE])


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
    """Start it and go on. One of the same id that was started before is left as it is; or it is done `again`, in the
    place of one that still runs.
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
        # What becomes of it is its own affair; asyncio would log a failure that nobody looked at as an error.
        child.add_done_callback(lambda done: done.cancelled() or done.exception())


async def persist_and_notify(board: TaskRuntime, state: TaskState, event: Event, *requests: Approval) -> None:
    """The state in which these requests were made or closed; they go into the audit trail, and people are told."""
    board.change(state)
    await record(board, *requests)
    for request in requests:
        await notify_about_request(board, event, request)


async def notify_about_request(board: TaskRuntime, event: Event, request: Approval) -> None:
    """Tell of a request for budget."""
    await _tell(board, _notice(board, event, board.state.phase).replace(request=request))


async def notify_task_ended(board: TaskRuntime, phase: TaskPhase, reason: str = "") -> None:
    """Tell how the task ends, and why where it failed."""
    event = Event.FAILED if phase is TaskPhase.FAILED else Event.FINISHED
    await _tell(board, _notice(board, event, phase).replace(reason=reason))


def _notice(board: TaskRuntime, event: Event, phase: TaskPhase) -> Notice:
    return Notice(
        event=event,
        task_id=board.start.ref.task_id,
        title=board.start.title,
        phase=phase,
        at=workflow.now(),
        spent=board.state.totals.spent,
        limit=board.state.account.limit,
    )


async def _tell(board: TaskRuntime, notice: Notice) -> None:
    """Leave the notice to a child that outlives its task. An event that was told before is not told again."""
    if board.start.notices:
        await start_detached_child(NoticeWorkflow.run, notice, notice.delivery_id, notice.summary)
