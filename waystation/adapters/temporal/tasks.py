"""What the outside says to running sessions and tasks, by the names of `names`, and what the server answers."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

from pydantic import JsonValue
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
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
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from waystation.adapters.temporal.answers import sent_answers
from waystation.adapters.temporal.codec import encrypts
from waystation.adapters.temporal.connect import (
    REFUSED,
    RPC_TIMEOUT,
    Target,
    connect_as_person,
    described,
    workflow_link,
)
from waystation.adapters.temporal.waits import doings, subagents, waits
from waystation.domain import names
from waystation.domain.amount import Limit
from waystation.domain.details import limit_fields
from waystation.domain.errors import BadInput, Unreachable, WaystationError
from waystation.domain.rewind import TaskRewind
from waystation.domain.sent import SentAnswer
from waystation.domain.session import Admission, SessionStart
from waystation.domain.step_progress import Doing
from waystation.domain.task import TaskPhase, TaskProgress, TaskRef
from waystation.domain.value import Value

QUERY_TIMEOUT = timedelta(seconds=3)
"""A worker that has to load the workflow first answers well within this; without a worker there is no answer."""

RUNNING = f'WorkflowType = "{names.TASK_WORKFLOW}" AND ExecutionStatus = "Running"'
WAITING = f"{RUNNING} AND {names.PENDING_ATTRIBUTE} > 0"

ENDED_AS: Mapping[WorkflowExecutionStatus, TaskPhase] = {
    WorkflowExecutionStatus.CANCELED: TaskPhase.CANCELLED,
    WorkflowExecutionStatus.TERMINATED: TaskPhase.CANCELLED,
    WorkflowExecutionStatus.FAILED: TaskPhase.FAILED,
    WorkflowExecutionStatus.TIMED_OUT: TaskPhase.FAILED,
}

BUSY = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        # A workflow that cannot take a message now, since its worker's attempts fail.
        RPCStatusCode.FAILED_PRECONDITION,
    }
)
"""The same call may succeed later."""


class TaskRun(Value):
    """A task as the server knows it."""

    run_id: str
    progress: TaskProgress | None = None
    """None where no worker answers, and where the workflow ended without a result."""
    waits: tuple[str, ...] = ()
    """Why work is tried again, a sentence each."""
    doing: tuple[Doing, ...] = ()
    """What agents are at, those of subagents included."""
    ended: TaskPhase | None = None
    """Set where the workflow ended without a result."""


class TemporalTasks:
    """Sessions and tasks on one Temporal server. Every method raises Unreachable when the server does not answer."""

    def __init__(self, client: Client, target: Target) -> None:
        self._client = client
        self._target = target

    @classmethod
    async def connect(cls, target: Target, converter: DataConverter = pydantic_data_converter) -> "TemporalTasks":
        """Connect to the server, under the name of whoever runs this program. Raises Unreachable, BadInput.

        Where payloads are encrypted and `converter` has not the key, what reads one raises WrongKey.
        """
        return cls(await connect_as_person(target, converter), target)

    def _begun(self, start: SessionStart) -> SessionStart:
        """What a session is started with: one that is started by who encrypts takes only what was encrypted."""
        sealed = encrypts(self._client.data_converter)
        return start.model_copy(update={"state": start.state.model_copy(update={"sealed": sealed})})

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended for good: its address says nothing more."""
        return self._target.has_ended

    def link(self, task_id: str) -> str | None:
        """The task's page in the Temporal UI, where one is known."""
        return workflow_link(self._target, task_id)

    async def unattended_queues(self) -> tuple[str, ...]:
        """Task queues that no worker has polled in the last minutes."""
        return tuple([queue for queue in names.QUEUES if not await self._has_poller(queue)])

    async def _has_poller(self, queue: str) -> bool:
        kind = (
            TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
            if queue == names.WORKFLOWS_QUEUE
            else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        )
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
        )
        async with self._answering():
            queue_now = await self._client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
        return bool(queue_now.pollers)

    async def admit(self, start: SessionStart, workflow_id: str, task: TaskRef, patience: timedelta) -> Admission:
        """Hand a stored task to its session, which is started if it does not run.

        Raises:
            BadInput: the session refused the task.
            Unreachable: no answer within `patience`; whether the task was taken is then unknown.
        """
        try:
            return await self._update(start, workflow_id, names.SUBMIT_TASK, task, patience)
        except TimeoutError as error:
            raise Unreachable(
                f"no answer in {patience.total_seconds():.0f} s: it is unknown whether {task.task_id} was accepted. "
                "Submitting again with the same request id is safe; `waystation status` tells whether workers run"
            ) from error

    async def rewind(self, start: SessionStart, workflow_id: str, rewind: TaskRewind, patience: timedelta) -> Admission:
        """Have the session let a finished task go on. Raises as `admit` does."""
        task_id = rewind.ref.task_id
        try:
            return await self._update(start, workflow_id, names.REWIND_TASK, rewind, patience)
        except TimeoutError as error:
            raise Unreachable(
                f"no answer in {patience.total_seconds():.0f} s: `waystation show {task_id}` tells whether it goes on"
            ) from error

    async def _update(
        self, start: SessionStart, workflow_id: str, name: str, sent: TaskRef | TaskRewind, patience: timedelta
    ) -> Admission:
        """Raises BadInput where the session refuses, TimeoutError where there is no answer."""
        session: WithStartWorkflowOperation[object, object] = WithStartWorkflowOperation(
            names.SESSION_WORKFLOW,
            self._begun(start),
            id=workflow_id,
            task_queue=names.WORKFLOWS_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        try:
            async with asyncio.timeout(patience.total_seconds()), self._answering():
                admission: Admission = await self._client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec
                    name, sent, start_workflow_operation=session, result_type=Admission
                )
        except WorkflowUpdateFailedError as error:
            raise BadInput(f"the session refused the task: {error.cause}") from error
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError, Unreachable) as error:
            await _look_at_error(session)
            raise TimeoutError from error
        return admission

    async def look(self, task_id: str) -> TaskRun | None:
        """The task as it is now; None where the server does not know it."""
        found = await self._describe(task_id)
        if found is None:
            return None
        handle = self._handle(task_id)
        run = TaskRun(run_id=found.run_id)
        if found.status == WorkflowExecutionStatus.COMPLETED:
            return run.model_copy(update={"progress": await self._result(handle)})
        if found.status is not None and found.status in ENDED_AS:
            return run.model_copy(update={"ended": ENDED_AS[found.status]})
        return await self._at_work(run.model_copy(update={"progress": await self.ask(task_id)}), found)

    async def _at_work(self, run: TaskRun, task: WorkflowExecutionDescription) -> TaskRun:
        """What its activities are at, and why they are tried again: its own, and those of its subagents."""
        children = await asyncio.gather(*map(self._describe, subagents(task)))
        found, converter = [task, *(child for child in children if child is not None)], self._client.data_converter
        why = [sentence for one in found for sentence in await waits(one, converter)]
        doing = [said for one in found for said in await doings(one, converter)]
        doing.sort(key=lambda said: said.agent)
        return run.model_copy(update={"waits": tuple(why), "doing": tuple(doing)})

    async def run_id(self, task_id: str) -> str | None:
        """The task's run; None where the server does not know the task, or no longer."""
        found = await self._describe(task_id)
        return found.run_id if found is not None else None

    async def _describe(self, task_id: str) -> WorkflowExecutionDescription | None:
        async with self._answering():
            return await described(self._client, task_id)

    async def ask(self, task_id: str) -> TaskProgress | None:
        """What the workflow itself says; None where no worker answers for it."""
        try:
            return await self._handle(task_id).query(
                names.PROGRESS, result_type=TaskProgress, rpc_timeout=QUERY_TIMEOUT
            )
        except (RPCError, WorkflowQueryFailedError):
            return None

    async def _result(self, handle: WorkflowHandle[object, TaskProgress]) -> TaskProgress | None:
        try:
            return await handle.result(rpc_timeout=RPC_TIMEOUT)
        except (WorkflowFailureError, RPCError):
            return None

    async def signal(self, task_id: str, signal: str, answer: Mapping[str, JsonValue]) -> None:
        """Send a signal with plain JSON. Raises BadInput if the task does not run."""
        async with self._answering(task_id):
            await self._handle(task_id).signal(signal, answer, rpc_timeout=RPC_TIMEOUT)

    async def sent_answers(self, task_id: str, since: datetime) -> tuple[SentAnswer, ...]:
        """Answers that were sent to the task since then; none where the server has forgotten it."""
        try:
            async with self._answering():
                return await sent_answers(self._client, task_id, since)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return ()
            raise

    async def cancel(self, task_id: str) -> None:
        """Ask the task to stop. Raises BadInput if the task does not run."""
        async with self._answering(task_id):
            await self._handle(task_id).cancel(rpc_timeout=RPC_TIMEOUT)

    async def set_session_limit(self, start: SessionStart, workflow_id: str, limit: Limit) -> None:
        """Set what a session may spend in all. The session is started if it does not run."""
        async with self._answering():
            await self._client.start_workflow(
                names.SESSION_WORKFLOW,
                self._begun(start),
                id=workflow_id,
                task_queue=names.WORKFLOWS_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal=names.SET_SESSION_LIMIT,
                start_signal_args=[limit_fields(limit)],
                rpc_timeout=RPC_TIMEOUT,
            )

    async def waiting_tasks(self) -> tuple[str, ...]:
        """Ids of running tasks that wait for an answer; of all running tasks where the server cannot tell."""
        try:
            return await self._ids(WAITING)
        except RPCError as error:
            if error.status != RPCStatusCode.INVALID_ARGUMENT:
                raise
            return await self._ids(RUNNING)

    async def count_waiting_tasks(self) -> int:
        """How many running tasks wait for an answer. Only where the search attributes are registered."""
        async with self._answering():
            return (await self._client.count_workflows(WAITING, rpc_timeout=RPC_TIMEOUT)).count

    async def _ids(self, query: str) -> tuple[str, ...]:
        async with self._answering():
            return tuple([found.id async for found in self._client.list_workflows(query)])

    def _handle(self, task_id: str) -> WorkflowHandle[object, TaskProgress]:
        return self._client.get_workflow_handle(task_id, result_type=TaskProgress)

    @asynccontextmanager
    async def _answering(self, task_id: str | None = None) -> AsyncGenerator[None]:
        try:
            yield
        except RPCError as error:
            raise self._translated(error, task_id) from error

    def _translated(self, error: RPCError, task_id: str | None) -> WaystationError | RPCError:
        if error.status in BUSY:
            return Unreachable(f"the Temporal server at {self._target.address} does not answer ({error.status.name})")
        if error.status in REFUSED:
            return self._target.refused
        if error.status == RPCStatusCode.NOT_FOUND and task_id is not None:
            return BadInput(f"{task_id} does not run: it has ended, or no worker has taken it up yet")
        return error


async def _look_at_error(operation: WithStartWorkflowOperation[object, object]) -> None:
    """The operation keeps a second error for its handle, and asyncio logs errors that nobody has looked at."""
    with suppress(asyncio.CancelledError, RPCError):
        await operation.workflow_handle()
