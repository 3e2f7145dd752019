"""A session: admits tasks, holds their shared budget, and lives while it has work.

An activity admits a task, which then runs as a child that outlives every execution of its session. The account (limit,
spent, reserved) is saved in the store before anything that depends on it leaves the workflow. A new execution can
therefore continue from there, even after a termination.
"""

import asyncio
from typing import NoReturn

from pydantic import BaseModel, JsonValue, ValidationError
from temporalio import workflow
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError

from waystation.activities.sessions import ReconcileRequest, SessionActivities
from waystation.activities.tasks import PlanningActivities
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.deferred_signals import DeferredSignal, defer_until_next_execution
from waystation.kernel.errors import BadInput, InsufficientBudgetError
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import (
    ADMISSION_ANSWER,
    ADMIT_TASK,
    ASK_BUDGET,
    BUDGET_ANSWER,
    SCHEDULED_TASK_PRIORITY,
    SESSION_CONTINUES,
    SESSION_WORKFLOW,
    TASK_PRIORITY,
)
from waystation.security.untrusted import neutralize_markdown
from waystation.tasks import session
from waystation.tasks.continuation import TaskRewind, TaskWorkflowInput
from waystation.tasks.session import (
    AdmissionAnswer,
    AdmissionRequest,
    AdmissionResult,
    ApprovedTaskGrant,
    SaveSessionRequest,
    SessionBudgetRequest,
    SessionState,
    SessionWorkflowInput,
    StoredSession,
    SubmissionResult,
    TaskSettlement,
)
from waystation.tasks.signals import UNENCRYPTED_REASON, parse_signal_input, single_payload, was_encrypted
from waystation.workflows.options import ACCOUNT, ADMISSION, RECONCILE, RECONCILIATION, with_summary
from waystation.workflows.task import TaskWorkflow
from waystation.workflows.task_runtime import build_initial_search_attributes

CONTINUES = "the session continues as new: send it again"
TASKS_PER_RECONCILIATION = 50
"""Open tasks above this number are split over several activities, one after the other."""


async def find_ended_tasks(*task_ids: str) -> tuple[TaskSettlement, ...]:
    """Return those of the tasks that no longer run, with what they spent."""
    found = await workflow.execute_activity_method(
        SessionActivities.reconcile_tasks,
        ReconcileRequest(task_ids=task_ids),
        **with_summary(RECONCILIATION, "check open tasks"),
    )
    return found.settled


