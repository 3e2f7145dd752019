"""Where this process sends notices: to the webhook that is set, or nowhere."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from functools import partial

from activities.notices import NoticeActivities
from waystation.adapters.temporal.connect import Target, workflow_link
from waystation.adapters.webhook.notifier import Webhook
from waystation.settings import Settings


@asynccontextmanager
async def opened_notices(settings: Settings, target: Target) -> AsyncGenerator[NoticeActivities]:
    """Without a webhook there are notices only where another worker that has one admitted the task: none is lost."""
    link = partial(workflow_link, target)
    if settings.webhook is None:
        yield NoticeActivities(None, link)
        return
    async with aclosing(Webhook(settings.webhook)) as webhook:
        yield NoticeActivities(webhook, link)
