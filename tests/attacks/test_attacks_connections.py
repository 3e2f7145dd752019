"""Who holds connections of `waystation serve` without asking, or keeps others from signing in."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from socket import create_server

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from tests.attacks.test_attacks_api_keys import NAME, create_keyed_app, keys
from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, NO_SERVER, open_site_client
from tests.support.notification_values import REQUEST_NOTICE
from waystation.cli.options import parse_moment, parse_moment_or_age, parse_unattended_options
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput
from waystation.plugins.web import access, request_timeouts
from waystation.plugins.web.access import TRIES_AT_ONCE
from waystation.plugins.web.app import SiteServer
from waystation.plugins.web.principals import ApiKeyStore
from waystation.tasks import notifications

__all__ = ["keys"]
NOON = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


async def greet(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"hi"})


@asynccontextmanager
async def listening(at_once: int = 900) -> AsyncGenerator[int]:
    with create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(SiteServer(greet, at_once).serve_until_cancelled(listener))
        yield listener.getsockname()[1]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until_closed(port: int, begin: bytes, more: bytes) -> bytes:
    """What a connection hears that begins so and goes on byte by byte, until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begin)

    async def trickle() -> None:
        with suppress(ConnectionError):
            while more:
                await asyncio.sleep(0.05)
                writer.write(more)
                await writer.drain()

    trickling = asyncio.create_task(trickle())
    try:
        heard = b""
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                heard = await reader.read(-1)
        return heard
    finally:
        trickling.cancel()
        writer.close()


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b""),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"x"),
        (HEAD, b"x"),  # the rest of a body behind the answer
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"x"),  # the next head
    ],
    ids=["never asks", "half a head", "a byte at a time", "a body behind its answer", "a second head"],
)
async def test_a_connection_that_does_not_ask_in_time_is_closed(
    begin: bytes, more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_timeouts, "HEADER_TIMEOUT_SECONDS", 0.5)
    async with listening() as port:
        heard = await until_closed(port, begin, more)
    assert heard.count(b"hi") == (1 if b"\r\n\r\n" in begin else 0)


async def test_however_many_connections_ask_nothing_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_timeouts, "MAX_WAITING_CONNECTIONS", 10)
    async with listening(at_once=30) as port, httpx2.AsyncClient() as asking:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        answers = [await asking.get(f"http://127.0.0.1:{port}/") for _ in range(3)]
        for _, writer in idle:
            writer.close()
    assert [answer.status_code for answer in answers] == [200] * 3


async def test_a_body_that_never_ends_is_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "BODY_SECONDS", 0.3)

    async def endless() -> AsyncGenerator[bytes]:
        yield b"{"
        await asyncio.sleep(600)

    async with open_site_client(settings) as asking:
        task = await asking.post("/v1/tasks", headers=BEARER, content=endless())
        key = await asking.post("/sign-in", headers={"Origin": HERE}, content=endless())
    assert (task.status_code, key.status_code) == (408, 408)


async def test_a_link_of_somebody_elses_signs_nobody_in(settings: Settings, keys: ApiKeyStore) -> None:
    _, theirs = keys.create_key("Eve", "other", "approve", NOON)
    async with create_keyed_app(settings, keys) as app:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"https://{NAME}") as asking:
            for path in (f"/?token={theirs}", f"/sign-in?token={theirs}", f"/sign-in?key={theirs}&to=/"):
                answer = await asking.get(path)
                assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
            foreign = await asking.post(
                "/sign-in", headers={"Origin": "https://pages.example"}, data={"key": theirs}, follow_redirects=False
            )
            form = await asking.post(
                "/sign-in", headers={"Origin": f"https://{NAME}"}, data={"key": theirs}, follow_redirects=False
            )
    assert (foreign.status_code, "set-cookie" in foreign.headers) == (403, False)
    assert (form.status_code, "set-cookie" in form.headers) == (303, True)


async def test_neither_images_of_another_page_nor_wrong_keys_keep_anybody_from_signing_in(settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        for _ in range(TRIES_AT_ONCE + 5):
            await asking.get("/?token=wrong", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"})
        first = await asking.post("/sign-in", headers={"Origin": HERE}, data={"key": "wrong"})
        wrong = [
            await asking.post("/sign-in", headers={"Origin": HERE}, data={"key": "wrong"})
            for _ in range(TRIES_AT_ONCE + 5)
        ]
        right = await asking.post(
            "/sign-in", headers={"Origin": HERE}, data={"key": ACCESS.token}, follow_redirects=False
        )
    assert first.status_code == 401
    assert {answer.status_code for answer in wrong} == {401, 429}
    assert right.status_code == 303


MOMENTS = [
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01",
    "9999-12-31",
    "0001-01-01T00:00:00",
    "9999-12-31T23:59:59.999999",
    "-99999999999999999999",
    "1e400",
    "NaN",
]


async def test_no_moment_however_far_breaks_anything(settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        paths = ("/v1/tasks", "/v1/spending", "/v1/memory", "/", "/spending", "/memory")
        for path in paths:
            for name in ("since", "until", "after", "before"):
                for said in MOMENTS:
                    params = {name: said, "query": "x", "text": "x"}
                    answer = await asking.get(path, params=params, headers=BEARER)
                    assert answer.status_code in {200, 400, 404, 422, 503}, (path, name, said, answer.text)


@pytest.mark.parametrize("said", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_command_refuses_a_moment_that_utc_has_not(said: str) -> None:
    for read in (parse_moment, parse_moment_or_age):
        with pytest.raises(BadInput, match=r"--since: in UTC, the time is before the year 1 or after the year 9999"):
            read(said, "--since", NOON)
    with pytest.raises(BadInput):
        parse_unattended_options(None, said, None, NOON)


def test_notices_carry_no_signs_that_a_terminal_obeys_or_nobody_sees() -> None:
    hidden = "a\x1b[2Jb\u202ec\u2066d\u200be\rf\x9b31mg\U000e0041"
    asked = REQUEST_NOTICE.request
    assert asked is not None
    notice = REQUEST_NOTICE.replace(title=hidden, reason=hidden, request=asked.replace(reason=hidden))
    over = notice.replace(request=None, event=notifications.NotificationEvent.FAILED)
    for one in (notice, over):
        said = [
            notifications.render_mrkdwn(one, None),
            notifications.render_plain_text(one),
            *map(str, notifications.build_webhook_fields(one, None).values()),
        ]
        said += notifications.render_digest([(one, None)] * 2, None)
        for text in said:
            assert all(sign.isprintable() or sign == "\n" for sign in text), text
            assert "\U000e0041" not in text
