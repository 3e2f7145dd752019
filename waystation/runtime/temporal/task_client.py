"""Signals, updates and queries to running sessions and tasks, with what the server says about them: pending activities
and their retries, agents' heartbeats, and the origins of answers.

The origins come from the history of a task's workflow; the workflow itself cannot see them, since signals arrive
without their sender.
"""

import asyncio
import itertools
import random
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pydantic import JsonValue, TypeAdapter, ValidationError
from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType, PendingActivityState, TaskQueueType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import Priority, WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from waystation.agents.agent_status import AgentStatus
from waystation.kernel import temporal_names as names
from waystation.kernel.amount import Limit
from waystation.kernel.errors import BadInput, Busy, StartUnknownError, Unreachable, WaystationError
from waystation.kernel.refs import TaskRef
from waystation.kernel.value import Value
from waystation.runtime.temporal.action_counts import count_temporal_actions
from waystation.runtime.temporal.codec import is_encryption_enabled
from waystation.runtime.temporal.connect import (
    REFUSED,
    RPC_TIMEOUT,
    TemporalTarget,
    build_workflow_link,
    connect_as_person,
    describe_latest_run,
    without_retries,
)
from waystation.runtime.temporal.installation import get_client_installation_prefix, to_server_id
from waystation.tasks.approvals import (
    SIGNALS_BY_DECISION,
    RecordedAnswerFields,
    SentAnswer,
    make_answer_id,
)
from waystation.tasks.continuation import TaskRewind
from waystation.tasks.details import build_limit_fields
from waystation.tasks.progress import TemporalActionCounts
from waystation.tasks.session import REFUSAL_PREFIX, SessionWorkflowInput, SubmissionResult
from waystation.tasks.signals import ENDED, UpdateResult
from waystation.tasks.task import TaskPhase, TaskProgress

ACTIVE_ACTIVITY_STATES = frozenset(
    {
        PendingActivityState.PENDING_ACTIVITY_STATE_STARTED,
        PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED,
    }
)
"""States of running activities. One that waits for its next attempt still has the previous one's heartbeat details."""


async def describe_retries(described: WorkflowExecutionDescription, converter: DataConverter) -> tuple[str, ...]:
    """Return a sentence for each activity that is retried: our errors have values, never content. Raises WrongKey."""
    failed = [one for one in described.raw_description.pending_activities if one.HasField("last_failure")]
    return tuple(
        [f"the activity {one.activity_type.name} is being retried: {await _why(one, converter)}" for one in failed]
    )


async def list_agent_statuses(
    described: WorkflowExecutionDescription, converter: DataConverter
) -> tuple[AgentStatus, ...]:
    """Return what agents are doing, as far as their activities have reported it. Raises WrongKey."""
    working = [one for one in described.raw_description.pending_activities if one.state in ACTIVE_ACTIVITY_STATES]
    said = [await _doing(one, converter) for one in working if one.heartbeat_details.payloads]
    return tuple([doing for doing in said if doing is not None])


def list_subagent_workflow_ids(described: WorkflowExecutionDescription) -> tuple[str, ...]:
    """Return the ids of the workflows in which subagents of this task work now."""
    children = (child.workflow_id for child in described.raw_description.pending_children)
    return tuple(sorted(child for child in children if child.startswith(f"{described.id}/")))


async def _doing(pending: PendingActivityInfo, converter: DataConverter) -> AgentStatus | None:
    """Return an agent's status; None for heartbeat details of another release."""
    with suppress(ValidationError, TypeError, RuntimeError):
        (doing,) = await converter.decode(pending.heartbeat_details.payloads, [AgentStatus])
        seen = pending.last_heartbeat_time.ToDatetime(UTC) if pending.HasField("last_heartbeat_time") else None
        return doing.replace(seen=seen)
    return None


