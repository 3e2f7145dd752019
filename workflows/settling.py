"""What of a session's open tasks is over without having said so."""

from temporalio import workflow

from activities.sessions import ReconcileRequest, SessionActivities
from waystation.domain.session import Settlement
from workflows.options import SHORT, named


async def over(*task_ids: str) -> tuple[Settlement, ...]:
    """Those of the tasks that do not run, with what they spent."""
    found = await workflow.execute_activity_method(
        SessionActivities.reconcile, ReconcileRequest(task_ids=task_ids), **named(SHORT, "look after open tasks")
    )
    return found.settled
