"""Viewers of a task receive what its agents are thinking and writing; only they make agents store it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.agents.test_turn_transactions import counted
from tests.attacks.test_attacks_web_pages import BEARER, COOKIES, NO_SERVER, open_site_client
from tests.support.finished_tasks import make_task_row, store_finished_task
from waystation.agents.partial_replies import PartialReply
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.context.transcript import Fence
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import RunRef, TaskRef
from waystation.plugins.web.event_feed import EventFeed, PartialReplyCache, format_replies
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskRequest

THINKING = PartialReply(agent="research-1", kind="thinking", text="Which depth?")
MARKER = b"event: replies\ndata: "


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


class RunningTask(NamedTuple):
    """A task with one agent, and a client of the same store."""

    store: SqlStore
    client: Client
    ref: TaskRef
    fence: Fence

    async def is_watched(self) -> bool:
        return await self.store.is_watched(self.ref.task_id, self.ref.scope)


@asynccontextmanager
async def open_running_task(settings: Settings) -> AsyncGenerator[RunningTask]:
    settings.home.mkdir(exist_ok=True)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        request = TaskRequest(question="Which depth?", session="s", request_id="running")
        row = make_task_row(request, settings, await store.get_store_id())
        await store.register_task(row, ())
        run = RunRef(**row.ref.model_dump(), step_id="research-1", role="research")
        await store.open_run(run)
        yield RunningTask(store, Client(settings, store), row.ref, await store.acquire_fence(run.run_id))


async def receive_replies(stream: AsyncGenerator[bytes]) -> list[dict[str, object]]:
    """The data of the next event `replies`."""
    async with asyncio.timeout(60):
        async for event in stream:
            if event.startswith(MARKER):
                found: list[dict[str, object]] = json.loads(event.removeprefix(MARKER))
                return found
    raise AssertionError("the stream has ended")


async def test_a_viewer_receives_each_change_until_the_reply_is_there(settings: Settings) -> None:
    async with open_running_task(settings) as task:
        stream = EventFeed(task.client).stream(0, None, watched=task.ref.task_id)
        async with aclosing(stream):
            assert await receive_replies(stream) == [], "a page that reconnects forgets what it showed"
            assert await task.is_watched()
            assert await task.store.save_partial_reply(task.fence, task.ref.task_id, THINKING)
            assert await receive_replies(stream) == [
                {"agent": "research-1", "kind": "thinking", "text": "Which depth?", "calls_tool": False}
            ]
            await task.store.drop_partial_reply(task.fence)
            assert await receive_replies(stream) == []


async def test_a_listener_that_views_no_task_makes_no_agent_store_anything(settings: Settings) -> None:
    async with open_running_task(settings) as task:
        stream = EventFeed(task.client).stream(0, None, heartbeat=1)
        async with aclosing(stream), asyncio.timeout(60):
            async for event in stream:
                assert not event.startswith(MARKER)
                if event.startswith(b"event: alive"):
                    break
        assert not await task.is_watched()


async def test_all_viewers_of_a_task_cost_one_read_and_seldom_a_write(settings: Settings) -> None:
    async with open_running_task(settings) as task:
        cache = PartialReplyCache(task.client)
        with counted(task.store) as transactions:
            for _ in range(50):
                assert await cache.get_replies(task.ref.task_id) == ()
        assert transactions.writes == 1
        assert transactions.reads <= 4


async def test_a_task_that_is_over_is_not_watched(settings: Settings) -> None:
    task_id = await store_finished_task(settings)
    async with await Client.connect(settings) as client:
        assert await PartialReplyCache(client).get_replies(task_id) == ()
        async with open_running_task(settings) as task, task.store.database.read() as connection:
            found = await connection.exec_driver_sql("SELECT count(*) FROM task_watches")
            assert found.scalar_one() == 0


def test_invisible_characters_of_a_model_are_made_visible() -> None:
    event = format_replies([THINKING.replace(text="a\u202eb\x1b[2J")])
    assert b"\\u202e" not in event
    assert b"\\u001b" not in event


async def test_the_page_of_a_running_task_has_a_place_for_replies_and_asks_for_them(settings: Settings) -> None:
    over = await store_finished_task(settings)
    async with open_running_task(settings) as task:
        running = task.ref.task_id
    async with open_site_client(settings) as asking:
        page, finished = [await asking.get(f"/tasks/{one}", headers=COOKIES) for one in (running, over)]
    assert f'data-watched="{running}"' in page.text
    assert '<div id="replies" aria-live="off" hidden></div>' in page.text
    assert "data-watched" not in finished.text
    assert 'id="replies"' not in finished.text


async def test_the_stream_of_a_task_has_replies_if_they_are_asked_for(settings: Settings) -> None:
    task_id = await store_finished_task(settings)
    async with open_site_client(settings) as asking:
        plain, watched = [
            await asking.get(f"/v1/tasks/{task_id}/events?{query}", headers=BEARER) for query in ("", "replies=true")
        ]
        wrong = await asking.get("/v1/events?replies=task-0000", headers=BEARER)
    assert MARKER not in plain.content
    assert MARKER + b"[]" in watched.content
    assert wrong.status_code == 404
