"""Why a workflow waits although nobody is asked: activities whose last attempt failed, and which are tried again."""

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecutionDescription
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError


async def waits(described: WorkflowExecutionDescription, converter: DataConverter) -> tuple[str, ...]:
    """A sentence for each: our errors hold values, never content. Raises WrongKey."""
    failed = [one for one in described.raw_description.pending_activities if one.HasField("last_failure")]
    return tuple([f"{one.activity_type.name} is tried again: {await _why(one, converter)}" for one in failed])


async def _why(pending: PendingActivityInfo, converter: DataConverter) -> str:
    failure = type(pending.last_failure)()
    failure.CopyFrom(pending.last_failure)  # decoding changes it
    error = await converter.decode_failure(failure)
    if isinstance(error, ApplicationError):
        return f"{error.type}: {error.message}"
    return str(error)
