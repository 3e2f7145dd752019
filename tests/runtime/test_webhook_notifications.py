"""Notices over real HTTP on loopback: what is delivered, what is tried again, and what nobody may read."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import pytest
from inline_snapshot import snapshot
from pydantic import SecretStr

from tests.support.free_ports import find_free_port
from tests.support.notification_values import REQUEST_NOTICE
from tests.support.webhook_server import (
    NO_RESPONSE,
    SECRET,
    WebhookResponse,
    WebhookServer,
    parse_event_payload,
    run_webhook_server,
)
from waystation.kernel.errors import WebhookRejectedError, WebhookUnavailable
from waystation.runtime.hooks import MAX_WAIT, WebhookNotifier
from waystation.tasks.notifications import render_mrkdwn
from waystation.tasks.ports import Notifier
from waystation.testing.doubles import RecordingNotifier

DATE = "Sat, 21 Nov 2026 12:00:00 GMT"


@asynccontextmanager
async def webhook_to(server: WebhookServer, patience_s: float = 10.0) -> AsyncGenerator[WebhookNotifier]:
    async with aclosing(WebhookNotifier(SecretStr(server.url), patience_s)) as webhook:
        yield webhook


async def test_a_notice_is_posted_as_text_for_people_and_metadata_for_programs() -> None:
    async with run_webhook_server() as server, webhook_to(server) as webhook:
        await webhook.send(REQUEST_NOTICE, "http://ui")
    (body,) = server.accepted_bodies
    assert server.paths == {f"/services/{SECRET}"}
    assert sorted(body) == ["metadata", "text"]
    assert body["text"] == render_mrkdwn(REQUEST_NOTICE, "http://ui")
    assert isinstance(body["metadata"], dict)
    assert body["metadata"]["event_type"] == "waystation_budget_asked"
    assert parse_event_payload(body)["delivery_id"] == REQUEST_NOTICE.delivery_id


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_every_success_is_a_delivery(status: int) -> None:
    async with run_webhook_server(WebhookResponse(status)) as server, webhook_to(server) as webhook:
        await webhook.send(REQUEST_NOTICE, None)
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 599])
async def test_what_may_pass_is_worth_another_attempt_and_the_next_one_delivers(status: int) -> None:
    async with run_webhook_server(WebhookResponse(status), WebhookResponse()) as server, webhook_to(server) as webhook:
        with pytest.raises(WebhookUnavailable, match=rf"^the webhook at 127\.0\.0\.1 answered {status}$"):
            await webhook.send(REQUEST_NOTICE, None)
        await webhook.send(REQUEST_NOTICE, None)
    assert [parse_event_payload(body)["delivery_id"] for _, body in server.asked] == [REQUEST_NOTICE.delivery_id] * 2
    assert len(server.accepted_bodies) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
async def test_a_refusal_is_final_and_says_what_to_check(status: int) -> None:
    async with run_webhook_server(WebhookResponse(status)) as server, webhook_to(server) as webhook:
        with pytest.raises(
            WebhookRejectedError,
            match=f"answered {status} \\(the notification is not sent again\\): check WAYSTATION_WEBHOOK",
        ):
            await webhook.send(REQUEST_NOTICE, None)


async def test_a_redirect_is_not_followed() -> None:
    async with run_webhook_server() as elsewhere:
        redirect = WebhookResponse(307, {"Location": elsewhere.url})
        async with run_webhook_server(redirect) as server, webhook_to(server) as webhook:
            with pytest.raises(WebhookRejectedError, match=r"answered 307 \(a redirect, which is not followed\)"):
                await webhook.send(REQUEST_NOTICE, None)
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Sat, 21 Nov 2026 12:01:30 GMT", "Date": DATE}, 90.0),
        ({"Retry-After": "Sat, 21 Nov 2026 11:00:00 GMT", "Date": DATE}, 0.0),
        ({"Retry-After": "9" * 400}, MAX_WAIT.total_seconds()),
        ({"Retry-After": "Sun, 21 Nov 2027 12:00:00 GMT", "Date": DATE}, MAX_WAIT.total_seconds()),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({}, None),
    ],
)
async def test_the_delay_that_the_server_names_comes_along(headers: dict[str, str], seconds: float | None) -> None:
    async with run_webhook_server(WebhookResponse(429, headers)) as server, webhook_to(server) as webhook:
        with pytest.raises(WebhookUnavailable) as refused:
            await webhook.send(REQUEST_NOTICE, None)
    assert refused.value.retry_after == seconds


async def test_a_server_that_hangs_is_given_up() -> None:
    async with run_webhook_server(NO_RESPONSE) as server, webhook_to(server, patience_s=2) as webhook:
        with pytest.raises(WebhookUnavailable, match=r"the webhook at 127\.0\.0\.1 did not answer within 2 s"):
            await webhook.send(REQUEST_NOTICE, None)
    assert len(server.asked) == 1


async def test_a_refused_connection_is_worth_another_attempt() -> None:
    nowhere = WebhookServer([], f"http://127.0.0.1:{find_free_port()}/services/{SECRET}")
    async with webhook_to(nowhere) as webhook:
        with pytest.raises(WebhookUnavailable) as failed:
            await webhook.send(REQUEST_NOTICE, None)
    assert str(failed.value) == snapshot("the connection to the webhook at 127.0.0.1 failed: nothing listens there")


@pytest.mark.parametrize(
    "answers",
    [
        (WebhookResponse(),),
        (WebhookResponse(404),),
        (WebhookResponse(500),),
        (WebhookResponse(302, {"Location": "/"}),),
        (NO_RESPONSE,),
    ],
)
async def test_the_secret_path_is_in_no_log_and_no_error(
    answers: tuple[WebhookResponse, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = ""
    async with run_webhook_server(*answers) as server, webhook_to(server, patience_s=0.2) as webhook:
        try:
            await webhook.send(REQUEST_NOTICE, None)
        except (WebhookRejectedError, WebhookUnavailable) as error:
            said = f"{error}{error.__cause__}{error.__suppress_context__ or error.__context__}"
        said += repr(webhook)
    assert len(server.asked) == 1
    written = said + "".join(record.getMessage() for record in caplog.records if "httpx" in record.name)
    assert SECRET not in written
    assert "must not be repeated" not in written


async def test_other_requests_are_logged_as_ever_also_after_it_was_closed() -> None:
    before = list(logging.getLogger("httpx2").filters)
    async with run_webhook_server() as server, webhook_to(server):
        (keeps_the_secret,) = [each for each in logging.getLogger("httpx2").filters if each not in before]
        assert callable(keeps_the_secret)
        other = logging.LogRecord("httpx2", logging.INFO, "", 1, "HTTP Request: POST http://other", (), None)
        assert keeps_the_secret(other)
    assert logging.getLogger("httpx2").filters == before


# -------------------------------------------------------------------------------------------- the contract of the port


@asynccontextmanager
async def real(up: bool) -> AsyncGenerator[tuple[Notifier, WebhookServer]]:
    async with run_webhook_server(WebhookResponse(200 if up else 503)) as server, webhook_to(server) as webhook:
        yield webhook, server


async def test_real_and_double_deliver_or_say_that_it_is_worth_another_attempt() -> None:
    double = RecordingNotifier()
    async with real(up=True) as (webhook, server):
        await webhook.send(REQUEST_NOTICE, None)
        await double.send(REQUEST_NOTICE, None)
    assert (len(server.accepted_bodies), double.sent) == (1, [(REQUEST_NOTICE, None)])
    double.failing = True
    async with real(up=False) as (webhook, _):
        for notifier in (webhook, double):
            with pytest.raises(WebhookUnavailable):
                await notifier.send(REQUEST_NOTICE, None)
