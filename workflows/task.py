"""A task's workflow: plan, steps in parallel, people's messages, report.

Pauses hold no worker slot; a long task continues as new between two actions.
"""

import asyncio

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.ledger import MessageActivities, StoreMessageRequest, UpdateDocumentsRequest
from activities.sessions import ForkActivities, RewindActivities
from activities.tasks import EditedPlanRequest, PlanningActivities, PlanRequest
from waystation.agents.delegation import SubagentProgress
from waystation.documents.documents import DocumentsUpdate
from waystation.kernel.amount import Amount
from waystation.kernel.deferred_signals import DeferredSignal, add_deferred_signal
from waystation.planning.plan import PlanEdit
from waystation.tasks import signals
from waystation.tasks.approvals import AnswerBatch, build_rejection
from waystation.tasks.continuation import TaskWorkflowInput
from waystation.tasks.reallocation import with_reallocation_config
from waystation.tasks.reviews import (
    OVERSIGHT_BUDGET_DIVISOR,
    apply_plan_edit_result,
    compute_limit_for_steps,
    reserve_oversight_budget,
)
from waystation.tasks.session import SessionBudgetAnswer
from waystation.tasks.signals import (
    SIGNALS,
    UNENCRYPTED_REASON,
    InputT,
    PendingMessage,
    SignalContext,
    TaskSignal,
    apply_signal,
    parse_signal_input,
    reject_unstored,
    single_payload,
)
from waystation.tasks.state import TaskState, apply_subagent_progress
from waystation.tasks.task import ApprovalRequest, TaskMessage, TaskPhase, TaskProgress
from workflows.agent_runner import AgentRunner
from workflows.approvals import BudgetGate, request_plan_approval, wait_for_plan_approval
from workflows.options import CONTEXT_SHORT, LEG, SHORT, raise_if_cancelled, with_summary
from workflows.stored_state import load_state, store_state
from workflows.task_finalizer import TaskFinalizer, run_plan_revision_if_due, run_report_review_if_due, run_shielded
from workflows.task_runtime import TaskRuntime, record_audit_entries


class RunnerPool:
    """The agent runs that are being driven, each by an asyncio task."""

    def __init__(self, board: TaskRuntime, gate: BudgetGate) -> None:
        self._board, self._gate = board, gate
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
        state = self._board.state
        return [
            step_id for step_id in state.runs if step_id not in state.delivered_agents and step_id not in self._driving
        ]

    def start_pending(self) -> None:
        """Start driving all pending runs."""
        for step_id in self.pending_run_ids:
            runner = AgentRunner(self._board, self._gate, step_id)
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


