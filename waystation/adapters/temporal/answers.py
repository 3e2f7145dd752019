"""Where answers to requests came from, as the history of a task's workflow has it.

The workflow itself cannot see it: signals reach it without their sender.
"""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime

from pydantic import TypeAdapter, ValidationError
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client

from waystation.adapters.temporal.connect import RPC_TIMEOUT
from waystation.domain.names import APPROVE_BUDGET, DENY_BUDGET
from waystation.domain.sent import SentAnswer, SentFields

PAGE_EVENTS = 500
MOST_PAGES = 20
"""A history of more than 10,000 events is not read to its beginning."""
_FIELDS: TypeAdapter[tuple[SentFields, ...]] = TypeAdapter(tuple[SentFields, ...])


async def sent_answers(client: Client, task_id: str, since: datetime) -> tuple[SentAnswer, ...]:
    """Every answer that was sent to the task since then, the newest first, also to earlier runs of its workflow.

    Raises RPCError.
    """
    found: list[SentAnswer] = []
    async for event in _newest_first(client, task_id):
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            continue  # written when the activity ends, under the time at which it began
        at = event.event_time.ToDatetime(tzinfo=UTC)
        if at < since:
            break
        signal = event.workflow_execution_signaled_event_attributes
        if signal.signal_name in {APPROVE_BUDGET, DENY_BUDGET}:
            fields = await _fields(client, event)
            found.append(
                SentAnswer(
                    signal=signal.signal_name,
                    at=at,
                    identity=signal.identity,
                    principal=":".join(filter(None, (event.principal.type, event.principal.name))),
                    fields=fields,
                )
            )
    return tuple(found)


async def _newest_first(client: Client, task_id: str) -> AsyncGenerator[HistoryEvent]:
    """The events of the newest run, then those of the run that it continues, and so on."""
    run_id, token = "", b""
    for _ in range(MOST_PAGES):
        page = await client.workflow_service.get_workflow_execution_history_reverse(
            GetWorkflowExecutionHistoryReverseRequest(
                namespace=client.namespace,
                execution=WorkflowExecution(workflow_id=task_id, run_id=run_id),
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


async def _fields(client: Client, event: HistoryEvent) -> SentFields:
    """What tells one answer from another; nothing of one that cannot be read."""
    payloads = event.workflow_execution_signaled_event_attributes.input.payloads
    try:
        (fields,) = _FIELDS.validate_python(await client.data_converter.decode(list(payloads)))
    except (ValidationError, ValueError, RuntimeError, KeyError):
        return SentFields()
    return fields
