"""The activity that sends a notice."""

from collections.abc import Callable

from temporalio import activity

from activities.failures import reported
from waystation.domain.errors import WebhookUnavailable
from waystation.domain.notices import Notice
from waystation.ports import Notifier


class NoticeActivities:
    """Tells people by a webhook."""

    def __init__(self, notifier: Notifier | None, link: Callable[[str], str | None]) -> None:
        """`link`: a task's page in the Temporal UI, by its id, where one is known."""
        self._notifier, self._link = notifier, link

    @activity.defn(name="SendNotice")
    async def send(self, notice: Notice) -> None:
        """One attempt. A worker without a webhook leaves it to the next attempt, perhaps on another worker."""
        with reported():
            if self._notifier is None:
                raise WebhookUnavailable(
                    "the task was admitted with notices, but this worker has no WAYSTATION_WEBHOOK: set it on all"
                )
            await self._notifier.send(notice, self._link(notice.task_id))
