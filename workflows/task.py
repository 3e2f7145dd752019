"""A task's workflow: plan, steps in parallel, people's messages, report.

Pauses hold no worker slot; a long task continues as new between two actions.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Protocol, TypeVar

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from waystation.activities.ledger import MessageActivities, StoreMessageRequest, UpdateDocumentsRequest
from waystation.activities.sessions import ForkActivities, RewindActivities
from waystation.activities.tasks import EditedPlanRequest, PlanningActivities, PlanRequest
from waystation.agents.delegation import SubagentProgress
from waystation.agents.task_messages import TaskMessage
from waystation.documents.documents import DocumentsUpdate
from waystation.kernel.amount import Amount
from waystation.kernel.deferred_signals import DeferredSignal, defer_until_next_execution
from waystation.kernel.temporal_names import DEPLOYMENT_CHANGED
from waystation.planning.plan import PlanEdit
from waystation.tasks.approvals import AnswerBatch, build_rejection, get_answer_id, make_answer_id
from waystation.tasks.continuation import TaskWorkflowInput
from waystation.tasks.details import render_task_details
from waystation.tasks.reallocation import with_reallocation_config
from waystation.tasks.reviews import (
    OVERSIGHT_BUDGET_DIVISOR,
    apply_plan_edit_result,
    compute_limit_for_steps,
    reserve_oversight_budget,
)
from waystation.tasks.session import SessionBudgetAnswer
from waystation.tasks.signals import (
    CONTINUES,
    ENDED,
    SIGNALS,
    UNENCRYPTED_REASON,
    DeliveryOrder,
    FoundMessage,
    PendingMessage,
    SignalContext,
    UpdateResult,
    apply_signal,
    build_update_result,
    find_messages,
    parse_signal_input,
    reject_unstored,
    single_payload,
)
from waystation.tasks.state import TaskState, apply_subagent_progress
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskPhase, TaskProgress
from waystation.tasks.view import TaskView
from waystation.workflows.agent_runner import AgentRunner
from waystation.workflows.approvals import BudgetGate, open_plan_approval_request, wait_for_plan_approval
from waystation.workflows.options import (
    CONTEXT_SHORT,
    LEG,
    SHORT,
    UPGRADE,
    Interval,
    is_continue_as_new_due,
    raise_if_cancelled,
    with_summary,
)
from waystation.workflows.stored_state import load_state, store_state
from waystation.workflows.task_finalizer import (
    TaskFinalizer,
    run_plan_revision_if_due,
    run_report_review_if_due,
    run_sentence_judgement_if_due,
    run_shielded,
)
from waystation.workflows.task_runtime import TaskRuntime, record_audit_entries


class RunnerPool:
    """The agent runs that are being driven, each by an asyncio task."""

    def __init__(self, runtime: TaskRuntime, gate: BudgetGate) -> None:
        self._runtime, self._gate = runtime, gate
        self._driving: dict[str, asyncio.Task[None]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no agent run is being driven."""
        return not self._driving

    @property
    def has_finished(self) -> bool:
        """Whether at least one agent run has returned."""
        return any(driven.done() for driven in self._driving.values())

    @property
    def pending_run_ids(self) -> list[str]:
        """Runs that are not being driven: steps that were just started, and subagents that were just requested."""
        state = self._runtime.state
        return [
            step_id for step_id in state.runs if step_id not in state.delivered_agents and step_id not in self._driving
        ]

    def start_pending(self) -> None:
        """Start driving all pending runs."""
        for step_id in self.pending_run_ids:
            runner = AgentRunner(self._runtime, self._gate, step_id)
            self._driving[step_id] = asyncio.create_task(runner.run_agent())

    async def collect_finished(self) -> None:
        """Remove the runs that have returned. Raises the error that ended a run."""
        for step_id in [step_id for step_id, driven in self._driving.items() if driven.done()]:
            await self._driving.pop(step_id)

    async def stop(self) -> None:
        """Stop all runs after a cancellation or a denial."""
        for driven in self._driving.values():
            driven.cancel()
        await asyncio.gather(*self._driving.values(), return_exceptions=True)
        self._driving.clear()


