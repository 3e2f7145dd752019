"""What a workflow's activities do at the moment: what agents are at, by heartbeats; which are tried again, and why."""

from contextlib import suppress
from datetime import UTC

from pydantic import ValidationError
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecutionDescription
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from waystation.domain.step_progress import Doing

AT_WORK = frozenset(
    {
        PendingActivityState.PENDING_ACTIVITY_STATE_STARTED,
        PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED,
    }
)
"""One that waits for another attempt still has the last words of the one before."""


async def waits(described: WorkflowExecutionDescription, converter: DataConverter) -> tuple[str, ...]:
    """A sentence for each: our errors hold values, never content. Raises WrongKey."""
    failed = [one for one in described.raw_description.pending_activities if one.HasField("last_failure")]
    return tuple([f"{one.activity_type.name} is tried again: {await _why(one, converter)}" for one in failed])


async def doings(described: WorkflowExecutionDescription, converter: DataConverter) -> tuple[Doing, ...]:
    """What agents are at, as far as their activities have said so. Raises WrongKey."""
    working = [one for one in described.raw_description.pending_activities if one.state in AT_WORK]
    said = [await _doing(one, converter) for one in working if one.heartbeat_details.payloads]
    return tuple([doing for doing in said if doing is not None])


def subagents(described: WorkflowExecutionDescription) -> tuple[str, ...]:
    """Ids of the workflows in which subagents of this task work now."""
    children = (child.workflow_id for child in described.raw_description.pending_children)
    return tuple(sorted(child for child in children if child.startswith(f"{described.id}/")))


async def _doing(pending: PendingActivityInfo, converter: DataConverter) -> Doing | None:
    """None for details of another release."""
    with suppress(ValidationError, TypeError, RuntimeError):
        (doing,) = await converter.decode(pending.heartbeat_details.payloads, [Doing])
        seen = pending.last_heartbeat_time.ToDatetime(UTC) if pending.HasField("last_heartbeat_time") else None
        return doing.model_copy(update={"seen": seen})
    return None


async def _why(pending: PendingActivityInfo, converter: DataConverter) -> str:
    failure = type(pending.last_failure)()
    failure.CopyFrom(pending.last_failure)  # decoding changes it
    error = await converter.decode_failure(failure)
    if isinstance(error, ApplicationError):
        return f"{error.type}: {error.message}"
    return str(error)
