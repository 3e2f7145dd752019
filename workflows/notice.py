"""A notice to the webhook: a child that outlives its task."""

from temporalio import workflow

from activities.tasks import NoticeActivities
from waystation.tasks.notices import Notice
from workflows.options import NOTICE, with_summary


@workflow.defn(name="Notice")
class NoticeWorkflow:
    """One notice, attempted for a day. Its failure is seen in the Temporal UI and nowhere else."""

    @workflow.run
    async def run(self, notice: Notice) -> None:
        """Send it."""
        await workflow.execute_activity_method(
            NoticeActivities.send, notice, **with_summary(NOTICE, "post to the webhook")
        )