MAX_EDIT_WAIT: Interval = {"timeout": timedelta(minutes=1), "timeout_summary": "answer that an edit waits for a leg"}
"""Maximum time an Update waits for a leg to end before it answers that the edit is waiting."""
MAX_WAITING_UPDATES = 5
"""Maximum number of Updates that wait for a leg to end. The server accepts 10 at a time per workflow."""


class SignalHandler:
    """Validates people's messages, applies them to the task's state and stores them.

    Any JSON, or none, is taken: a malformed message is refused where the person sees it. Messages and
    document updates wake no agent: a waiting agent receives them when it continues. Sent again under its id, a message
    counts once.
    """

    def __init__(self, runtime: TaskRuntime, gate: BudgetGate) -> None:
        self._runtime, self._gate = runtime, gate
        self._deferred_signals: tuple[DeferredSignal, ...] | None = None
        self._leaving = False
        """This run is about to continue as new: no Update waits, or has an effect here."""
        self._waiting = 0
        """How many Updates wait for a leg to end."""

    async def handle(self, name: str, sent: tuple[JsonValue, ...]) -> None:
        """Apply a signal, in the next run if this one is about to continue as new.

        A signal that arrives unencrypted although encryption is required is refused.
        """
        await self._runtime.wait_until_ready()
        message = DeferredSignal(signal=name, argument=single_payload(sent), readable=self._runtime.accepts(sent))
        if (
            self._deferred_signals is not None
            and (held := defer_until_next_execution(self._deferred_signals, message)) is not None
        ):
            self._deferred_signals = held
        else:
            await self._handle(message)

    async def answer(self, name: str, sent: tuple[JsonValue, ...], update_id: str) -> UpdateResult:
        """Apply an Update and return its result. Without an `answer_id` it takes the one of the Update."""
        await self._runtime.wait_until_ready()
        readable, given = self._runtime.accepts(sent), single_payload(sent)
        answer_id = get_answer_id(given) or make_answer_id(update_id)
        if isinstance(given, dict) and not given.get("answer_id"):
            given = {**given, "answer_id": answer_id}
        message = DeferredSignal(signal=name, argument=given, readable=readable)
        if self._leaving:
            # The next run takes and audits it even if it is never sent again; sent again under its id, it is known.
            held = defer_until_next_execution(self.held_signals, message)
            self._deferred_signals = self._deferred_signals if held is None else held
            return CONTINUES
        found = await self._handle(message)
        result = build_update_result(found)
        if result is None or result.outcome == "waiting":
            await self._wait_until_settled(answer_id)
            result = build_update_result(find_messages(self._runtime.state, answer_id))
        if result is None:
            return ENDED if self._runtime.state.phase.over else CONTINUES
        return result.replace(continues=self._leaving and result.outcome == "waiting")

    async def _wait_until_settled(self, answer_id: str) -> None:
        """Wait for the leg that an edit waits for, or for what the first copy of a repeated message waits for."""

        def settled() -> bool:
            result = build_update_result(find_messages(self._runtime.state, answer_id))
            return result is not None and result.outcome != "waiting"

        if self._waiting < MAX_WAITING_UPDATES:
            self._waiting += 1
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._leaving or self._runtime.state.phase.over or settled(), **MAX_EDIT_WAIT
                )
            self._waiting -= 1

    def dismiss_updates(self) -> None:
        """Leave new Updates to the next run, and answer those that wait."""
        self._leaving = True

    def hold_signals(self) -> None:
        """Hold messages for the next run from now on.

        A steady stream of them would otherwise keep this one alive forever.
        """
        self._deferred_signals = self.held_signals

    @property
    def held_signals(self) -> tuple[DeferredSignal, ...]:
        """Messages that have arrived since `hold_signals`."""
        return self._deferred_signals or ()

    async def release_signals(self) -> None:
        """Apply held and later messages here, because there will be no next run."""
        held, self._deferred_signals, self._leaving = self.held_signals, None, False
        await self.handle_held(held)

    async def handle_held(self, deferred_signals: tuple[DeferredSignal, ...]) -> None:
        """Apply messages that arrived while the previous run stored its state."""
        for message in deferred_signals:
            await self._handle(message)

    async def _handle(self, message: DeferredSignal) -> tuple[FoundMessage, ...]:
        """Apply a message and return what the state holds of it."""
        runtime, now, signal, sent = self._runtime, workflow.now(), SIGNALS[message.signal], message.argument
        if not message.readable:
            # Without its id: who has no key must not say what becomes of a message that is to come.
            answer = build_rejection(signal.name, None, ValueError(UNENCRYPTED_REASON), now)
        elif known := find_messages(runtime.state, get_answer_id(sent)):
            return known
        else:
            answer = signal.evaluate(SignalContext(runtime.state, runtime.approval_context, now), sent)
        runtime.replace_state(apply_signal(runtime.state, answer))
        if isinstance(answer, PendingMessage):
            return (await self._store_message(signal.name, answer),)
        if isinstance(answer, DeliveryOrder):
            await record_audit_entries(runtime, *answer.denied)
            return (await self._store_message(signal.name, answer.pending), *answer.denied)
        if isinstance(answer, DocumentsUpdate):
            summary = f"update {answer.number} of the documents"
            wanted = UpdateDocumentsRequest(task_id=runtime.task_id, update=answer)
            done = await workflow.execute_activity_method(
                MessageActivities.update_documents, wanted, **with_summary(SHORT, summary)
            )
            return (await self._kept(signal.name, done.update, done.reason),)
        if isinstance(answer, PlanEdit):
            return (await self._replan(answer),)
        answers = answer.results if isinstance(answer, AnswerBatch) else (answer,)
        await record_audit_entries(runtime, *answers)
        granted = sum((one.granted for one in answers if isinstance(one, ApprovalRequest)), Amount())
        if not granted.is_zero:
            await self._gate.send_grant_to_session(granted)
        return answers

    async def _store_message(self, signal: str, pending: PendingMessage) -> FoundMessage:
        """Store a message to the agents. Return it as stored, or the reason why it was not."""
        summary = f"store message {pending.task_message.number} of a person"
        request = StoreMessageRequest(task_id=self._runtime.task_id, message=pending)
        kept = await workflow.execute_activity_method(
            MessageActivities.store_message, request, **with_summary(SHORT, summary)
        )
        return await self._kept(signal, kept.task_message, kept.reason)

    async def _replan(self, edit: PlanEdit) -> ApprovalRequest | RejectedMessage:
        """Switch the task to the edited plan, if it can be run."""
        start = self._runtime.start
        wanted = EditedPlanRequest(ref=start.ref, edit=edit, left=compute_limit_for_steps(self._runtime.state))
        summary = "read the plan that a person sent"
        made = await workflow.execute_activity_method(
            PlanningActivities.apply_plan_edit, wanted, **with_summary(CONTEXT_SHORT, summary)
        )
        state, answer = apply_plan_edit_result(self._runtime.state, edit, made, start.config, workflow.now())
        self._runtime.replace_state(state)
        await record_audit_entries(self._runtime, answer)
        return answer

    async def _kept(
        self, signal: str, sent: TaskMessage | DocumentsUpdate, reason: str
    ) -> TaskMessage | DocumentsUpdate | RejectedMessage:
        """Return the message as stored, or the reason why it was not."""
        if not reason:
            self._runtime.replace_state(apply_signal(self._runtime.state, sent))
            return sent
        state, refused = reject_unstored(signal, self._runtime.state, sent, reason, workflow.now())
        self._runtime.replace_state(state)
        await record_audit_entries(self._runtime, refused)
        return refused


