"""Sends one notification in a child workflow that outlives its task."""

from temporalio import workflow

from waystation.activities.tasks import NotificationActivities
from waystation.kernel.temporal_names import NOTIFICATION_WORKFLOW
from waystation.tasks.notifications import Notification
from waystation.workflows.options import NOTIFICATION, with_summary


@workflow.defn(name=NOTIFICATION_WORKFLOW)
class NotificationWorkflow:
    """Delivers one notification, and retries for a day. Only the Temporal UI shows a failed delivery."""

    @workflow.run
    async def run(self, notice: Notification) -> None:
        """Send the notification."""
        await workflow.execute_activity_method(
            NotificationActivities.send_notification, notice, **with_summary(NOTIFICATION, "send the notification")
        )