class SignalHandler:
    """Validates people's messages, applies them to the task's state and stores them.

    A message that refers to something in the store is applied twice: when it arrives, and when the store has it. Any
    JSON is accepted, or none: a malformed message is rejected where the person sees it. Text and documents wake no
    agent; an agent reads them at its next turn.
    """

    def __init__(self, board: TaskRuntime, gate: BudgetGate) -> None:
        self._board, self._gate = board, gate
        self._held: tuple[DeferredSignal, ...] | None = None

    async def handle(self, signal: TaskSignal[InputT], sent: tuple[JsonValue, ...]) -> None:
        """Apply a message, or hold it for the next run if this one is about to continue as new.

        An unencrypted message to a task that requires encryption is rejected.
        """
        await self._board.wait_until_ready()
        message = DeferredSignal(signal=signal.name, sent=single_payload(sent), readable=self._board.accepts(sent))
        if self._held is not None and (held := add_deferred_signal(self._held, message)) is not None:
            self._held = held
        else:
            await self._handle(message)

    def hold_signals(self) -> None:
        """Hold messages for the next run from now on.

        A steady stream of them would otherwise keep this one alive forever.
        """
        self._held = self.held_signals

    @property
    def held_signals(self) -> tuple[DeferredSignal, ...]:
        """Messages that have arrived since `hold_signals`."""
        return self._held or ()

    async def release_signals(self) -> None:
        """Apply the held messages here, and all later ones: there is no next run after all."""
        held, self._held = self.held_signals, None
        await self.handle_held(held)

    async def handle_held(self, held: tuple[DeferredSignal, ...]) -> None:
        """Apply messages that arrived while the previous run stored its state."""
        for message in held:
            await self._handle(message)

    async def _handle(self, message: DeferredSignal) -> None:
        board, now, signal, sent = self._board, workflow.now(), SIGNALS[message.signal], message.sent
        if message.readable:
            answer = signal.evaluate(SignalContext(board.state, board.approval_context, now), sent)
        else:
            answer = build_rejection(signal.name, sent, ValueError(UNENCRYPTED_REASON), now)
        board.replace_state(apply_signal(board.state, answer))
        if isinstance(answer, PendingMessage):
            summary = f"keep message {answer.telling.number} of a person"
            words = StoreMessageRequest(task_id=board.task_id, words=answer)
            kept = await workflow.execute_activity_method(
                MessageActivities.store_message, words, **with_summary(SHORT, summary)
            )
            return await self._kept(signal.name, kept.telling, kept.reason)
        if isinstance(answer, DocumentsUpdate):
            summary = f"update {answer.number} of the documents"
            wanted = UpdateDocumentsRequest(task_id=board.task_id, update=answer)
            done = await workflow.execute_activity_method(
                MessageActivities.update_documents, wanted, **with_summary(SHORT, summary)
            )
            return await self._kept(signal.name, done.update, done.reason)
        if isinstance(answer, PlanEdit):
            return await self._replan(answer)
        answers = answer.each if isinstance(answer, AnswerBatch) else (answer,)
        await record_audit_entries(board, *answers)
        granted = sum((one.granted for one in answers if isinstance(one, ApprovalRequest)), Amount())
        if not granted.is_zero:
            await self._gate.send_grant_to_session(granted)

    async def _replan(self, edit: PlanEdit) -> None:
        """Adopt a person's plan if it can be run."""
        start = self._board.start
        wanted = EditedPlanRequest(ref=start.ref, edit=edit, left=compute_limit_for_steps(self._board.state))
        summary = "read the plan that a person sent"
        made = await workflow.execute_activity_method(
            PlanningActivities.apply_plan_edit, wanted, **with_summary(CONTEXT_SHORT, summary)
        )
        state, answer = apply_plan_edit_result(self._board.state, edit, made, start.terms, workflow.now())
        self._board.replace_state(state)
        await record_audit_entries(self._board, answer)

    async def _kept(self, signal: str, sent: TaskMessage | DocumentsUpdate, reason: str) -> None:
        """Apply the message as the store has it, or reject it with the reason why it was not stored."""
        if not reason:
            self._board.replace_state(apply_signal(self._board.state, sent))
            return
        state, refused = reject_unstored(signal, self._board.state, sent, reason, workflow.now())
        self._board.replace_state(state)
        await record_audit_entries(self._board, refused)


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
            ForkActivities.load_fork_state, start.ref, **with_summary(SHORT, summary)
        )
        state = await load_state(start.ref, taken_over)
        return with_reallocation_config(state, start.terms)
    return None