@workflow.defn(name=SESSION_WORKFLOW)
class SessionWorkflow:
    """A group of tasks. The tasks are child workflows, which outlive the session's continue-as-new and signal the
    session by its ID.
    """

    @workflow.init
    def __init__(self, start: SessionWorkflowInput) -> None:
        self._key, self._single = start.key, start.single_task
        self._state, self._epoch, self._version = start.state, start.epoch, start.version
        self._saved = start.saved_version
        self._starting: set[str] = set()
        self._deferred_signals: tuple[DeferredSignal, ...] = ()
        self._idle = False
        """Whether `run` is waiting for something to happen."""
        self._ready = self._used = bool(start.epoch)

    @workflow.run
    async def run(self, start: SessionWorkflowInput) -> None:
        """Reconcile open tasks now and then.

        Continues as new when the server suggests it. A session that was made for one task ends when none is open.
        """
        if not self._loaded:
            await self._load()
        saving = asyncio.create_task(self._save_changes())
        if self._state.open_tasks:
            await self._reconcile()
        self._ready = True
        await asyncio.gather(*map(self._handle, start.deferred_signals))
        while not self._is_over():
            if await self._quiet():
                await self._reconcile()
            if self._is_long():
                await self._continue_as_new(start)
            if self._is_over():
                # A task that arrives meanwhile keeps the session alive.
                await workflow.wait_condition(self._is_settled)
        saving.cancel()

    async def _continue_as_new(self, start: SessionWorkflowInput) -> NoReturn:
        # A steady stream of messages must not keep this execution alive: updates are rejected, and signals that need an
        # activity are held for the next execution, which also saves unsaved changes.
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(
            start.replace(
                state=self._state,
                epoch=self._epoch,
                version=self._version,
                saved_version=self._saved,
                deferred_signals=self._deferred_signals,
            )
        )

    @workflow.update(
        name="submit_task", description="Accept a task and start it. Sending the same task again has no further effect."
    )
    async def submit(self, *sent: JsonValue) -> SubmissionResult:
        """Admit and start a task.

        Raises:
            ApplicationError: The task is unknown, belongs to another store, or does not fit the budget.
        """
        await self._until_ready()
        self._require_sealed(sent)
        return await self._admitted(TaskRef.model_validate(single_payload(sent)))

    @submit.validator
    def validate_submission(self, *sent: JsonValue) -> None:
        """Validate the input. Raising here rejects the update; raising in the handler would hang the workflow."""
        self._require(TaskRef, sent)

    @workflow.update(name="rewind_task", description="Continue a finished task from a message of one of its agents.")
    async def rewind(self, *sent: JsonValue) -> SubmissionResult:
        """Continue a finished task from an earlier message. A running task is left as it is.

        Raises:
            ApplicationError: As in `submit`.
        """
        await self._until_ready()
        self._require_sealed(sent)
        rewind = TaskRewind.model_validate(single_payload(sent))
        return await self._admitted(rewind.ref, rewind)

    @rewind.validator
    def validate_rewind(self, *sent: JsonValue) -> None:
        """Validate as `validate_submission` does."""
        self._require(TaskRewind, sent)

    @workflow.signal(description="A scheduled run asks to have its task admitted. Sent by its workflow.")
    async def admit_task(self, *sent: JsonValue) -> None:
        """Admit a task as `submit` does, for a sender that is a workflow.

        An activity that waited for the answer would hold a slot that the admission itself may need.
        """
        await self._handle_or_hold(ADMIT_TASK, sent)

    async def _answer_request(self, sent: JsonValue) -> None:
        request = parse_signal_input(AdmissionRequest, (sent,))
        if request is None:
            return
        try:
            admitted = await self._admitted(request.ref, scheduled_run=request.reply_to)
            answer = AdmissionAnswer(admission=admitted)
        except (ApplicationError, ActivityError) as refused:
            kind = refused.type if isinstance(refused, ApplicationError) else None
            answer = AdmissionAnswer(error=kind or type(refused).__name__, reason=refused.message)
        try:
            await workflow.get_external_workflow_handle(request.reply_to).signal(ADMISSION_ANSWER, answer)
        except ApplicationError:
            workflow.logger.warning("the workflow that asked for an admission is gone")

    @workflow.signal(
        description='Set the limit of all tasks together: {"tokens": 2000000, "usd": 50}; null removes a limit.'
    )
    async def set_session_limit(self, *sent: JsonValue) -> None:
        """Set the limit.

        Accepts any JSON, or none, and validates it here; a malformed limit is logged and changes nothing.
        """
        await self._until_ready()
        if not self._takes(sent):
            return
        try:
            self._change(session.with_limit(self._state, single_payload(sent)))
        except ValidationError as error:
            workflow.logger.warning("a session limit was refused: %d faults", error.error_count())

    @workflow.signal(description="A task asks for more than its budget. Sent by tasks.")
    async def ask_budget(self, *sent: JsonValue) -> None:
        """Answer a budget request at once, and only once.

        The next execution answers if this one is about to continue as new.
        """
        await self._handle_or_hold(ASK_BUDGET, sent)

    async def _answer_ask(self, sent: JsonValue) -> None:
        ask = parse_signal_input(SessionBudgetRequest, (sent,))
        if ask is None:
            return
        state, answer = session.answer_budget_request(self._state, ask)
        if answer is None:
            return
        if not await self._change_and_save(state):
            return
        try:
            await workflow.get_external_workflow_handle(ask.task_id).signal(BUDGET_ANSWER, answer)
        except ApplicationError:
            workflow.logger.warning("the task that asked for budget is gone")

    @workflow.signal(description="A person granted a task more budget. Sent by tasks.")
    async def task_granted(self, *sent: JsonValue) -> None:
        """Raise the session's limit by the amount granted."""
        await self._until_ready()
        raised = parse_signal_input(ApprovedTaskGrant, sent) if self._takes(sent) else None
        if raised is not None:
            self._change(session.apply_task_grant(self._state, raised))

    @workflow.signal(description="A task has ended. Sent by tasks.")
    async def task_finished(self, *sent: JsonValue) -> None:
        """Release the task's reservation."""
        await self._until_ready()
        settlement = parse_signal_input(TaskSettlement, sent) if self._takes(sent) else None
        if settlement is not None:
            self._change(session.settle_task(self._state, settlement))

    async def _handle_or_hold(self, signal: str, sent: tuple[JsonValue, ...]) -> None:
        await self._until_ready()
        if not self._takes(sent):
            return
        message = DeferredSignal(signal=signal, argument=single_payload(sent), readable=True)
        if self._is_long() and (held := defer_until_next_execution(self._deferred_signals, message)) is not None:
            self._deferred_signals = held
        else:
            await self._handle(message)

    async def _handle(self, message: DeferredSignal) -> None:
        if message.signal == ASK_BUDGET:
            await self._answer_ask(message.argument)
        else:
            await self._answer_request(message.argument)

    def render_details(self) -> str:
        """Return what the Temporal UI shows of the session."""
        return session.render_session_details(self._state)

    @workflow.query(description="The session's account: limit, spent, and what is reserved for each open task.")
    def account(self) -> BudgetAccount:
        """Return the account, in tokens."""
        return self._state.account

    async def _admitted(
        self, ref: TaskRef, rewind: TaskRewind | None = None, scheduled_run: str = ""
    ) -> SubmissionResult:
        """Admit and start a task; concurrent submissions of the same task run one after the other."""
        while ref.task_id in self._starting:
            await workflow.wait_condition(lambda: ref.task_id not in self._starting)
        if ref.task_id in self._state.open_tasks:
            return SubmissionResult(task_id=ref.task_id, state="running")
        self._starting.add(ref.task_id)
        try:
            return await self._start(await run_admission(ref), rewind, scheduled_run)
        except ApplicationError as refused:
            if rewind is None and refused.type != SESSION_CONTINUES:
                # Store the refusal before anyone learns of it, so that it stands whatever ends in between.
                await record_task_refusal(ref, refused.message)
            raise
        finally:
            self._starting.discard(ref.task_id)
            self._used = True

    async def _start(
        self, admitted: AdmissionResult, rewind: TaskRewind | None, scheduled_run: str
    ) -> SubmissionResult:
        task_id = admitted.ref.task_id
        if admitted.finished != (rewind is not None):
            return SubmissionResult(task_id=task_id, state="finished" if admitted.finished else "running")
        try:
            taken_up = session.admit_or_reopen_task(self._state, admitted)
        except InsufficientBudgetError as error:
            words = session.format_insufficient_budget(self._state.account, error.asked, again=rewind is not None)
            raise ApplicationError(words, type=BadInput.__name__, non_retryable=True) from error
        except BadInput as error:
            raise ApplicationError(str(error), type=BadInput.__name__, non_retryable=True) from error
        if not await self._change_and_save(taken_up):
            raise ApplicationError(CONTINUES, type=SESSION_CONTINUES, non_retryable=True)
        if await start_task(admitted, rewind, scheduled_run):
            return SubmissionResult(task_id=task_id, state="started")
        # The task has run since an earlier execution of this session, or it was terminated and holds nothing.
        if not await find_ended_tasks(task_id):
            return SubmissionResult(task_id=task_id, state="running")
        self._change(session.release_unstarted_task(self._state, task_id))
        return SubmissionResult(task_id=task_id, state="finished")

    async def _quiet(self) -> bool:
        """Return True after an interval in which tasks stayed open, False if none is open or the history is long."""
        self._idle = True
        try:
            await workflow.wait_condition(lambda: bool(self._state.open_tasks) or self._is_long() or self._is_over())
            await workflow.wait_condition(lambda: not self._state.open_tasks or self._is_long(), **RECONCILE)
        except TimeoutError:
            return True
        finally:
            self._idle = False
        return False

    async def _reconcile(self) -> None:
        """Settle tasks that ended silently: a terminated task sends no signal, and its reservation would be lost."""
        started = [task_id for task_id in self._state.open_tasks if task_id not in self._starting]
        for first in range(0, len(started), TASKS_PER_RECONCILIATION):
            for settlement in await find_ended_tasks(*started[first : first + TASKS_PER_RECONCILIATION]):
                self._change(session.settle_task(self._state, settlement))

    async def _load(self) -> None:
        """Load the stored account and take the session over. Messages wait until then."""
        stored = await workflow.execute_activity_method(
            SessionActivities.take_over_session, self._key, **with_summary(ACCOUNT, "read the session's account")
        )
        sealed = self._state.requires_encrypted_messages or stored.state.requires_encrypted_messages
        self._state = stored.state.replace(requires_encrypted_messages=sealed)
        self._epoch, self._version, self._saved = stored.epoch, stored.version, stored.version

    async def _save_changes(self) -> None:
        """Save the newest state whenever there is one; changes that arrive meanwhile are saved together."""
        while True:
            await workflow.wait_condition(lambda: self._saved < self._version)
            version = self._version
            stored = StoredSession(epoch=self._epoch, version=version, state=self._state)
            saved = await workflow.execute_activity_method(
                SessionActivities.save_session,
                SaveSessionRequest(key=self._key, stored=stored),
                **with_summary(ACCOUNT, "save the account"),
            )
            if saved:
                self._saved = version
            else:
                # A reset execution is behind the store, which holds what the earlier execution did after that point.
                workflow.logger.warning("the session was saved by another execution: going on from there")
                await self._load()

    @property
    def _loaded(self) -> bool:
        return self._epoch > 0

    def _is_over(self) -> bool:
        """Return whether a session that was made for one task is no longer needed."""
        return self._single and self._used and not (self._state.open_tasks or self._starting or self._deferred_signals)

    def _is_settled(self) -> bool:
        """Return whether this execution can end without losing anything, or holds work for the next one."""
        return bool(self._deferred_signals) or (workflow.all_handlers_finished() and self._saved == self._version)

    async def _until_ready(self) -> None:
        """Wait until the account is loaded and tasks that ended while no session ran are settled.

        A task that the store calls open may be over.
        """
        await workflow.wait_condition(lambda: self._ready)

    def _takes(self, sent: tuple[JsonValue, ...]) -> bool:
        """Return whether a message may take effect: a session of encrypted tasks accepts encrypted messages only."""
        taken = not self._state.requires_encrypted_messages or was_encrypted(sent)
        if not taken:
            workflow.logger.warning("a message to the session was refused: %s", UNENCRYPTED_REASON)
        return taken

    def _require_sealed(self, sent: tuple[JsonValue, ...]) -> None:
        """Reject an update that was validated before the store said that messages must be encrypted.

        Raises:
            ApplicationError: The message is not encrypted.
        """
        if not self._takes(sent):
            raise ApplicationError(UNENCRYPTED_REASON, type="ValueError", non_retryable=True)

    def _require(self, model: type[BaseModel], sent: tuple[JsonValue, ...]) -> None:
        """Validate an update. A rejected update leaves nothing in the history.

        Accepting updates without end would keep the workflow from continuing as new until the server terminates it. If
        `run` is idle, the first one is accepted all the same, because a rejected update wakes nothing.

        Raises:
            ValueError: The input is invalid or unencrypted.
            ApplicationError: `SESSION_CONTINUES`, once the history is long.
        """
        if self._is_long() and not self._idle:
            raise ApplicationError(CONTINUES, type=SESSION_CONTINUES)
        if not self._takes(sent):
            raise ValueError(UNENCRYPTED_REASON)
        model.model_validate(single_payload(sent))

    @staticmethod
    def _is_long() -> bool:
        return workflow.info().is_continue_as_new_suggested()

    def _change(self, state: SessionState) -> None:
        if state != self._state:
            self._state = state
            self._version += 1

    async def _change_and_save(self, state: SessionState) -> bool:
        """Change the state and wait until it is saved, for changes that others outside the session rely on.

        Returns:
            False if the store had a newer state, which has replaced this one.
        """
        self._change(state)
        version, epoch = self._version, self._epoch
        await workflow.wait_condition(lambda: self._saved >= version or self._epoch != epoch)
        return self._epoch == epoch


