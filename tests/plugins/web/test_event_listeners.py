"""Whoever listens has each event once and in order, whatever is cut, undone or started anew in between."""

import asyncio
import re
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.support.finished_tasks import make_task_row
from tests.support.store_values import make_charge, make_reply
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import RunRef
from waystation.plugins.web.event_feed import EventFeed
from waystation.runtime.sql_store import SqlStore
from waystation.store.event_numbering import queue_event
from waystation.store.events import UnnumberedEvent
from waystation.tasks.task import TaskRequest

NUMBER = re.compile(rb"^id: (\d+)$", re.MULTILINE)
DEEDS = st.sampled_from(["turn", "turn", "turn", "undone", "worker", "server", "hear", "cut"])


class Scene:
    """A worker that writes, a server that tells, and a client that comes back with the last number that it had."""

    def __init__(self, settings: Settings, client: Client, store: SqlStore, run: RunRef) -> None:
        self._settings, self._client, self._store, self._run = settings, client, store, run
        self._turn = 0
        self.seen: list[int] = []
        self._feed = EventFeed(client)
        self._stream = self._listened()

    def _listened(self) -> AsyncGenerator[bytes]:
        return self._feed.stream(self.seen[-1] if self.seen else 0, None)

    async def turn(self) -> None:
        fence = await self._store.acquire_fence(self._run.run_id)
        await self._store.commit_reply(fence, self._turn, make_reply(self._turn), make_charge(f"turn-{self._turn}"))
        self._turn += 1

    async def undone(self) -> None:
        """A worker that is killed within its transaction."""
        try:
            async with self._store.database.write() as connection:
                queue_event(connection, self._run.task_id, UnnumberedEvent(kind="messaged"), utc_now())
                raise LookupError
        except LookupError:
            pass

    async def worker(self) -> None:
        await self._store.aclose()
        self._store = await SqlStore.open(self._settings.database_url, utc_now)

    async def server(self) -> None:
        await self._stream.aclose()
        self._feed = EventFeed(self._client)
        self._stream = self._listened()

    async def cut(self) -> None:
        await self._stream.aclose()
        self._stream = self._listened()

    async def hear(self) -> None:
        """Of all that there is, as far as ten events."""
        newest = await self._client.get_newest_event_number()
        for _ in range(10):
            if self.seen and self.seen[-1] >= newest:
                return
            self.seen += [int(found) for found in NUMBER.findall(await anext(self._stream))]

    async def aclose(self) -> None:
        await self._stream.aclose()
        await self._store.aclose()


async def played(folder: Path, deeds: list[str]) -> tuple[list[int], int]:
    settings = Settings(home=folder / "home", offline=True)
    async with await Client.connect(settings) as client:
        store = await SqlStore.open(settings.database_url, utc_now)
        row = make_task_row(
            TaskRequest(question="Which?", session="s", request_id="r"), settings, await store.get_store_id()
        )
        await store.register_task(row, ())
        run = RunRef(**row.ref.model_dump(), step_id="research", role="research")
        await store.open_run(run)
        async with aclosing(Scene(settings, client, store, run)) as scene:
            for deed in deeds:
                await getattr(scene, deed)()
            newest = await client.get_newest_event_number()
            while not scene.seen or scene.seen[-1] < newest:
                await scene.hear()
            return scene.seen, newest


@given(st.lists(DEEDS, max_size=30))
@examples(max_examples=15, deadline=None)
def test_each_event_comes_once_and_in_order_whatever_is_killed_in_between(deeds: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        seen, newest = asyncio.run(played(Path(folder), deeds))
    assert seen == list(range(1, newest + 1))
