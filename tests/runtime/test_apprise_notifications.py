"""Notices by Apprise, over real HTTP on loopback: what comes together is one message, and no address is told."""

import asyncio
import logging
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr
from temporalio.envconfig import ClientConfigProfile

from tests.support.notification_values import REQUEST_NOTICE, make_end_notice
from tests.support.web_site import run_site
from tests.support.webhook_server import NO_RESPONSE, SECRET, WebhookResponse, WebhookServer, run_webhook_server
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, WebhookUnavailable
from waystation.runtime.apprise_sender import AppriseMessage, send_notification
from waystation.runtime.hooks import GATHER_S, MESSAGE_TIMEOUT_S, AppriseNotifier
from waystation.runtime.temporal.connect import TemporalTarget
from waystation.tasks.ports import Notifier
from waystation.tasks.task import TaskPhase
from waystation.workers.external_systems import build_task_link, create_notifiers
from waystation.workflows.options import NOTIFICATION

DONE = make_end_notice(TaskPhase.DONE)


def address_of(server: WebhookServer) -> SecretStr:
    return SecretStr(server.url.replace("http://", "json://"))


@asynccontextmanager
async def messages_to(server: WebhookServer, patience_s: float = 10.0) -> AsyncGenerator[AppriseNotifier]:
    told = AppriseNotifier(address_of(server), 1, "https://w.example.org", gather_s=0.05, patience_s=patience_s)
    async with aclosing(told):
        yield told


async def test_a_notice_is_told_in_words_with_the_page_of_its_task_and_where_to_answer() -> None:
    async with run_webhook_server() as server, messages_to(server) as messages:
        notifier: Notifier = messages
        await notifier.send(REQUEST_NOTICE, "https://w.example.org/tasks/task-1")
    (body,) = server.accepted_bodies
    assert body["title"] == "task-0123456789abcdef: new request harbours-1"
    said = str(body["message"])
    assert said.startswith("`harbours` asks for 2,387 tokens. The deadline is 2026-11-22 00:00 UTC.")
    assert "“How is the bar ‹crossed› & when?”" in said
    assert said.endswith("https://w.example.org/tasks/task-1\n\nAnswer at https://w.example.org")


LURE = "@everyone <!channel> [approve here](https://evil.example) <https://evil.example|it> <PERSON_7f3a2c91d04e>"


@pytest.mark.parametrize("count", [1, 2])
async def test_no_question_calls_everybody_or_makes_a_link_where_markdown_is_read(count: int) -> None:
    lures = [
        REQUEST_NOTICE.replace(title=LURE, request=REQUEST_NOTICE.request.replace(request_id=f"r-{one}"))
        for one in range(count)
        if REQUEST_NOTICE.request is not None
    ]
    async with run_webhook_server() as server, messages_to(server) as messages:
        await asyncio.gather(*(messages.send(one, None) for one in lures))
    (body,) = server.accepted_bodies
    said = str(body["message"])
    assert "＠everyone ‹!channel› (approve here)(https://evil.example)" in said
    assert said.count("<PERSON_7f3a2c91d04e>") == count
    assert {"@", "[", "]"}.isdisjoint(said)


async def test_forty_notices_that_come_together_are_one_message_and_what_comes_later_is_another() -> None:
    requests = [
        REQUEST_NOTICE.replace(request=REQUEST_NOTICE.request.replace(request_id=f"r-{number}"))
        for number in range(45)
        if REQUEST_NOTICE.request is not None
    ]
    async with run_webhook_server() as server, messages_to(server) as messages:
        await asyncio.gather(*(messages.send(one, None) for one in requests))
        await messages.send(DONE, None)
    together, later = server.accepted_bodies
    lines = str(together["message"]).splitlines()
    assert together["title"] == "45 notices"
    assert lines[0] == "- task-0123456789abcdef: new request r-0: “How is the bar ‹crossed› & when?”"
    assert lines[39:] == [lines[0].replace("r-0", "r-39"), "and 5 more", "", "Answer at https://w.example.org"]
    assert later["title"] == "task-0123456789abcdef: done"


