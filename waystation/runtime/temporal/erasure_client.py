"""Erasure over a Temporal server: orders to forget tasks or to erase a person, as workflows; search and deletion of
histories; and searches of memory that workers have open, as activities.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar, cast

from google.protobuf.json_format import MessageToDict, ParseDict
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteActivityExecutionRequest, DeleteWorkflowExecutionRequest
from temporalio.client import (
    ActivityFailureError,
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.client import WorkflowExecution as ListedExecution
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.exceptions import ActivityError, WorkflowAlreadyStartedError
from temporalio.exceptions import TimeoutError as ActivityTimeout
from temporalio.service import RPCError, RPCStatusCode

from waystation.erasure.erasure import ErasureReceipt, ErasureResult, ForgetOrder, MatchedHistory, PersonErasureOrder
from waystation.kernel.errors import BadInput, MemoryUnavailable, Unreachable
from waystation.kernel.scopes import ReadScope
from waystation.kernel.temporal_names import (
    CONTEXT_QUEUE,
    COUNT_PASSAGES,
    ERASE_WORKFLOW,
    FORGET_WORKFLOW,
    RETENTION_WORKFLOW,
    SEARCH_MEMORY,
    WORKFLOWS_QUEUE,
    make_indexing_workflow_id,
    make_notification_id_prefix,
    make_retention_workflow_id,
)
from waystation.memory.passages import MemoryQuery, Passage, ScoredPassage, ScoredPassageRef
from waystation.runtime.temporal.connect import RPC_TIMEOUT, describe_latest_run
from waystation.runtime.temporal.installation import get_client_installation_prefix, to_server_id


async def forget_tasks(client: Client, order: ForgetOrder, summary: str) -> ErasureReceipt:
    """Have the workers carry the order out, and wait for it. If the same order is running, this one runs after it and
    finds what is left: everything deleted is counted once.

    Raises:
        BadInput: The workers refuse the order.
    """
    try:
        return await client.execute_workflow(
            FORGET_WORKFLOW,
            order,
            id=order.workflow_id,
            task_queue=WORKFLOWS_QUEUE,
            result_type=ErasureReceipt,
            static_summary=summary,
        )
    except WorkflowAlreadyStartedError:
        with suppress(WorkflowFailureError):
            await client.get_workflow_handle(order.workflow_id).result()
        return await forget_tasks(client, order, summary)
    except WorkflowFailureError as error:
        raise _refused(error, "forget the tasks") from error


def _refused(error: WorkflowFailureError, what: str) -> BadInput:
    """Build the error for workers that did not carry out an order to do `what`."""
    reason = error.cause.cause if isinstance(error.cause, ActivityError) else error.cause
    return BadInput(f"the workers could not {what}: {reason}")


async def ensure_retention_workflow(client: Client, store_id: str) -> None:
    """Start the workflow that forgets tasks of this store when their time is over, unless it runs."""
    await client.start_workflow(
        RETENTION_WORKFLOW,
        id=make_retention_workflow_id(store_id),
        task_queue=WORKFLOWS_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary="forget tasks whose retention period has ended",
    )


async def delete_histories(client: Client, task_ids: Iterable[str]) -> int:
    """Delete every execution of these tasks, of their subagents, notifications and indexing of documents.

    Returns the number that the server still had; it deletes them a moment later. Raises RPCError.
    """
    return sum([await _delete_all_of(client, task_id) for task_id in task_ids])


async def _delete_all_of(client: Client, task_id: str) -> int:
    """Delete all executions of a task. The server's list lags, so the newest runs of known ids are requested too."""
    listed = {(found.id, found.run_id) async for found in client.list_workflows(_executions_of(client, task_id))}
    newest = {(name, await _newest_run(client, name)) for name in (task_id, make_indexing_workflow_id(task_id))}
    found = {(workflow_id, run_id) for workflow_id, run_id in listed | newest if run_id is not None}
    return sum([await delete_execution(client, *execution) for execution in sorted(found)])