async def run_admission(ref: TaskRef) -> AdmissionResult:
    """Return what workflows may know of the task.

    Raises the activity's own error, so that the submitter reads the reason.
    """
    try:
        return await workflow.execute_activity_method(
            PlanningActivities.admit_task, ref, **with_summary(ADMISSION, "admit a task")
        )
    except ActivityError as error:
        raise (error.cause if isinstance(error.cause, ApplicationError) else error) from None


async def record_task_refusal(ref: TaskRef, reason: str) -> None:
    """Store why the session rejected the task."""
    await workflow.execute_activity_method(
        SessionActivities.store_refusal,
        session.RefusedTask(ref=ref, reason=reason),
        **with_summary(ACCOUNT, "store why a task was rejected"),
    )


async def start_task(admitted: AdmissionResult, rewind: TaskRewind | None = None, scheduled_run: str = "") -> bool:
    """Start or resume the task, which shares the workers with tasks of other tenants by its tenant's weight.

    A task of a scheduled run waits behind those that a person submitted, and notifies the run's workflow of its end.
    Return False if it is running or the server has run it before; it is then left as it is.
    """
    once = WorkflowIDReusePolicy.REJECT_DUPLICATE
    try:
        task = await workflow.start_child_workflow(
            TaskWorkflow.run,
            TaskWorkflowInput(
                ref=admitted.ref,
                config=admitted.config,
                title=admitted.title,
                documents=admitted.documents,
                forked=admitted.forked,
                search_attributes=admitted.search_attributes,
                notifications=admitted.notifications,
                privacy=admitted.privacy,
                requires_encrypted_messages=admitted.requires_encrypted_messages,
                approvers=admitted.approvers,
                rewind=rewind,
                scheduled_run=scheduled_run,
            ),
            id=admitted.ref.task_id,
            id_reuse_policy=once if rewind is None else WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            static_summary=neutralize_markdown(admitted.title),
            search_attributes=build_initial_search_attributes(admitted.ref) if admitted.search_attributes else None,
            priority=Priority(
                priority_key=SCHEDULED_TASK_PRIORITY if scheduled_run else TASK_PRIORITY,
                fairness_key=admitted.ref.tenant,
                fairness_weight=admitted.fairness_weight,
            ),
        )
    except WorkflowAlreadyStartedError:
        return False
    # The task reports its end to the session itself; without this, asyncio would log its failure as never retrieved.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return True
