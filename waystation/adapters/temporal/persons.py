"""One person over a Temporal server: the order as a workflow, and what closed and open histories have of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import suppress
from typing import cast

from google.protobuf.json_format import MessageToDict, ParseDict
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.client import WorkflowExecution as ListedExecution
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from waystation.adapters.temporal.connect import described
from waystation.adapters.temporal.forgetting import delete_history, refused
from waystation.domain.names import ERASE_WORKFLOW, WORKFLOWS_QUEUE
from waystation.domain.persons import Erasure, PersonOrder, SeenHistory

LOOK_SECONDS = 1.0
STEPS = {
    "FindPerson": "looking through what the store has",
    "EraseFromStore": "taking it out of the store",
    "RewritePassages": "writing changed passages over what memory has",
    "RewriteReports": "writing files of reports anew",
    "DeleteHistories": "deleting closed workflow histories",
    "DropOriginals": "taking originals out of the vault",
}
"""By activity, what is going on."""


async def carry_out(client: Client, order: PersonOrder, tell: Callable[[str], None]) -> Erasure:
    """Have the workers carry the order out, and wait for it. The same order while it runs is the same workflow.

    `tell` gets a few words whenever another step is under way. Raises BadInput where they refuse it.
    """
    handle = await client.start_workflow(
        ERASE_WORKFLOW,
        order,
        id=order.workflow_id,
        task_queue=WORKFLOWS_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        result_type=Erasure,
        static_summary="erase one person",
    )
    telling = asyncio.create_task(_tell_steps(handle, tell))
    try:
        return await handle.result()
    except WorkflowFailureError as error:
        raise refused(error, "erase") from error
    finally:
        telling.cancel()


async def _tell_steps(handle: WorkflowHandle[object, Erasure], tell: Callable[[str], None]) -> None:
    """Tell each step once, until this is cancelled, or the server gives no answer: whoever waits for the end hears."""
    told = ""
    with suppress(RPCError):
        while True:
            pending = (await handle.describe()).raw_description.pending_activities
            step = next((STEPS[one.activity_type.name] for one in pending if one.activity_type.name in STEPS), told)
            if step != told:
                tell(step)
                told = step
            await asyncio.sleep(LOOK_SECONDS)


async def last_erasure(client: Client, workflow_id: str) -> Erasure | None:
    """What the last order of this id did; one that is under way is waited for. None: the server has none that was
    carried out. Raises RPCError.
    """
    try:
        return await client.get_workflow_handle(workflow_id, result_type=Erasure).result()
    except WorkflowFailureError:
        return None
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise


async def histories_with(client: Client, own: Collection[str], count: Callable[[str], int]) -> tuple[SeenHistory, ...]:
    """Histories of these workflows, or of workflows about them, in which `count` finds something.

    Payloads are decrypted; `own` are ids of a tenant's tasks and sessions. Raises RPCError, WrongKey.
    """
    found = list[SeenHistory]()
    async for listed in client.list_workflows():
        if not any(one in listed.id for one in own):
            continue
        number = sum([count(text) async for text in _texts(client, listed)])
        if number:
            closed = listed.status != WorkflowExecutionStatus.RUNNING
            found.append(SeenHistory(workflow_id=listed.id, run_id=listed.run_id, closed=closed, count=number))
    return tuple(found)


async def delete_seen(client: Client, seen: Collection[SeenHistory]) -> int:
    """Delete these; how many the server still had. It deletes them a moment later. Raises RPCError."""
    return sum([await delete_history(client, one.workflow_id, one.run_id) for one in seen])


async def running(client: Client, workflow_id: str) -> bool:
    """Whether the newest run of this workflow is open. Raises RPCError."""
    newest = await described(client, workflow_id)
    return newest is not None and newest.status == WorkflowExecutionStatus.RUNNING


async def _texts(client: Client, listed: ListedExecution) -> AsyncGenerator[str]:
    """Every text of a history, what payloads hold among them."""
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
    """What a message says, as protobuf's JSON has it: texts, and payloads."""
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
