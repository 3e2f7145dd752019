"""A session: admits tasks, holds the budget that they share, and lives as long as somebody works in it.

How a task begins: admitted by an activity, then started as a child that outlives every run of its session.

What of a session's open tasks is over without having said so.
"""

from pydantic import BaseModel, JsonValue, ValidationError
from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError

from activities.sessions import ReconcileRequest, SessionActivities
from activities.tasks import PlanningActivities
from waystation.domain import session
from waystation.domain.budget import Account
from waystation.domain.continuation import TaskRewind, TaskStart
from waystation.domain.errors import BadInput, Overdrawn
from waystation.domain.foreign import plain_words
from waystation.domain.names import BUDGET_ANSWER
from waystation.domain.session import Admission, Admitted, Ask, Raised, SessionStart, SessionState, Settlement
from waystation.domain.signals import UNSEALED, is_sealed, read, whole
from waystation.domain.task import TaskRef
from workflows.board import first_attributes
from workflows.options import ADMISSION, RECONCILE, SHORT, named
from workflows.task import TaskWorkflow


async def over(*task_ids: str) -> tuple[Settlement, ...]:
    """Those of the tasks that do not run, with what they spent."""
    found = await workflow.execute_activity_method(
        SessionActivities.reconcile, ReconcileRequest(task_ids=task_ids), **named(SHORT, "look after open tasks")
    )
    return found.settled