async def _why(pending: PendingActivityInfo, converter: DataConverter) -> str:
    failure = type(pending.last_failure)()
    failure.CopyFrom(pending.last_failure)  # decoding changes it in place
    error = await converter.decode_failure(failure)
    # Our messages are complete; the type is merely the name of a class.
    return error.message if isinstance(error, ApplicationError) and error.message else str(error)


ANSWERS = frozenset(name for names_of_decision in SIGNALS_BY_DECISION.values() for name in names_of_decision)
"""Names of the messages that answer requests, signals and Updates."""
PAGE_EVENTS = 500
_MAX_PAGES = 20
"""Pages of history that are read: one of more than 10,000 events is not read to its beginning."""
_FIELDS: TypeAdapter[tuple[RecordedAnswerFields, ...]] = TypeAdapter(tuple[RecordedAnswerFields, ...])


async def fetch_sent_answers(client: Client, task_id: str, since: datetime) -> tuple[SentAnswer, ...]:
    """Return every answer sent to the task since then, the newest first, also those to earlier runs of its workflow.

    Raises RPCError.
    """
    found: list[SentAnswer] = []
    updates: list[SentAnswer] = []
    async for event in _newest_first(client, task_id):
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            continue  # written when the activity ends, with the time at which it began
        at = event.event_time.ToDatetime(tzinfo=UTC)
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            # An Update is written down when its workflow has looked at it: it came before that.
            found += [one.replace(at=at) for one in updates]
            updates = []
        if at < since:
            break
        signal = event.workflow_execution_signaled_event_attributes
        update = event.workflow_execution_update_accepted_event_attributes.accepted_request
        if signal.signal_name in ANSWERS:
            principal = ":".join(filter(None, (event.principal.type, event.principal.name)))
            fields, identity = await _fields(client, signal.input), signal.identity
            answer = SentAnswer(signal=signal.signal_name, at=at, identity=identity, principal=principal, fields=fields)
            found.append(answer)
        elif update.input.name in ANSWERS:
            # The event is the worker's: whom the server authenticated when it was written has not sent the answer.
            fields = await _fields(client, update.input.args)
            known = fields.replace(answer_id=fields.answer_id or make_answer_id(update.meta.update_id))
            answer = SentAnswer(signal=update.input.name, at=at, identity=update.meta.identity, fields=known)
            updates.append(answer)
    return tuple(found)


async def _newest_first(client: Client, task_id: str) -> AsyncGenerator[HistoryEvent]:
    """Yield the events of the newest run, then those of the run that it continues, and so on."""
    run_id, token = "", b""
    for _ in range(_MAX_PAGES):
        page = await client.workflow_service.get_workflow_execution_history_reverse(
            GetWorkflowExecutionHistoryReverseRequest(
                namespace=client.namespace,
                execution=WorkflowExecution(workflow_id=to_server_id(client, task_id), run_id=run_id),
                maximum_page_size=PAGE_EVENTS,
                next_page_token=token,
            ),
            timeout=RPC_TIMEOUT,
        )
        for event in page.history.events:
            yield event
        token = page.next_page_token
        if not token:
            first = page.history.events[-1].workflow_execution_started_event_attributes
            run_id = first.continued_execution_run_id
            if not run_id:
                return


async def _fields(client: Client, sent: Payloads) -> RecordedAnswerFields:
    """What tells one answer from another; nothing of one that cannot be read."""
    try:
        (fields,) = _FIELDS.validate_python(await client.data_converter.decode(list(sent.payloads)), extra="ignore")
    except (ValidationError, ValueError, RuntimeError, KeyError):
        return RecordedAnswerFields()
    return fields


QUERY_TIMEOUT = timedelta(seconds=3)
"""A worker that has to load the workflow first answers well within this; without a worker there is no answer."""

UPDATE_TIMEOUT = timedelta(seconds=75)
"""A task that waits for the end of a leg says so after a minute."""

