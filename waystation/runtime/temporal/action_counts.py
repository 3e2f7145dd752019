"""Temporal actions of a task, counted in the histories of its workflow and of the child workflows."""

from collections import Counter

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from waystation.runtime.temporal.connect import RPC_TIMEOUT, describe_latest_run
from waystation.runtime.temporal.installation import get_client_installation_prefix
from waystation.tasks.progress import TemporalActionCounts

_ACTIONS_OF_A_CHILD = 2
"""Temporal Cloud charges two actions for the start of a child workflow."""
_KINDS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: "workflows",
    EventType.EVENT_TYPE_TIMER_STARTED: "timers",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "search_attribute_updates",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "updates",
    EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: "signals",
}


async def count_temporal_actions(client: Client, workflow_id: str) -> TemporalActionCounts | None:
    """Count the actions of a workflow and of its child workflows, of all their runs, as Temporal Cloud charges them.

    Returns:
        None if the server no longer has the workflow's history.

    Raises:
        RPCError: The server does not answer.
    """
    latest = await describe_latest_run(client, workflow_id)
    if latest is None:
        return None
    found = Counter[str](workflows=1)
    prefix = get_client_installation_prefix(client)
    runs = [(workflow_id, latest.raw_description.workflow_execution_info.first_run_id or latest.run_id)]
    read = lost = 0
    while runs:
        workflow_id, run_id = runs.pop()
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        try:
            async for event in handle.fetch_history_events(rpc_timeout=RPC_TIMEOUT):
                _count_event(event, found)
                child = event.child_workflow_execution_started_event_attributes.workflow_execution
                if child.workflow_id:
                    runs.append((child.workflow_id.removeprefix(prefix), child.run_id))
                if next_run := event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id:
                    runs.append((workflow_id, next_run))
            read += 1
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            lost += 1
    return TemporalActionCounts(**found, complete=not lost) if read else None


def _count_event(event: HistoryEvent, found: Counter[str]) -> None:
    if kind := _KINDS.get(event.event_type):
        found[kind] += 1
    elif event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
        found["workflows"] += _ACTIONS_OF_A_CHILD
    elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
        found["activities"] += event.activity_task_started_event_attributes.attempt
    elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
        # A signal of another workflow is an action of its sender.
        sender = event.workflow_execution_signaled_event_attributes.external_workflow_execution
        found["signals"] += not sender.workflow_id
