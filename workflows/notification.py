"""A notice to the webhook: a child that outlives its task."""

from temporalio import workflow

from activities.tasks import NotificationActivities
from waystation.tasks.notifications import TaskNotification
from workflows.options import NOTICE, with_summary


@workflow.defn(name="Notice")
class NotificationWorkflow:
    """One notice, attempted for a day. Its failure is seen in the Temporal UI and nowhere else."""

    @workflow.run
    async def run(self, notice: TaskNotification) -> None:
        """Send it."""
        await workflow.execute_activity_method(
            NotificationActivities.send_notification, notice, **with_summary(NOTICE, "post to the webhook")
        )