RUNNING_TASKS_QUERY = f'WorkflowType = "{names.TASK_WORKFLOW}" AND ExecutionStatus = "Running"'
WAITING_TASKS_QUERY = f"{RUNNING_TASKS_QUERY} AND {names.PENDING_ATTRIBUTE} > 0"
POSSIBLY_WAITING_TASKS_QUERY = (
    f"{RUNNING_TASKS_QUERY} AND ({names.PENDING_ATTRIBUTE} > 0 OR {names.PENDING_ATTRIBUTE} IS NULL)"
)
"""Also tasks without the attribute: if a server lacks any of ours when a worker starts, its tasks set none."""

ENDED_AS: Mapping[WorkflowExecutionStatus, TaskPhase] = {
    WorkflowExecutionStatus.CANCELED: TaskPhase.CANCELLED,
    WorkflowExecutionStatus.TERMINATED: TaskPhase.CANCELLED,
    WorkflowExecutionStatus.FAILED: TaskPhase.FAILED,
    WorkflowExecutionStatus.TIMED_OUT: TaskPhase.FAILED,
}

_BUSY = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        # A connection that broke during a call.
        RPCStatusCode.UNKNOWN,
        # A workflow that cannot take a message now, since its workflow tasks fail.
        RPCStatusCode.FAILED_PRECONDITION,
    }
)
"""Statuses after which the same call may succeed later."""


_NOTHING_ACCEPTED: Mapping[RPCStatusCode, str] = {
    RPCStatusCode.RESOURCE_EXHAUSTED: "the server had as many requests in progress as it accepts",
    RPCStatusCode.NOT_FOUND: "the session's workflow ended before it took the request",
    RPCStatusCode.ABORTED: "the session's workflow ended before it took the request",
}
"""Statuses after which an update was certainly not accepted, and the reason."""
_ACCEPTED_AND_ENDED = "AcceptedUpdateCompletedWorkflow"
"""What the server calls the failure of an update that was accepted by a workflow that has ended without an answer."""
MAX_UPDATE_ATTEMPTS = 8
"""At one message to a task: about 12 seconds."""
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 8.0
"""Minimum and maximum seconds between two attempts at an update."""


class _NotAccepted(Exception):
    """The update was not accepted; it may be later."""


class _OutcomeUnknown(Exception):
    """The update may have been accepted."""


class _SessionUpdate(NamedTuple):
    """An update of a session, which is started if it does not run."""

    start: SessionWorkflowInput
    workflow_id: str
    name: str
    argument: TaskRef | TaskRewind
    id: str


class _Updated(NamedTuple):
    """The answer to an update, and how many earlier attempts may have been accepted too."""

    admission: SubmissionResult
    lost_answers: int


def _update_id(name: str, task_id: str) -> str:
    """Return a new update id: with that of an earlier call the server would repeat its answer to that one."""
    return f"{name}-{task_id}-{uuid.uuid4().hex}"


def _pauses() -> Iterator[float]:
    """Yield jittered pauses, so that clients that were rejected together do not return together."""
    longest = _FIRST_PAUSE
    while True:
        yield random.uniform(longest / 2, longest)
        longest = min(2 * longest, _LAST_PAUSE)