@workflow.defn(name="Session")
class SessionWorkflow:
    """An ongoing line of work. Its tasks are children that outlive its continue-as-new and signal it by its id."""

    @workflow.init
    def __init__(self, start: SessionStart) -> None:
        self._state = start.state
        self._starting: set[str] = set()

    @workflow.run
    async def run(self, start: SessionStart) -> None:
        """Look after open tasks now and then; continue as new when the server suggests it."""
        self._change(self._state)
        if start.state.open_tasks:
            await self._reconcile()
        while not self._is_long():
            if await self._quiet():
                await self._reconcile()
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(start.model_copy(update={"state": self._state}))

    @workflow.update(name="submit_task", description="Admit a task and start it; the same task again is found again.")
    async def submit(self, *sent: JsonValue) -> Admission:
        """Raises ApplicationError where the task is unknown, lives in another store, or does not fit the budget."""
        return await self._admitted(TaskRef.model_validate(whole(sent)))

    @submit.validator
    def takes_a_task(self, *sent: JsonValue) -> None:
        """Where the input does not fit, this raises, and that rejects the update instead of hanging us."""
        self._require(TaskRef, sent)

    @workflow.update(name="rewind_task", description="Let a finished task go on from a message of one of its agents.")
    async def rewind(self, *sent: JsonValue) -> Admission:
        """Raises ApplicationError as `submit_task` does. A task that runs is left as it is."""
        rewind = TaskRewind.model_validate(whole(sent))
        return await self._admitted(rewind.ref, rewind)

    @rewind.validator
    def takes_a_rewind(self, *sent: JsonValue) -> None:
        """As `takes_a_task`."""
        self._require(TaskRewind, sent)

    @workflow.signal(description='Limit all tasks together: {"tokens": 2000000, "usd": 50}; null lifts it.')
    def set_session_limit(self, *sent: JsonValue) -> None:
        """Any JSON, or none, is taken and validated here; a malformed limit changes nothing and is logged."""
        if not self._takes(sent):
            return
        try:
            self._change(session.with_limit(self._state, whole(sent)))
        except ValidationError as error:
            workflow.logger.warning("a session limit was refused: %d faults", error.error_count())

    @workflow.signal(description="A task asks for more than its budget. Sent by tasks.")
    async def ask_budget(self, *sent: JsonValue) -> None:
        """Answered at once, each ask once. The session does not continue as new before its answer is sent."""
        ask = read(Ask, sent) if self._takes(sent) else None
        if ask is None:
            return
        state, answer = session.answered(self._state, ask)
        if answer is None:
            return
        self._change(state)
        try:
            await workflow.get_external_workflow_handle(ask.task_id).signal(BUDGET_ANSWER, answer)
        except ApplicationError:
            workflow.logger.warning("the task that asked for budget is gone")

    @workflow.signal(description="A person granted a task new money. Sent by tasks.")
    def task_granted(self, *sent: JsonValue) -> None:
        """The session's limit grows by as much."""
        raised = read(Raised, sent) if self._takes(sent) else None
        if raised is not None:
            self._change(session.raised(self._state, raised))

    @workflow.signal(description="A task is over. Sent by tasks.")
    def task_finished(self, *sent: JsonValue) -> None:
        """Its reservation is given back."""
        settlement = read(Settlement, sent) if self._takes(sent) else None
        if settlement is not None:
            self._change(session.settled(self._state, settlement))

    @workflow.query(description="The session's account: limit, spent, and what is reserved for each open task.")
    def account(self) -> Account:
        """In tokens."""
        return self._state.account

    async def _admitted(self, ref: TaskRef, rewind: TaskRewind | None = None) -> Admission:
        """One submission of a task after the other."""
        while ref.task_id in self._starting:
            await workflow.wait_condition(lambda: ref.task_id not in self._starting)
        if ref.task_id in self._state.open_tasks:
            return Admission(task_id=ref.task_id, state="running")
        self._starting.add(ref.task_id)
        try:
            return await self._start(await admit(ref), rewind)
        finally:
            self._starting.discard(ref.task_id)

    async def _start(self, admitted: Admitted, rewind: TaskRewind | None) -> Admission:
        task_id = admitted.ref.task_id
        if admitted.finished != (rewind is not None):
            return Admission(task_id=task_id, state="finished" if admitted.finished else "running")
        try:
            self._change(session.taken_up(self._state, admitted))
        except (Overdrawn, BadInput) as error:
            raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error
        if await start(admitted, rewind):
            return Admission(task_id=task_id, state="started")
        # It runs since an earlier life of this session; or it was terminated, and holds nothing.
        if not await over(task_id):
            return Admission(task_id=task_id, state="running")
        self._change(session.never_started(self._state, task_id))
        return Admission(task_id=task_id, state="finished")

    async def _quiet(self) -> bool:
        """True after an interval in which tasks stayed open; False when none is left or the history grew long."""
        await workflow.wait_condition(lambda: bool(self._state.open_tasks) or self._is_long())
        try:
            await workflow.wait_condition(lambda: not self._state.open_tasks or self._is_long(), **RECONCILE)
        except TimeoutError:
            return True
        return False

    async def _reconcile(self) -> None:
        """A task that was terminated tells nobody: without this its reservation would be lost."""
        started = (task_id for task_id in self._state.open_tasks if task_id not in self._starting)
        for settlement in await over(*started):
            self._change(session.settled(self._state, settlement))

    def _takes(self, sent: tuple[JsonValue, ...]) -> bool:
        """Whether a message may have an effect: where tasks here were admitted under encryption, if it came so."""
        taken = not self._state.sealed or is_sealed(sent)
        if not taken:
            workflow.logger.warning("a message to the session was refused: %s", UNSEALED)
        return taken

    def _require(self, model: type[BaseModel], sent: tuple[JsonValue, ...]) -> None:
        """Reject an update, of which then nothing is kept. Raises ValueError."""
        if not self._takes(sent):
            raise ValueError(UNSEALED)
        model.model_validate(whole(sent))

    def _is_long(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    def _change(self, state: SessionState) -> None:
        self._state = state
        workflow.set_current_details(session.session_details(state))


async def admit(ref: TaskRef) -> Admitted:
    """What the workflows may know of the task. Raises the activity's own error: the submitter reads why."""
    try:
        return await workflow.execute_activity_method(PlanningActivities.admit, ref, **named(ADMISSION, "admit a task"))
    except ActivityError as error:
        raise (error.cause if isinstance(error.cause, ApplicationError) else error) from None


async def start(admitted: Admitted, rewind: TaskRewind | None = None) -> bool:
    """Start the task, or have it go on. False: it runs, or the server has had it before; it is left as it is."""
    equipment = {"search_attributes", "notices", "privacy", "sealed_answers", "approvers"}
    given = admitted.model_dump(include={"ref", "terms", "title", "documents", "forked"} | equipment)
    once = WorkflowIDReusePolicy.REJECT_DUPLICATE
    try:
        task = await workflow.start_child_workflow(
            TaskWorkflow.run,
            TaskStart(**given, rewind=rewind),
            id=admitted.ref.task_id,
            id_reuse_policy=once if rewind is None else WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            static_summary=plain_words(admitted.title),
            search_attributes=first_attributes(admitted.ref.session) if admitted.search_attributes else None,
        )
    except WorkflowAlreadyStartedError:
        return False
    # The task tells its session how it ended; asyncio would log a failure that nobody looked at as an error.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return True