class MessageReceiver(Protocol):
    """A workflow that takes what people send."""

    signal_handler: SignalHandler


ReceiverT = TypeVar("ReceiverT", bound=MessageReceiver)


def with_task_messages(receiver: type[ReceiverT]) -> type[ReceiverT]:
    """Register every row of the table on the workflow, as a signal and as an Update of the same name."""
    for name, row in SIGNALS.items():
        setattr(receiver, f"{name}_signal", _make_signal_handler(name, row.description))
        setattr(receiver, f"{name}_update", _make_update_handler(name, row.description))
    return receiver


def _make_signal_handler(name: str, description: str) -> object:
    @workflow.signal(name=name, description=description)
    async def handle(self: MessageReceiver, *sent: JsonValue) -> None:
        """Any JSON, or none, is taken and validated inside."""
        await self.signal_handler.handle(name, sent)

    return handle


def _make_update_handler(name: str, description: str) -> object:
    @workflow.update(name=name, description=description)
    async def answer(self: MessageReceiver, *sent: JsonValue) -> UpdateResult:
        """Handle the Update as the signal. No validator: a refused message must be audited, too."""
        update = workflow.current_update_info()
        return await self.signal_handler.answer(name, sent, update.id if update is not None else "")

    return answer


async def _state_to_go_on_from(start: TaskWorkflowInput) -> TaskState | None:
    """Load the state of the previous run, a reopened task or a fork; return None for a new task."""
    if start.state is not None:
        return await load_state(start.ref, start.state)
    if start.rewind is not None:
        summary = f"{start.rewind.agent}: go back to {start.rewind.message}"
        reopened = await workflow.execute_activity_method(
            RewindActivities.reopen_task, start.rewind, **with_summary(CONTEXT_SHORT, summary)
        )
        return await load_state(start.ref, reopened)
    if start.forked:
        summary = "take over finished steps of another task"
        taken_over = await workflow.execute_activity_method(
            ForkActivities.get_fork_state_ref, start.ref, **with_summary(SHORT, summary)
        )
        state = await load_state(start.ref, taken_over)
        return with_reallocation_config(state, start.config)
    return None