@workflow.defn(name="Task")
class TaskWorkflow:
    """One question that ends in a report."""

    @workflow.init
    def __init__(self, start: TaskWorkflowInput) -> None:
        self._board = TaskRuntime(start)
        self._gate = BudgetGate(self._board, f"session-{start.ref.session}")
        self._inbox = SignalHandler(self._board, self._gate)
        self._ending = TaskFinalizer(self._board, self._gate)
        self._crew = RunnerPool(self._board, self._gate)

    @workflow.run
    async def run(self, start: TaskWorkflowInput) -> TaskProgress:
        """Work until the report is stored; if cancelled or failed, store what exists."""
        try:
            # Shielded: a cancellation waits for it, because what to report and what was spent is not known before.
            self._board.begin_from_state(await run_shielded(_state_to_go_on_from(start)))
            raise_if_cancelled()
            await self._inbox.handle_held(start.held)
            await self._plan(start)
            raise_if_cancelled()
            if not await wait_for_plan_approval(self._board):
                await self._continue_as_new(start)
            await self._steps(start)
            while await run_report_review_if_due(self._board):
                await self._steps(start)
        except (ActivityError, ApplicationError, asyncio.CancelledError) as error:
            nothing_reopened = start.rewind is not None and start.state is None and not self._board.ready
            self._board.begin_from_state(self._board.state.replace(cancelled=True))
            if nothing_reopened:  # # it keeps its former end; anyone who sent it a message meanwhile learns of that
                await workflow.wait_condition(workflow.all_handlers_finished)
                raise
            await self._crew.stop()
            await self._inbox.release_signals()
            if is_cancelled_exception(error):
                await self._ending.finish(TaskPhase.CANCELLED)
                raise
            await self._ending.fail(error)
        return await run_shielded(self._end())

    @workflow.query(description="How far the task is: phase, steps, budgets, approvals. No text from the work.")
    def progress(self) -> TaskProgress:
        """Return the progress that people see."""
        return self._board.progress

    @workflow.signal(description=signals.APPROVAL.description)
    async def approve_budget(self, *sent: JsonValue) -> None:
        """Approve a budget request. Accepts any JSON, or none, and validates it inside."""
        await self._inbox.handle(signals.APPROVAL, sent)

    @workflow.signal(description=signals.DENIAL.description)
    async def deny_budget(self, *sent: JsonValue) -> None:
        """Deny a budget request. Accepts any JSON, or none, and validates it inside."""
        await self._inbox.handle(signals.DENIAL, sent)

    @workflow.signal(description=signals.PLAN.description)
    async def review_plan(self, *sent: JsonValue) -> None:
        """Review the plan. Accepts any JSON, or none, and validates it inside."""
        await self._inbox.handle(signals.PLAN, sent)

    @workflow.signal(description=signals.EDIT.description)
    async def edit_context(self, *sent: JsonValue) -> None:
        """Edit an agent's context. Accepts any JSON, or none, and validates it inside."""
        await self._inbox.handle(signals.EDIT, sent)

    @workflow.signal(description=signals.MESSAGE.description)
    async def tell(self, *sent: JsonValue) -> None:
        """Send a message to the agents. Accepts any JSON, or none, and validates it inside."""
        await self._inbox.handle(signals.MESSAGE, sent)

    @workflow.signal(description=signals.UPDATE.description)
    async def update_documents(self, *sent: JsonValue) -> None:
        """Update the task's documents. Accepts any JSON, or none, and validates it inside."""
        await self._inbox.handle(signals.UPDATE, sent)

    @workflow.signal(description="The session's answer to an ask of this task. Sent by the session.")
    async def budget_answer(self, *sent: JsonValue) -> None:
        """Apply the session's answer to a budget request."""
        await self._board.wait_until_ready()
        if self._board.accepts(sent) and (answer := parse_signal_input(SessionBudgetAnswer, sent)) is not None:
            self._board.replace_state(self._board.state.after_session_answer(answer))

    @workflow.signal(description="How far a subagent of this task is. Sent by the subagent.")
    async def subagent_news(self, *sent: JsonValue) -> None:
        """Record a subagent's progress, so that its spending counts at once."""
        await self._board.wait_until_ready()
        if self._board.accepts(sent) and (news := parse_signal_input(SubagentProgress, sent)) is not None:
            self._board.replace_state(apply_subagent_progress(self._board.state, news))

    async def _plan(self, start: TaskWorkflowInput) -> None:
        if self._board.state.plan is not None:
            return
        request = PlanRequest(
            ref=start.ref,
            model=start.terms.plan_model,
            limit=start.terms.budget.divide_by(OVERSIGHT_BUDGET_DIVISOR),
            prices=start.terms.agent.prices,
        )
        made = await workflow.execute_activity_method(
            PlanningActivities.create_plan, request, **with_summary(LEG, "plan the work")
        )
        state = reserve_oversight_budget(self._board.state, made.totals, start.terms)
        state = state.with_plan(made.plan, made.totals, made.notes, start.terms.agent_budget)
        if start.terms.review_plan:
            return await request_plan_approval(self._board, state)
        self._board.replace_state(state)

    async def _steps(self, start: TaskWorkflowInput) -> None:
        """Run every step as soon as its inputs are done. Continues as new when the server suggests it."""
        while not (self._board.state.all_steps_delivered or self._board.state.cancelled):
            if not self._board.parking:
                await run_plan_revision_if_due(self._board)
            raise_if_cancelled()
            if not self._board.is_stopping:
                self._start_ready(start)
            await workflow.wait_condition(self._anything_new)
            await self._crew.collect_finished()
            self._board.parking = self._board.parking or workflow.info().is_continue_as_new_suggested()
            if self._board.parking and self._crew.is_empty and not self._board.state.all_steps_delivered:
                await self._continue_as_new(start)

    async def _continue_as_new(self, start: TaskWorkflowInput) -> None:
        """Store the state and continue as new; does not return.

        Messages that arrive meanwhile go to the next run. If something else has changed the state, it is stored again.
        """
        while True:
            await workflow.wait_condition(workflow.all_handlers_finished)
            self._inbox.hold_signals()
            state = self._board.state
            stored = await store_state(start.ref, state)
            if self._board.state is state and workflow.all_handlers_finished():
                workflow.continue_as_new(start.replace(state=stored, held=self._inbox.held_signals))

    def _start_ready(self, start: TaskWorkflowInput) -> None:
        state = self._board.state
        if state.plan is None:
            return
        fresh = (
            ()
            if state.proposed is not None
            else state.plan.list_ready_steps(state.delivered_agents, frozenset(state.runs))
        )
        for step in fresh:
            state = state.start_step(step, start.ref, start.terms)
        if fresh:
            self._board.replace_state(state)
        self._crew.start_pending()

    def _anything_new(self) -> bool:
        wants_parking = workflow.info().is_continue_as_new_suggested() and not self._board.parking
        asked_for = bool(self._crew.pending_run_ids) and not self._board.parking
        return (
            self._crew.has_finished or asked_for or wants_parking or self._board.state.cancelled or self._crew.is_empty
        )

    async def _end(self) -> TaskProgress:
        await self._crew.stop()
        return await self._ending.finish(self._board.state.final_phase)
