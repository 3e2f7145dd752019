"""The port to people who are not looking: where notices go."""

from typing import Protocol

from waystation.domain.notices import Notice


class Notifier(Protocol):
    """Tells of one event of a task."""

    async def send(self, notice: Notice, link: str | None) -> None:
        """Deliver it, once or, where the answer is lost, again; `delivery_id` tells repeats. `link`: the task's page.

        Raises:
            WebhookUnavailable: worth another attempt.
            WebhookRefused: another attempt changes nothing.
        """
        ...