@workflow.defn(name="Task")
@with_task_messages
class TaskWorkflow:
    """Runs one task: a question that ends in a report."""

    @workflow.init
    def __init__(self, start: TaskWorkflowInput) -> None:
        self._runtime = TaskRuntime(start)
        self._gate = BudgetGate(self._runtime, f"session-{start.ref.session}")
        self.signal_handler = SignalHandler(self._runtime, self._gate)
        self._finalizer = TaskFinalizer(self._runtime, self._gate)
        self._runners = RunnerPool(self._runtime, self._gate)

    @workflow.run
    async def run(self, start: TaskWorkflowInput) -> TaskProgress:
        """Work until the report is stored; if cancelled or failed, store what exists."""
        try:
            # Shielded: a cancellation waits for it, because what to report and what was spent is not known before.
            self._runtime.begin_from_state(await run_shielded(_state_to_go_on_from(start)))
            raise_if_cancelled()
            await self.signal_handler.handle_held(start.deferred_signals)
            await self._plan(start)
            raise_if_cancelled()
            if not await wait_for_plan_approval(self._runtime):
                await self._continue_as_new(start)
            await self._steps(start)
            while await run_report_review_if_due(self._runtime):
                await self._steps(start)
            await run_sentence_judgement_if_due(self._runtime)
        except (ActivityError, ApplicationError, asyncio.CancelledError) as error:
            nothing_reopened = start.rewind is not None and start.state is None and not self._runtime.ready
            self._runtime.begin_from_state(self._runtime.state.replace(cancelled=True))
            if nothing_reopened:  # it keeps its former end; anyone who sent it a message meanwhile learns of that
                await workflow.wait_condition(workflow.all_handlers_finished)
                raise
            await self._runners.stop()
            await self.signal_handler.release_signals()
            if is_cancelled_exception(error):
                await self._finalizer.finish(TaskPhase.CANCELLED)
                raise
            await self._finalizer.fail(error)
        return await run_shielded(self._end())

    @workflow.query(description="How far the task is: phase, steps, budgets, approvals. No text from the work.")
    def progress(self) -> TaskProgress:
        """Return the progress that people see."""
        return self._runtime.progress

    def render_details(self) -> str:
        """Return what the Temporal UI shows of the task."""
        return render_task_details(TaskView.from_progress(self._runtime.progress))

    @workflow.query(description="Only the phase. Clients ask for it before they send a message.")
    def phase(self) -> TaskPhase:
        """Return the phase."""
        return self._runtime.state.phase

    @workflow.signal(description="The session's answer to a budget request of this task. Sent by the session.")
    async def budget_answer(self, *sent: JsonValue) -> None:
        """Apply the session's answer to a budget request."""
        await self._runtime.wait_until_ready()
        if self._runtime.accepts(sent) and (answer := parse_signal_input(SessionBudgetAnswer, sent)) is not None:
            self._runtime.replace_state(self._runtime.state.after_session_answer(answer))

    @workflow.signal(description="How far a subagent of this task is. Sent by the subagent.")
    async def subagent_news(self, *sent: JsonValue) -> None:
        """Record a subagent's progress, so that its spending counts at once."""
        await self._runtime.wait_until_ready()
        if self._runtime.accepts(sent) and (news := parse_signal_input(SubagentProgress, sent)) is not None:
            self._runtime.replace_state(apply_subagent_progress(self._runtime.state, news))

    @workflow.signal(
        name=DEPLOYMENT_CHANGED, description="Another build has become the current one. Sent by `waystation deploy`."
    )
    def receive_deployment_change(self, *_: JsonValue) -> None:
        """Wake the workflow, which sees by itself which build is current. The input is ignored."""

    async def _plan(self, start: TaskWorkflowInput) -> None:
        if self._runtime.state.plan is not None:
            return
        request = PlanRequest(
            ref=start.ref,
            model=start.config.plan_model,
            effort=start.config.plan_effort,
            limit=start.config.budget.divide_by(OVERSIGHT_BUDGET_DIVISOR),
            prices=start.config.default.prices,
        )
        made = await workflow.execute_activity_method(
            PlanningActivities.create_plan, request, **with_summary(LEG, "plan the work")
        )
        state = reserve_oversight_budget(self._runtime.state, made.totals, start.config)
        state = state.with_plan(made.plan, made.totals, made.notes, start.config.agent_budget)
        if start.config.review_plan:
            return await open_plan_approval_request(self._runtime, state)
        self._runtime.replace_state(state)

    async def _steps(self, start: TaskWorkflowInput) -> None:
        """Run every step as soon as its inputs are done. Continues as new when it is due."""
        while not (self._runtime.state.all_steps_delivered or self._runtime.state.cancelled):
            if not self._runtime.continue_as_new_pending:
                await run_plan_revision_if_due(self._runtime)
            raise_if_cancelled()
            if not self._runtime.is_stopping:
                self._start_ready(start)
            await workflow.wait_condition(self._anything_new)
            await self._runners.collect_finished()
            runtime = self._runtime
            runtime.continue_as_new_pending = runtime.continue_as_new_pending or is_continue_as_new_due()
            if runtime.continue_as_new_pending and self._runners.is_empty and not runtime.state.all_steps_delivered:
                await self._continue_as_new(start)

    async def _continue_as_new(self, start: TaskWorkflowInput) -> None:
        """Store the state and continue as new; does not return.

        Messages that arrive meanwhile go to the next run. If something else has changed the state, it is stored again.
        """
        self.signal_handler.dismiss_updates()
        while True:
            await workflow.wait_condition(workflow.all_handlers_finished)
            self.signal_handler.hold_signals()
            state = self._runtime.state
            stored = await store_state(start.ref, state)
            if self._runtime.state is state and workflow.all_handlers_finished():
                following = start.replace(state=stored, deferred_signals=self.signal_handler.held_signals)
                workflow.continue_as_new(following, initial_versioning_behavior=UPGRADE)

    def _start_ready(self, start: TaskWorkflowInput) -> None:
        state = self._runtime.state
        if state.plan is None:
            return
        fresh = (
            ()
            if state.proposed_revision is not None
            else state.plan.list_ready_steps(state.delivered_agents, frozenset(state.runs))
        )
        for step in fresh:
            state = state.start_step(step, start.ref, start.config)
        if fresh:
            self._runtime.replace_state(state)
        self._runners.start_pending()

    def _anything_new(self) -> bool:
        wants_parking = is_continue_as_new_due() and not self._runtime.continue_as_new_pending
        asked_for = bool(self._runners.pending_run_ids) and not self._runtime.continue_as_new_pending
        return (
            self._runners.has_finished
            or asked_for
            or wants_parking
            or self._runtime.state.cancelled
            or self._runners.is_empty
        )

    async def _end(self) -> TaskProgress:
        await self._runners.stop()
        return await self._finalizer.finish(self._runtime.state.final_phase)