@pytest.mark.parametrize("answer", [WebhookResponse(500), WebhookResponse(404), NO_RESPONSE])
async def test_what_is_not_taken_is_told_again_and_the_address_is_in_no_log_and_no_error(
    answer: WebhookResponse, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with run_webhook_server(answer, WebhookResponse()) as server, messages_to(server, patience_s=1) as messages:
        with pytest.raises(WebhookUnavailable) as failed:
            await messages.send(REQUEST_NOTICE, None)
        server.answers = [WebhookResponse()]
        while not server.accepted_bodies:  # an attempt may hear only that the one before had not been answered
            with suppress(WebhookUnavailable):
                await messages.send(REQUEST_NOTICE, None)
        said = f"{failed.value}{failed.value.__cause__}{failed.value.__context__}{messages!r}"
    assert str(failed.value).startswith("address 1 of WAYSTATION_NOTIFY (json) did not")
    assert len(server.accepted_bodies) == 1
    written = said + "".join(one.getMessage() for one in caplog.records if one.name != "aiohttp.access")
    assert SECRET not in written
    assert SECRET.rpartition("/")[2] not in written
    assert "must not be repeated" not in written


async def test_a_message_whose_fate_was_not_heard_is_waited_for_and_not_sent_again() -> None:
    async with run_webhook_server(NO_RESPONSE, WebhookResponse()) as server, messages_to(server) as messages:
        attempt = asyncio.create_task(messages.send(REQUEST_NOTICE, None))
        while not server.asked:
            await asyncio.sleep(0.01)
        attempt.cancel()
        again = asyncio.create_task(messages.send(REQUEST_NOTICE, None))
        await messages.send(DONE, None)
        server.closing.set()
        await again
        assert [body["title"] for _, body in server.asked] == [
            "task-0123456789abcdef: new request harbours-1",
            "task-0123456789abcdef: done",
        ]
        await messages.send(REQUEST_NOTICE, None)
    assert len(server.asked) == 3


@asynccontextmanager
async def answering_on(
    wait_s: float, part: bytes, parts: int
) -> AsyncGenerator[tuple[SecretStr, asyncio.Event, asyncio.Event]]:
    """An address whose service answers with so many parts; whether it was asked, and whether who asked went away."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        asked.set()
        try:
            for _ in range(parts):
                await response.write(part)
                await asyncio.sleep(wait_s)
        except (ConnectionError, asyncio.CancelledError):
            left.set()
            raise
        return response

    async with run_site({"/": answer}) as site:
        yield SecretStr(site.url("/").replace("http://", "json://")), asked, left


async def test_an_answer_that_has_no_end_ends_the_process_that_reads_it() -> None:
    async with answering_on(0, b"x" * 1_000_000, 300) as (address, _, left):
        async with aclosing(AppriseNotifier(address, 1, gather_s=0, memory=250_000_000)) as messages:
            with pytest.raises(
                WebhookUnavailable, match=r"^address 1 of WAYSTATION_NOTIFY \(json\) did not accept the notification$"
            ):
                await messages.send(REQUEST_NOTICE, None)
        assert left.is_set()


async def test_an_answer_that_drips_is_left_after_a_while() -> None:
    async with (
        answering_on(0.1, b"x", 1_000_000) as (address, _, left),
        aclosing(AppriseNotifier(address, 1, gather_s=0, patience_s=1, ends_s=5)) as messages,
    ):
        for _ in range(60):
            if not left.is_set():
                with pytest.raises(WebhookUnavailable, match=r"did not (answer|take)"):
                    await messages.send(REQUEST_NOTICE, None)
        assert left.is_set()


async def test_closing_ends_who_still_sends() -> None:
    async with answering_on(0.1, b"x", 1_000_000) as (address, asked, left), asyncio.timeout(120):
        async with aclosing(AppriseNotifier(address, 1, gather_s=0)) as messages:
            attempt = asyncio.create_task(messages.send(REQUEST_NOTICE, None))
            await asked.wait()
            attempt.cancel()
        await left.wait()


async def test_a_process_has_ended_even_if_closing_comes_while_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Process] = []
    dying = asyncio.Event()
    start = asyncio.create_subprocess_exec

    class DiesSlowly:
        """The process, except that it says when someone waits for its end."""

        def __init__(self, process: Process) -> None:
            self._process = process

        async def wait(self) -> int:
            dying.set()
            return await self._process.wait()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._process, name)

    async def seen(*arguments: str, **options: Any) -> DiesSlowly:
        started.append(await start(*arguments, **options))
        return DiesSlowly(started[-1])

    monkeypatch.setattr(asyncio, "create_subprocess_exec", seen)
    async with answering_on(0.1, b"x", 1_000_000) as (address, _, _), asyncio.timeout(120):
        async with aclosing(AppriseNotifier(address, 1, gather_s=0, patience_s=60, ends_s=3)) as messages:
            attempt = asyncio.create_task(messages.send(REQUEST_NOTICE, None))
            await dying.wait()
        attempt.cancel()
    assert [one.returncode for one in started] == [-signal.SIGKILL]


async def test_no_address_stands_in_the_arguments_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[tuple[object, ...], dict[str, Any]]] = []
    monkeypatch.setenv("WAYSTATION_KEY", "hush")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    start = asyncio.create_subprocess_exec

    async def seen(*arguments: str, **options: Any) -> Process:
        started.append((arguments, options))
        return await start(*arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", seen)
    async with run_webhook_server() as server, messages_to(server) as messages:
        await messages.send(REQUEST_NOTICE, None)
    ((arguments, options),) = started
    assert SECRET not in f"{arguments}{options}"
    assert options["env"]["https_proxy"] == "http://127.0.0.1:1"
    assert "WAYSTATION_KEY" not in options["env"]


def test_mail_gets_the_time_at_each_step_that_mail_servers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    from apprise.plugins.email.base import NotifyEmail  # noqa: PLC0415 - of an extra

    waits: list[float] = []

    def send(service: NotifyEmail, *_: object, **__: object) -> bool:
        waits.append(service.socket_connect_timeout)
        return True

    monkeypatch.setattr(NotifyEmail, "send", send)
    assert send_notification(AppriseMessage("mailto://u:p@example.org", "T", "B", MESSAGE_TIMEOUT_S))
    assert waits == [MESSAGE_TIMEOUT_S]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("asked_for", ["", "?redirect=yes"])
async def test_a_redirect_is_no_taking_and_nobody_else_is_told(status: int, asked_for: str) -> None:
    async with run_webhook_server() as inside:
        async with run_webhook_server(WebhookResponse(status, {"Location": inside.url})) as server:
            address = SecretStr(f"{address_of(server).get_secret_value()}{asked_for}")
            async with aclosing(AppriseNotifier(address, 1, gather_s=0.05)) as messages:
                with pytest.raises(WebhookUnavailable, match="did not accept the notification"):
                    await messages.send(REQUEST_NOTICE, None)
        assert [one for one, _ in server.asked] == [status]
        assert inside.paths == set()


def test_an_address_that_nobody_knows_is_refused_by_its_place_and_not_shown() -> None:
    settings = Settings(notify=SecretStr("json://127.0.0.1/a nonsense://hush-hush"))
    with pytest.raises(BadInput) as refused:
        create_notifiers(settings)
    assert str(refused.value).startswith("address 2 of WAYSTATION_NOTIFY is unknown to Apprise")
    assert "hush" not in f"{refused.value}{settings!r}"


def test_notices_lead_to_the_page_of_a_task_where_that_is_set() -> None:
    settings = Settings(page="https://w.example.org/")
    assert settings.page == "https://w.example.org"
    target = TemporalTarget(profile=ClientConfigProfile(address="127.0.0.1:1"), ui_url=None)
    assert build_task_link(settings.page, target, "task-1") == "https://w.example.org/tasks/task-1"
    assert build_task_link(settings.page, target, "schedule-1-weekly") == "https://w.example.org/schedules"
    assert build_task_link(None, target, "task-1") is None


def test_an_attempt_has_time_to_gather_and_to_be_answered() -> None:
    attempt = NOTIFICATION.get("start_to_close_timeout")
    assert attempt is not None
    assert attempt.total_seconds() > GATHER_S + MESSAGE_TIMEOUT_S