def _failed(error: WorkflowUpdateFailedError) -> Exception:
    """Translate the error of an update that was rejected or failed."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == names.SESSION_CONTINUES:
        return _NotAccepted("the session continued as new")
    if not isinstance(cause, ApplicationError) or cause.type == _ACCEPTED_AND_ENDED:
        return _OutcomeUnknown("the session ended before it answered")
    return BadInput(f"{REFUSAL_PREFIX}{cause.message}")


class TaskRun(Value):
    """A task as the server knows it."""

    run_id: str
    progress: TaskProgress | None = None
    """None if no worker answers, or the workflow ended without a result."""
    retry_reasons: tuple[str, ...] = ()
    """Why activities are retried, a sentence each."""
    agent_statuses: tuple[AgentStatus, ...] = ()
    """What agents are doing, subagents included."""
    final_phase: TaskPhase | None = None
    """Set if the workflow ended without a result."""


class TemporalTaskClient:
    """Sessions and tasks on one Temporal server. Every method raises Unreachable if the server does not answer."""

    def __init__(self, client: Client, target: TemporalTarget) -> None:
        self._client = client
        self._target = target
        self._impatient: Client | None = None

    @classmethod
    async def connect(
        cls, target: TemporalTarget, converter: DataConverter = pydantic_data_converter
    ) -> "TemporalTaskClient":
        """Connect to the server, under the identity of the user who runs this program. Raises Unreachable, BadInput.

        If payloads are encrypted and `converter` does not have the key, methods that read one raise WrongKey.
        """
        return cls(await connect_as_person(target, converter), target)

    def _begun(self, start: SessionWorkflowInput) -> SessionWorkflowInput:
        """Return the start input of a session: one that is started with encryption accepts only encrypted messages."""
        sealed = is_encryption_enabled(self._client.data_converter)
        return start.replace(state=start.state.replace(requires_encrypted_messages=sealed))

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended for good: its address is then meaningless."""
        return self._target.has_ended

    def build_task_link(self, task_id: str) -> str | None:
        """Return the task's page in the Temporal UI, if one is known."""
        return build_workflow_link(self._target, task_id)

    async def list_queues_without_workers(self) -> tuple[str, ...]:
        """Return task queues that no worker has polled in the last minutes."""
        return tuple([queue for queue in names.QUEUES if not await self._has_poller(queue)])

    async def _has_poller(self, queue: str) -> bool:
        kind = (
            TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
            if queue == names.WORKFLOWS_QUEUE
            else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        )
        on_server = TaskQueue(name=to_server_id(self._client, queue))
        request = DescribeTaskQueueRequest(namespace=self._client.namespace, task_queue=on_server, task_queue_type=kind)
        async with self._answering():
            queue_now = await self._client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
        return bool(queue_now.pollers)

    async def admit(
        self, start: SessionWorkflowInput, workflow_id: str, task: TaskRef, patience: timedelta
    ) -> SubmissionResult:
        """Submit a stored task to its session, which is started if it does not run.

        Raises:
            BadInput: The session refused the task.
            Busy: Server or session took no more within `patience`; the task was not accepted.
            StartUnknownError: There was no answer within `patience`; whether the task was accepted is unknown.
            Unreachable: The server cannot be used.
        """
        try:
            return (await self._update(start, workflow_id, names.SUBMIT_TASK, task, patience)).admission
        except TimeoutError as error:
            if await self._has_begun(task.task_id):
                return SubmissionResult(task_id=task.task_id, state="running")
            raise StartUnknownError(
                task.task_id,
                f"no answer in {patience.total_seconds():.0f} s: it is unknown whether {task.task_id} was "
                "accepted. `waystation status` shows whether workers run. It is safe to submit the task again with "
                "the same request id",
            ) from error

    async def signal_session(self, start: SessionWorkflowInput, name: str, message: object) -> None:
        """Signal a session, which is started if it does not run. Waits for no workflow, so activities may call it."""
        async with self._answering():
            await self._client.start_workflow(
                names.SESSION_WORKFLOW,
                self._begun(start),
                id=f"session-{start.session}",
                task_queue=names.WORKFLOWS_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                priority=_session_priority(start.tenant),
                start_signal=name,
                start_signal_args=[message],
                rpc_timeout=RPC_TIMEOUT,
            )

    async def rewind(
        self, start: SessionWorkflowInput, workflow_id: str, rewind: TaskRewind, patience: timedelta
    ) -> SubmissionResult:
        """Have the session resume a finished task. Raises as `admit` does."""
        task_id = rewind.ref.task_id
        try:
            updated = await self._update(start, workflow_id, names.REWIND_TASK, rewind, patience)
        except TimeoutError as error:
            raise Unreachable(
                f"no answer in {patience.total_seconds():.0f} s: `waystation show {task_id}` shows whether "
                "the task continues"
            ) from error
        # An earlier attempt, whose answer was lost, has resumed it.
        repeated = updated.admission.state == "running" and updated.lost_answers
        return updated.admission.replace(state="started") if repeated else updated.admission

    async def _has_begun(self, task_id: str) -> bool:
        """Return whether the server runs the task already. False if it does not say so at once."""
        with suppress(TimeoutError, Unreachable, RPCError):
            async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):
                found = await describe_latest_run(self._client, task_id)
                return found is not None and found.status == WorkflowExecutionStatus.RUNNING
        return False

    async def _update(
        self, start: SessionWorkflowInput, workflow_id: str, name: str, sent: TaskRef | TaskRewind, patience: timedelta
    ) -> "_Updated":
        """Send an update until the session has carried it out. Attempts have the same id until one is answered, so that
        one whose answer was lost is not carried out twice.

        Raises:
            BadInput: The session refuses it.
            Busy: Nothing was accepted within `patience`.
            TimeoutError: There was no answer, so the outcome is unknown.
            Unreachable: The server denies access.
        """
        task_id = sent.ref.task_id if isinstance(sent, TaskRewind) else sent.task_id
        update = _SessionUpdate(self._begun(start), workflow_id, name, sent, _update_id(name, task_id))
        clock, lost_answers = asyncio.get_running_loop().time, 0
        deadline = clock() + patience.total_seconds()
        for pause in _pauses():
            try:
                async with asyncio.timeout_at(deadline):
                    return _Updated(await self._send_update(update), lost_answers)
            except _NotAccepted as error:
                reason: Exception = error
                update = update._replace(id=_update_id(name, task_id))
            except _OutcomeUnknown as error:
                reason, lost_answers = error, lost_answers + 1
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError from reason
            if clock() + pause >= deadline:
                if lost_answers:
                    raise TimeoutError from reason
                raise Busy(
                    f"{task_id} was not accepted ({reason}) within {patience.total_seconds():.0f} s. It is safe "
                    "to submit the task again with the same request id"
                ) from reason
            await asyncio.sleep(pause)
        raise AssertionError("there is always another pause")

    async def _send_update(self, update: "_SessionUpdate") -> SubmissionResult:
        """Make one attempt. Raises BadInput, Unreachable, `_NotAccepted`, `_OutcomeUnknown`."""
        session: WithStartWorkflowOperation[object, object] = WithStartWorkflowOperation(
            names.SESSION_WORKFLOW,
            update.start,
            id=update.workflow_id,
            task_queue=names.WORKFLOWS_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            priority=_session_priority(update.start.tenant),
        )
        try:
            client = await self._without_retries()
            admission: SubmissionResult = await client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec
                update.name,
                update.argument,
                start_workflow_operation=session,
                id=update.id,
                result_type=SubmissionResult,
            )
        except WorkflowUpdateFailedError as error:
            raise _failed(error) from error
        except (WorkflowUpdateRPCTimeoutOrCancelledError, Unreachable) as error:
            await _look_at_error(session)
            raise _OutcomeUnknown("no answer") from error
        except RPCError as error:
            await _look_at_error(session)
            if error.status in _NOTHING_ACCEPTED:
                raise _NotAccepted(_NOTHING_ACCEPTED[error.status]) from error
            if error.status in _BUSY:
                raise _OutcomeUnknown("no answer") from error
            raise self._translated(error, None) from error
        return admission

    async def _without_retries(self) -> Client:
        if self._impatient is None:
            self._impatient = await without_retries(self._client)
        return self._impatient

    async def find_task_run(self, task_id: str) -> TaskRun | None:
        """Return the task as it is now; None if the server does not know it."""
        found = await self._describe(task_id)
        if found is None:
            return None
        handle = self._handle(task_id)
        run = TaskRun(run_id=found.run_id)
        if found.status == WorkflowExecutionStatus.COMPLETED:
            return run.replace(progress=await self._result(handle))
        if found.status is not None and found.status in ENDED_AS:
            return run.replace(final_phase=ENDED_AS[found.status])
        return await self._at_work(run.replace(progress=await self.query_progress(task_id)), found)

    async def _at_work(self, run: TaskRun, task: WorkflowExecutionDescription) -> TaskRun:
        """Add what the task's activities, and those of its subagents, are doing, and why they are retried."""
        children = await asyncio.gather(*map(self._describe, list_subagent_workflow_ids(task)))
        found, converter = [task, *(child for child in children if child is not None)], self._client.data_converter
        why = [sentence for one in found for sentence in await describe_retries(one, converter)]
        doing = [said for one in found for said in await list_agent_statuses(one, converter)]
        doing.sort(key=lambda said: said.agent)
        return run.replace(retry_reasons=tuple(why), agent_statuses=tuple(doing))

    async def run_id(self, task_id: str) -> str | None:
        """Return the task's run id; None if the server does not know the task, or no longer."""
        found = await self._describe(task_id)
        return found.run_id if found is not None else None

    async def _describe(self, task_id: str) -> WorkflowExecutionDescription | None:
        async with self._answering():
            return await describe_latest_run(self._client, task_id)

    async def query_progress(self, task_id: str) -> TaskProgress | None:
        """Return the progress that the workflow itself reports; None if no worker answers for it."""
        try:
            return await self._handle(task_id).query(
                names.PROGRESS, result_type=TaskProgress, rpc_timeout=QUERY_TIMEOUT
            )
        except (RPCError, WorkflowQueryFailedError):
            return None

    async def is_answering(self, task_id: str) -> bool:
        """Return whether a worker answers for the task. Raises WrongKey if this client cannot read its answer."""
        try:
            await self._handle(task_id).query(names.PHASE, result_type=TaskPhase, rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, WorkflowQueryFailedError):
            return False
        return True

    async def _result(self, handle: WorkflowHandle[object, TaskProgress]) -> TaskProgress | None:
        try:
            return await handle.result(rpc_timeout=RPC_TIMEOUT)
        except (WorkflowFailureError, RPCError):
            return None

    async def signal(self, task_id: str, signal: str, answer: Mapping[str, JsonValue]) -> None:
        """Send a signal with plain JSON. Raises BadInput if the task does not run."""
        async with self._answering(task_id):
            await self._handle(task_id).signal(signal, answer, rpc_timeout=RPC_TIMEOUT)

    async def update(
        self, task_id: str, name: str, message: Mapping[str, JsonValue], update_id: str
    ) -> UpdateResult | None:
        """Send a message by an Update, and wait for its result. Sent again with this id it is the same message.

        Returns:
            None where there was no answer, or the task has too many of them under way: it may have been read, and may
            still be.

        Raises BadInput if the task does not run.
        """
        sent_before, result = False, None
        for pause in itertools.islice(_pauses(), MAX_UPDATE_ATTEMPTS):
            try:
                result = await self._answer_to(task_id, name, message, update_id)
            except _NotAccepted:
                pass
            except BadInput:
                if sent_before:
                    return ENDED
                raise
            else:
                if result is None or not result.continues:
                    return result
            sent_before = True
            await asyncio.sleep(pause)
        return None if result is None or result.outcome == "unseen" else result

    async def _answer_to(
        self, task_id: str, name: str, message: Mapping[str, JsonValue], update_id: str
    ) -> UpdateResult | None:
        """One attempt. Raises _NotAccepted where it may succeed later, and as `update` does."""
        handle = (await self._without_retries()).get_workflow_handle(task_id)
        try:
            async with asyncio.timeout(UPDATE_TIMEOUT.total_seconds()):
                return await handle.execute_update(name, message, id=update_id, result_type=UpdateResult)  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec
        except WorkflowUpdateFailedError as error:
            ended = isinstance(error.cause, ApplicationError) and error.cause.type == _ACCEPTED_AND_ENDED
            return ENDED if ended else None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError from error
            return None
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise self._translated(error, task_id) from error
            if error.status in {*_NOTHING_ACCEPTED, RPCStatusCode.UNAVAILABLE}:
                raise _NotAccepted(str(error.status)) from error
            if error.status in _BUSY:
                return None
            raise self._translated(error, task_id) from error

    async def list_sent_answers(self, task_id: str, since: datetime) -> tuple[SentAnswer, ...]:
        """Return answers sent to the task since then; empty if the server has forgotten it."""
        try:
            async with self._answering():
                return await fetch_sent_answers(self._client, task_id, since)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return ()
            raise

    async def count_actions(self, task_id: str) -> TemporalActionCounts | None:
        """Count the Temporal actions of a task; None if the server no longer has its history."""
        async with self._answering():
            return await count_temporal_actions(self._client, task_id)

    async def cancel(self, task_id: str) -> None:
        """Ask the task to stop. Raises BadInput if the task does not run."""
        async with self._answering(task_id):
            await self._handle(task_id).cancel(rpc_timeout=RPC_TIMEOUT)

    async def set_session_limit(self, start: SessionWorkflowInput, workflow_id: str, limit: Limit) -> None:
        """Set the spending limit of a whole session, which is started if it does not run."""
        async with self._answering():
            await self._client.start_workflow(
                names.SESSION_WORKFLOW,
                self._begun(start),
                id=workflow_id,
                task_queue=names.WORKFLOWS_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                priority=_session_priority(start.tenant),
                start_signal=names.SET_SESSION_LIMIT,
                start_signal_args=[build_limit_fields(limit)],
                rpc_timeout=RPC_TIMEOUT,
            )

    async def list_waiting_task_ids(self) -> tuple[str, ...]:
        """Return ids of running tasks that wait for an answer or do not show whether they do; of all running tasks if
        the server cannot tell.
        """
        try:
            return await self._ids(POSSIBLY_WAITING_TASKS_QUERY)
        except RPCError as error:
            if error.status != RPCStatusCode.INVALID_ARGUMENT:
                raise
            return await self._ids(RUNNING_TASKS_QUERY)

    async def count_waiting_tasks(self) -> int:
        """Count running tasks that wait for an answer. Requires registered search attributes."""
        async with self._answering():
            return (await self._client.count_workflows(WAITING_TASKS_QUERY, rpc_timeout=RPC_TIMEOUT)).count

    async def _ids(self, query: str) -> tuple[str, ...]:
        async with self._answering():
            prefix = get_client_installation_prefix(self._client)
            return tuple([found.id.removeprefix(prefix) async for found in self._client.list_workflows(query)])

    def _handle(self, task_id: str) -> WorkflowHandle[object, TaskProgress]:
        return self._client.get_workflow_handle(task_id, result_type=TaskProgress)

    @asynccontextmanager
    async def _answering(self, task_id: str | None = None) -> AsyncGenerator[None]:
        try:
            yield
        except RPCError as error:
            raise self._translated(error, task_id) from error

    def _translated(self, error: RPCError, task_id: str | None) -> WaystationError | RPCError:
        if error.status in _BUSY:
            return Unreachable(f"the Temporal server at {self._target.address} does not answer ({error.status.name})")
        if error.status in REFUSED:
            return self._target.access_denied_error
        if error.status == RPCStatusCode.NOT_FOUND and task_id is not None:
            return BadInput(f"{task_id} is not running: it has ended, or no worker has started it yet")
        return error


def _session_priority(tenant: str) -> Priority:
    return Priority(priority_key=names.SESSION_PRIORITY, fairness_key=tenant)


async def _look_at_error(operation: WithStartWorkflowOperation[object, object]) -> None:
    """Retrieve the error: the operation keeps a second one for its handle, and asyncio logs errors that are never
    retrieved.
    """
    with suppress(asyncio.CancelledError, RPCError):
        await operation.workflow_handle()
