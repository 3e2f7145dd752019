"""Workflow types that move to the current build at their next workflow task, for workers with worker versioning.

All other types are pinned: a run stays on its build, and tasks, scheduled runs and indexing continue as new on the
current one. These three either live for ever or have a single command, and must not keep an old build in use. A change
of their commands needs `workflow.patched`. They are types of their own because the server accepts a versioning behavior
only from versioned workers.
"""

from temporalio import workflow
from temporalio.common import VersioningBehavior

from waystation.kernel.temporal_names import NOTIFICATION_WORKFLOW, RETENTION_WORKFLOW, SESSION_WORKFLOW
from waystation.tasks.notifications import Notification
from waystation.tasks.session import SessionWorkflowInput
from waystation.workflows.notification import NotificationWorkflow
from waystation.workflows.removal import RetentionWorkflow
from waystation.workflows.session import SessionWorkflow


@workflow.defn(name=SESSION_WORKFLOW, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class AutoUpgradeSessionWorkflow(SessionWorkflow):
    """A session, which lives as long as anyone submits tasks to it."""

    @workflow.init
    def __init__(self, start: SessionWorkflowInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: SessionWorkflowInput) -> None:
        """See base class."""
        await super().run(start)


@workflow.defn(name=RETENTION_WORKFLOW, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class AutoUpgradeRetentionWorkflow(RetentionWorkflow):
    """The daily look for expired tasks, which never ends."""

    @workflow.run
    async def run(self) -> None:
        """See base class."""
        await super().run()


@workflow.defn(name=NOTIFICATION_WORKFLOW, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class AutoUpgradeNotificationWorkflow(NotificationWorkflow):
    """A notification, which waits up to a day for a webhook that is down."""

    @workflow.run
    async def run(self, notice: Notification) -> None:
        """See base class."""
        await super().run(notice)
