"""The decoded contents of a workflow's history."""

import base64
from collections.abc import Iterator, Sequence
from typing import TypeVar, cast

from google.protobuf.json_format import MessageToDict
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle

WorkflowT = TypeVar("WorkflowT")
ResultT = TypeVar("ResultT")


async def fetch_events(handle: WorkflowHandle[WorkflowT, ResultT]) -> list[HistoryEvent]:
    """Return the events of the newest run."""
    return list((await handle.fetch_history()).events)


def list_event_kinds(said: list[HistoryEvent]) -> list[str]:
    """Return names of the events and, for a scheduled activity, of the activity."""
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        or EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower()
        for event in said
    ]


def list_timer_summaries(said: list[HistoryEvent]) -> list[str]:
    """Return what the timers are for, as the UI shows it."""
    return [
        event.user_metadata.summary.data.decode() for event in said if event.HasField("timer_started_event_attributes")
    ]


def join_all_strings(said: Sequence[HistoryEvent]) -> str:
    """Return all strings of the events, with payloads decoded."""
    return "\n".join(text for event in said for text in _strings(MessageToDict(event)))


def _strings(part: object) -> Iterator[str]:
    match part:
        case str():
            yield part
        case dict():
            fields = cast("dict[str, object]", part)
            if "metadata" in fields and isinstance(fields.get("data"), str):
                yield base64.b64decode(str(fields["data"])).decode()
            else:
                yield from (text for value in fields.values() for text in _strings(value))
        case list():
            yield from (text for value in cast("list[object]", part) for text in _strings(value))
        case _:
            pass


async def fetch_current_details(handle: WorkflowHandle[WorkflowT, ResultT]) -> str:
    """Return the current details, as the UI shows them."""
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return metadata.current_details
