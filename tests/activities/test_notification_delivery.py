from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

import pytest
from pydantic import SecretStr
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from tests.support.notification_values import REQUEST_NOTICE
from tests.support.webhook_server import WebhookResponse, WebhookServer, run_webhook_server
from waystation.activities.tasks import NotificationActivities
from waystation.runtime.hooks import AppriseNotifier, WebhookNotifier
from waystation.tasks.ports import Notifier
from waystation.testing.doubles import RecordingNotifier


def page(task_id: str) -> str:
    return f"http://ui/{task_id}"


async def test_a_notice_goes_out_with_the_page_of_its_task() -> None:
    notifier = RecordingNotifier()
    await ActivityEnvironment().run(NotificationActivities([notifier], page).send_notification, REQUEST_NOTICE)
    assert notifier.sent == [(REQUEST_NOTICE, f"http://ui/{REQUEST_NOTICE.task_id}")]


async def test_a_worker_without_a_webhook_leaves_the_notice_to_the_next_attempt() -> None:
    with pytest.raises(ApplicationError, match="has neither WAYSTATION_WEBHOOK nor WAYSTATION_NOTIFY") as failed:
        await ActivityEnvironment().run(NotificationActivities([], page).send_notification, REQUEST_NOTICE)
    assert not failed.value.non_retryable


def attempt_after(*taken: object) -> tuple[ActivityEnvironment, list[tuple[object, ...]]]:
    """An attempt that finds the details of the one before, and what it says in heartbeats."""
    environment, said = ActivityEnvironment(), list[tuple[object, ...]]()
    environment.info = replace(environment.info, heartbeat_details=taken)
    environment.on_heartbeat = lambda *details: said.append(details)
    return environment, said


async def told_by(stack: AsyncExitStack, webhook: WebhookServer, *messages: WebhookServer) -> list[Notifier]:
    addresses = [SecretStr(server.url.replace("http://", "json://")) for server in messages]
    each = [AppriseNotifier(address, number, gather_s=0.01) for number, address in enumerate(addresses, 1)]
    return [
        await stack.enter_async_context(aclosing(WebhookNotifier(SecretStr(webhook.url)))),
        *[await stack.enter_async_context(aclosing(one)) for one in each],
    ]


async def test_only_those_are_told_again_that_did_not_take_it_also_by_another_worker() -> None:
    async with (
        run_webhook_server() as takes,
        run_webhook_server(WebhookResponse(500), WebhookResponse()) as fails,
        AsyncExitStack() as stack,
    ):
        first, said = attempt_after()
        with pytest.raises(ApplicationError, match=r"address 1 .* \(json\) did not accept the notification") as failed:
            await first.run(
                NotificationActivities(await told_by(stack, takes, fails), page).send_notification, REQUEST_NOTICE
            )
        assert not failed.value.non_retryable
        assert said == [("the webhook at 127.0.0.1",)]
        second, said = attempt_after(*said[-1])
        await second.run(
            NotificationActivities(await told_by(stack, takes, fails), page).send_notification, REQUEST_NOTICE
        )
        assert said == [("the webhook at 127.0.0.1", "address 1 of WAYSTATION_NOTIFY (json)")]
    assert (len(takes.accepted_bodies), len(fails.accepted_bodies)) == (1, 1)


async def test_one_that_refuses_for_good_does_not_end_it_for_another_that_may_take_it_yet() -> None:
    async with (
        run_webhook_server(WebhookResponse(500)) as away,
        run_webhook_server(WebhookResponse(404)) as gone,
        AsyncExitStack() as stack,
    ):
        webhook, message = await told_by(stack, gone, away)
        with pytest.raises(ApplicationError) as failed:
            await ActivityEnvironment().run(
                NotificationActivities([webhook, message], page).send_notification, REQUEST_NOTICE
            )
        assert (failed.value.type, failed.value.non_retryable) == ("WebhookUnavailable", False)
        with pytest.raises(ApplicationError) as failed:
            await ActivityEnvironment().run(NotificationActivities([webhook], page).send_notification, REQUEST_NOTICE)
        assert (failed.value.type, failed.value.non_retryable) == ("WebhookRejectedError", True)
