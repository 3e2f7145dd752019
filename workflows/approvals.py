"""How agents wait for budget and for people's decisions, including deadlines and what happens when they pass.

Budget comes from the parent, the task or the session first, and only then from a person.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from waystation.activities.sessions import SessionActivities, SessionSignal
from waystation.budgets.budget import BudgetMode
from waystation.kernel.amount import Amount, format_amount
from waystation.kernel.temporal_names import ASK_BUDGET, TASK_FINISHED, TASK_GRANTED
from waystation.kernel.value import Value
from waystation.planning.plan import PLANNING_ID, RevisionResult
from waystation.tasks.approvals import grant_in_advance
from waystation.tasks.notifications import NotificationEvent
from waystation.tasks.reallocation import (
    FREED_BUDGET_NOTE,
    RESET_NOTE,
    draw_budget,
    draw_freed_budget,
    get_reset_time,
    should_wait_for_release,
    withdraw_budget_requests,
)
from waystation.tasks.reviews import build_plan_approval_request, is_plan_approved, propose_revision
from waystation.tasks.session import ApprovedTaskGrant, SessionBudgetRequest, TaskSettlement
from waystation.tasks.state import (
    TaskState,
    apply_action_decision,
    build_action_requests,
    expire_obsolete_requests,
    merge_unique,
)
from waystation.tasks.task import ApprovalRequest
from waystation.workflows.options import SESSION_ANSWER, SHORT, is_continue_as_new_due, with_summary
from waystation.workflows.task_runtime import (
    TaskRuntime,
    notify_about_request,
    persist_and_notify,
    record_audit_entries,
)


def _never() -> bool:
    return False


async def wait_for_answer(runtime: TaskRuntime, step_id: str, settled: Callable[[], bool] = _never) -> None:
    """Wait until the agent's requests are closed or no longer hold it back.

    Returns when a person has answered, the deadline has passed, the workflow stops its agents, an edit of the agent's
    context must be applied first, or `settled` returns true. All open requests of an agent are made at the same moment
    and share one deadline.
    """
    request = next(iter(_requests(runtime, step_id)), None)
    deadline = None if request is None or _is_overdue(runtime, request) else request.answer_by
    left = None if deadline is None else max(deadline - workflow.now(), timedelta())
    try:
        await workflow.wait_condition(
            lambda: settled() or _is_over(runtime, step_id), timeout=left, timeout_summary="deadline"
        )
    except TimeoutError:
        if not await _expire(runtime, step_id):
            await workflow.wait_condition(lambda: settled() or _is_over(runtime, step_id))


def _requests(runtime: TaskRuntime, step_id: str) -> tuple[ApprovalRequest, ...]:
    return tuple(asked for asked in runtime.state.pending_approvals if asked.agent == step_id)


def _is_over(runtime: TaskRuntime, step_id: str) -> bool:
    if step_id == PLANNING_ID:
        return runtime.is_stopping or not _requests(runtime, step_id)
    run = runtime.get_run(step_id)
    return run.phase not in {"spent", "asking"} or run.next_edit is not None or runtime.is_stopping


async def _expire(runtime: TaskRuntime, step_id: str) -> bool:
    """Handle a passed deadline. Return False if the requests stay open."""
    now, state, requests = workflow.now(), runtime.state, _requests(runtime, step_id)
    if not requests:  # answered at the same moment
        return True
    if runtime.start.config.unattended.at_deadline == "wait":
        runtime.replace_state(state.replace(notes=merge_unique(state.notes, tuple(map(_overdue, requests)))))
        for request in requests:
            await notify_about_request(runtime, NotificationEvent.OVERDUE, request)
        return False
    for request in requests:
        state = _expired(state, request, now)
    runtime.replace_state(state)
    await record_audit_entries(runtime, *(_closed(request, now) for request in requests))
    for request in requests:
        await notify_about_request(runtime, NotificationEvent.EXPIRED, request)
    return True


def _expired(state: TaskState, request: ApprovalRequest, now: datetime) -> TaskState:
    if request.about_plan:
        return state.after_answer(_closed(request, now)).replace(cancelled=state.proposed_revision is None)
    if request.action is None:
        return state.after_expiry(request, now)
    return apply_action_decision(state.after_answer(_closed(request, now)), _closed(request, now))


def _closed(request: ApprovalRequest, now: datetime) -> ApprovalRequest:
    return request.replace(decision="expired", answered_at=now)


def _is_overdue(runtime: TaskRuntime, request: ApprovalRequest) -> bool:
    """Return whether people were already notified that the request is overdue."""
    return _overdue(request) in runtime.state.notes


def _overdue(request: ApprovalRequest) -> str:
    return f"{request.request_id} is overdue: it was not answered by its deadline and still waits."


async def wait_for_budget(runtime: TaskRuntime, step_id: str) -> None:
    """Wait as `wait_for_answer` does, until budget is released, or until the account of the agent's provider is reset,
    if the task goes on by itself then. Open requests are then withdrawn.
    """
    reset = _find_own_reset(runtime, step_id)
    if reset is None:
        await wait_for_answer(runtime, step_id, lambda: draw_freed_budget(runtime.state, step_id) is not None)
        state, note = draw_freed_budget(runtime.state, step_id), FREED_BUDGET_NOTE
    else:
        said = f"{step_id} waits until {reset:%Y-%m-%d %H:%M} UTC: {runtime.get_run(step_id).halt_reason}"
        runtime.replace_state(runtime.state.replace(notes=merge_unique(runtime.state.notes, (said,))))
        is_reset = await _is_reset(runtime, step_id, reset)
        state, note = runtime.state.after_grant(step_id, Amount()) if is_reset else None, RESET_NOTE
    if state is None:
        return
    requests = withdraw_budget_requests(state, step_id, workflow.now(), note)
    for request in requests:
        state = state.after_answer(request)
    await persist_and_notify(runtime, state, NotificationEvent.WITHDRAWN, *requests)


def _find_own_reset(runtime: TaskRuntime, step_id: str) -> datetime | None:
    """Return when a halted agent goes on by itself; None if it does not."""
    return get_reset_time(runtime.state, step_id) if runtime.start.config.resume_at_reset else None


async def _is_reset(runtime: TaskRuntime, step_id: str, reset: datetime) -> bool:
    """Wait as `wait_for_answer` does, or until a time by a durable timer. Return whether the time has come first."""
    left = max(reset - workflow.now(), timedelta())
    timer = asyncio.create_task(workflow.sleep(left, summary=f"{step_id}: its provider's account is reset"))
    try:
        await wait_for_answer(runtime, step_id, lambda: timer.done() or runtime.state.delivery_requested)
        return timer.done() and not _is_over(runtime, step_id)
    finally:
        timer.cancel()


async def open_plan_approval_request(runtime: TaskRuntime, planned: TaskState) -> None:
    """Ask a person to approve a new plan before any of its steps starts."""
    now = workflow.now()
    request = build_plan_approval_request(planned, now, runtime.start.config.unattended.compute_deadline(now))
    await persist_and_notify(runtime, planned.with_approval_request(request), NotificationEvent.ASKED, request)


async def request_revision_approval(runtime: TaskRuntime, revision: RevisionResult) -> bool | None:
    """Return whether the task adopts a revised plan. If the revision may be expensive, a person decides.

    Returns:
        None if the task has ended, or if the workflow is about to continue as new and the request is still open.
    """
    if runtime.state.proposed_revision is None:
        now, terms = workflow.now(), runtime.start.config
        asking = propose_revision(runtime.state, revision, terms, now, terms.unattended.compute_deadline(now))
        if asking is None:
            return True
        await persist_and_notify(runtime, asking[0], NotificationEvent.ASKED, asking[1])
    if not await wait_for_plan_approval(runtime) or runtime.state.cancelled:
        return None
    return is_plan_approved(runtime.state)


async def wait_for_plan_approval(runtime: TaskRuntime) -> bool:
    """Wait until the plan request is closed.

    Returns:
        False if the workflow is about to continue as new and the request is still open.
    """
    if _requests(runtime, PLANNING_ID):
        await wait_for_answer(runtime, PLANNING_ID, is_continue_as_new_due)
    return not _requests(runtime, PLANNING_ID)


class BudgetGate:
    """Gate at which the agents of one task wait for more budget."""

    def __init__(self, runtime: TaskRuntime, session_workflow_id: str) -> None:
        self._runtime, self._session_id = runtime, session_workflow_id

    async def wait(self, step_id: str) -> None:
        """Wait until the agent has more budget, must deliver what it has, must apply an edit first, or is stopped.

        Budget that is released while a person is being asked also ends the wait. No activity runs meanwhile, so a pause
        holds no worker slot; an open request stays open across continue-as-new.
        """
        if not self._is_asked(step_id):
            if not self._runtime.get_run(step_id).halt_reason and await self._has_more(step_id):
                return
            await self._ask_person(step_id)
        await wait_for_budget(self._runtime, step_id)

    async def _has_more(self, step_id: str) -> bool:
        """Return whether the wait is over without asking a person.

        Budget comes from the task or its session, in mode `hard` from neither. Also true if the agent has ended or is
        stopped.
        """
        if self._mode is BudgetMode.HARD:
            self._stop(step_id)
            return True
        if self._drawn(step_id) or await self._was_handed_back(step_id):
            return True
        await self._ask_session(step_id)
        if self._runtime.is_stopping or self._drawn(step_id):
            return True
        return should_wait_for_release(self._runtime.state, step_id)

    async def _was_handed_back(self, step_id: str) -> bool:
        """Wait for working agents while they may still release enough.

        Return whether the agent got it or is stopped.
        """
        runtime = self._runtime

        def settled() -> bool:
            return draw_budget(runtime.state, step_id) is not None or not should_wait_for_release(
                runtime.state, step_id
            )

        if should_wait_for_release(runtime.state, step_id):
            await workflow.wait_condition(lambda: _is_over(runtime, step_id) or settled())
            return _is_over(runtime, step_id) or self._drawn(step_id)
        return False

    async def send_grant_to_session(self, amount: Amount) -> None:
        """Raise the session's limit by a person's grant, which is new budget."""
        await self._signal_session(
            TASK_GRANTED, ApprovedTaskGrant(task_id=self._runtime.start.ref.task_id, amount=amount)
        )

    async def send_settlement_to_session(self) -> None:
        """Report what the task spent, so that the session releases the rest of the reservation."""
        spent = self._runtime.state.totals.spent
        await self._signal_session(TASK_FINISHED, TaskSettlement(task_id=self._runtime.start.ref.task_id, spent=spent))

    def _is_asked(self, step_id: str) -> bool:
        return any(approval.agent == step_id for approval in self._runtime.state.pending_approvals)

    def _drawn(self, step_id: str) -> bool:
        helped = draw_budget(self._runtime.state, step_id)
        if helped is None:
            return False
        self._runtime.replace_state(helped)
        return True

    async def _ask_session(self, step_id: str) -> None:
        state, run = self._runtime.state, self._runtime.get_run(step_id)
        ask_id = f"{step_id}-{state.session_requests + 1}"
        self._runtime.replace_state(state.replace(session_requests=state.session_requests + 1))
        task_id = self._runtime.start.ref.task_id
        ask = SessionBudgetRequest(task_id=task_id, request_id=f"{task_id}/{ask_id}", amount=run.top_up_amount)
        if not await self._signal_session(ASK_BUDGET, ask):
            return
        try:
            await workflow.wait_condition(
                lambda: ask.request_id in self._runtime.state.answered_session_requests,
                timeout=SESSION_ANSWER,
                timeout_summary="the session answers",
            )
        except TimeoutError:
            workflow.logger.warning("the session did not answer a budget request; a late answer still counts")

    async def _ask_person(self, step_id: str) -> None:
        if self._mode is not BudgetMode.APPROVAL or self._runtime.state.delivery_requested:
            if _find_own_reset(self._runtime, step_id) is None or self._runtime.state.delivery_requested:
                self._stop(step_id)
            return  # no one is asked: a halted agent goes on by itself
        runtime, terms, now = self._runtime, self._runtime.start.config, workflow.now()
        request = runtime.state.build_budget_request(
            step_id, now, terms.unattended.compute_deadline(now), terms.ceiling
        )
        granted = grant_in_advance(runtime.approval_context, request, terms.unattended.top_up, now)
        if granted is not None:
            runtime.replace_state(runtime.state.with_approval_request(granted).after_grant(step_id, granted.granted))
            await record_audit_entries(runtime, granted)
            await self.send_grant_to_session(granted.granted)
            return
        await persist_and_notify(
            runtime, runtime.state.with_approval_request(request), NotificationEvent.ASKED, request
        )

    def _stop(self, step_id: str) -> None:
        """Make the agent deliver what it has, without asking anyone."""
        run = self._runtime.get_run(step_id)
        short = f"its next call may cost {format_amount(run.needed)} more than it has left"
        delivering = self._runtime.state.delivery_requested
        why = "a person asked the task to deliver what it has" if delivering else f"the mode is {self._mode}"
        reason = run.halt_reason or f"{short}, and {why}"
        self._runtime.replace_state(self._runtime.state.with_run(run.finish_partial(reason)))

    @property
    def _mode(self) -> BudgetMode:
        return self._runtime.start.config.mode

    async def _signal_session(self, name: str, message: Value) -> bool:
        """Signal the session. A signal that raises or requests budget restarts a session that is gone.

        Returns:
            False if the session is gone and does not need the signal.
        """
        session = workflow.get_external_workflow_handle(self._session_id)
        try:
            await session.signal(name, message)
        except ApplicationError:
            if name == TASK_FINISHED:
                # The session's next execution finds out by itself; a session that was made for this task has ended for
                # good.
                workflow.logger.warning("the session of this task is gone")
                return False
            signal = SessionSignal(ref=self._runtime.start.ref, name=name, message=message.model_dump(mode="json"))
            summary = f"start the session, which is gone, for {name}"
            await workflow.execute_activity_method(
                SessionActivities.signal_session, signal, **with_summary(SHORT, summary)
            )
        return True


DELIVERING_NOTE = "the task delivers what it has"


async def wait_for_action_approval(runtime: TaskRuntime, step_id: str) -> None:
    """Wait until each of the agent's tool calls is decided on, an edit must be applied first, or the agent is stopped.

    No activity runs meanwhile; open requests stay open across continue-as-new.
    """
    now, state = workflow.now(), runtime.state
    requests = build_action_requests(state, step_id, now, runtime.start.config.unattended.compute_deadline(now))
    if requests and state.delivery_requested:
        denied = [request.replace(decision="denied", note=DELIVERING_NOTE, answered_at=now) for request in requests]
        for request in denied:
            state = apply_action_decision(state.with_approval_request(request), request)
        runtime.replace_state(state)
        await record_audit_entries(runtime, *denied)
    elif requests:
        for request in requests:
            state = state.with_approval_request(request)
        await persist_and_notify(runtime, state, NotificationEvent.ASKED, *requests)
    await wait_for_answer(runtime, step_id)


async def close_obsolete_requests(runtime: TaskRuntime, step_id: str) -> None:
    """Close the requests for tool calls that an edit removed."""
    requests = expire_obsolete_requests(runtime.state, step_id, workflow.now())
    if not requests:
        return
    state = runtime.state
    for request in requests:
        state = state.after_answer(request)
    runtime.replace_state(state)
    await record_audit_entries(runtime, *requests)