def _executions_of(client: Client, task_id: str) -> str:
    """Build the query for the task's execution, its subagents' (their ids begin with the task's), its notifications'
    and its documents'.
    """
    beginnings = (task_id, make_notification_id_prefix(task_id), make_indexing_workflow_id(task_id))
    return " OR ".join(f'WorkflowId STARTS_WITH "{to_server_id(client, one)}"' for one in beginnings)


async def _newest_run(client: Client, workflow_id: str) -> str | None:
    """Return the newest run id; None: the server does not know the workflow."""
    newest = await describe_latest_run(client, workflow_id)
    return newest.run_id if newest is not None else None


async def delete_execution(client: Client, workflow_id: str, run_id: str = "") -> bool:
    """Delete one execution, by default the newest of the id. Returns False if the server did not have it."""
    execution = WorkflowExecution(workflow_id=to_server_id(client, workflow_id), run_id=run_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    try:
        await client.workflow_service.delete_workflow_execution(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


_POLL_SECONDS = 1.0
ERASURE_STEPS = {
    "FindPerson": "searching the store",
    "EraseFromStore": "removing the person from the store",
    "RewritePassages": "replacing changed passages in memory",
    "RewriteReports": "rewriting the files of reports",
    "DeleteHistories": "deleting closed workflow histories",
    "DropOriginals": "removing originals from the vault",
}
"""Description of each step, by activity."""


async def erase_person(client: Client, order: PersonErasureOrder, tell: Callable[[str], None]) -> ErasureResult:
    """Have the workers carry the order out, and wait for it. The same order while it runs is the same workflow.

    `tell` is called with a short text whenever another step begins. Raises BadInput if they refuse it.
    """
    handle = await client.start_workflow(
        ERASE_WORKFLOW,
        order,
        id=order.workflow_id,
        task_queue=WORKFLOWS_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        result_type=ErasureResult,
        static_summary="erase one person",
    )
    telling = asyncio.create_task(_tell_steps(handle, tell))
    try:
        return await handle.result()
    except WorkflowFailureError as error:
        raise _refused(error, "erase the person") from error
    finally:
        telling.cancel()


async def _tell_steps(handle: WorkflowHandle[object, ErasureResult], tell: Callable[[str], None]) -> None:
    """Report each step once, until this is cancelled or the server does not answer: the caller's own wait
    reports that.
    """
    told = ""
    with suppress(RPCError):
        while True:
            pending = (await handle.describe()).raw_description.pending_activities
            step = next(
                (ERASURE_STEPS[one.activity_type.name] for one in pending if one.activity_type.name in ERASURE_STEPS),
                told,
            )
            if step != told:
                tell(step)
                told = step
            await asyncio.sleep(_POLL_SECONDS)


async def get_last_erasure(client: Client, workflow_id: str) -> ErasureResult | None:
    """Return the result of the last order of this id, waiting for one that is running.

    None: the server has none that was carried out. Raises RPCError.
    """
    try:
        return await client.get_workflow_handle(workflow_id, result_type=ErasureResult).result()
    except WorkflowFailureError:
        return None
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise


async def find_histories(
    client: Client, own: Collection[str], count: Callable[[str], int]
) -> tuple[MatchedHistory, ...]:
    """Find histories of these workflows, or of workflows about them, in which `count` finds something.

    Payloads are decrypted; `own` are ids of a tenant's tasks and sessions. Raises RPCError, WrongKey.
    """
    found = list[MatchedHistory]()
    async for listed in client.list_workflows():
        if not any(one in listed.id for one in own):
            continue
        number = sum([count(text) async for text in _texts(client, listed)])
        if number:
            closed = listed.status != WorkflowExecutionStatus.RUNNING
            own_id = listed.id.removeprefix(get_client_installation_prefix(client))
            found.append(MatchedHistory(workflow_id=own_id, run_id=listed.run_id, closed=closed, count=number))
    return tuple(found)


async def delete_found_histories(client: Client, seen: Collection[MatchedHistory]) -> int:
    """Delete these histories.

    Returns the number that the server still had; it deletes them a moment later. Raises RPCError.
    """
    return sum([await delete_execution(client, one.workflow_id, one.run_id) for one in seen])


async def is_workflow_running(client: Client, workflow_id: str) -> bool:
    """Return whether the newest run of this workflow is open. Raises RPCError."""
    newest = await describe_latest_run(client, workflow_id)
    return newest is not None and newest.status == WorkflowExecutionStatus.RUNNING


async def _texts(client: Client, listed: ListedExecution) -> AsyncGenerator[str]:
    """Yield every text of a history, including those in payloads."""
    handle = client.get_workflow_handle(listed.id, run_id=listed.run_id)
    codec = client.data_converter.payload_codec
    async for event in handle.fetch_history_events():
        for part in _parts(MessageToDict(event)):
            if isinstance(part, str):
                yield part
            else:
                opened = await codec.decode([part]) if codec else [part]
                for payload in opened:
                    yield payload.data.decode(errors="replace")


def _parts(message: object) -> Iterator[str | Payload]:
    """Yield the texts and payloads of a message, as in protobuf's JSON."""
    match message:
        case str():
            yield message
        case dict():
            fields = cast("dict[str, object]", message)
            if "metadata" in fields and isinstance(fields.get("data"), str):
                yield ParseDict(fields, Payload())
            else:
                for part in fields.values():
                    yield from _parts(part)
        case list():
            for part in cast("list[object]", message):
                yield from _parts(part)
        case _:
            pass


ACCEPT_TIMEOUT = timedelta(seconds=5)
COMPLETION_TIMEOUT = timedelta(seconds=60)
_T = TypeVar("_T")


class ActivityMemorySearch:
    """Implements the port `MemorySearch` over memory that workers have open: each search is an activity of its own, and
    leaves nothing on the server.

    Results arrive as ids; `get_passages` loads the passages.
    """

    def __init__(
        self, client: Client, passages_with: Callable[[Sequence[str], ReadScope], Awaitable[tuple[Passage, ...]]]
    ) -> None:
        self._client, self._passages_with = client, passages_with

    async def search(self, query: MemoryQuery) -> tuple[ScoredPassage, ...]:
        """Return the best passages that match the query. Its text must be redacted, since the server sees it.

        Raises Unreachable if no worker takes it, MemoryUnavailable.
        """
        located = await self._asked(SEARCH_MEMORY, query, tuple[ScoredPassageRef, ...])
        ids = [one.passage_id for one in located]
        passages = {passage.id: passage for passage in await self._passages_with(ids, query.reader)}
        return tuple(
            ScoredPassage(passage=passages[one.passage_id], score=one.score)
            for one in located
            if one.passage_id in passages
        )

    async def count(self, tenant: str) -> int:
        """Return the number of a tenant's passages. Raises as `search`."""
        return await self._asked(COUNT_PASSAGES, tenant, int)

    async def _asked(self, name: str, about: MemoryQuery | str, kind: type[_T]) -> _T:
        activity_id = f"{name}-{uuid.uuid4().hex}"
        try:
            return await self._client.execute_activity(
                name,
                about,
                id=activity_id,
                task_queue=CONTEXT_QUEUE,
                result_type=kind,
                schedule_to_start_timeout=ACCEPT_TIMEOUT,
                start_to_close_timeout=COMPLETION_TIMEOUT,
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except ActivityFailureError as error:
            if isinstance(error.cause, ActivityTimeout):
                raise Unreachable(
                    "another process has the memory open, and no worker answers: `waystation status` shows "
                    "what runs on this machine. `waystation memory reindex` also keeps the memory open"
                ) from error
            raise MemoryUnavailable(str(error.cause)) from error
        except RPCError as error:
            raise Unreachable(f"the Temporal server does not answer ({error.status.name})") from error
        finally:
            with suppress(RPCError):
                gone = DeleteActivityExecutionRequest(namespace=self._client.namespace, activity_id=activity_id)
                await self._client.workflow_service.delete_activity_execution(gone, retry=True, timeout=RPC_TIMEOUT)
