"""Passages that waited for memory come in when it is back, whether or not any task does something."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from tests.memory.test_outbox_drainer import commit_passages
from tests.support.agent_environment import NOON, AgentEnvironment
from waystation.kernel.errors import StoreUnavailable
from waystation.memory.ports import EmbeddingUse, PassageOutbox
from waystation.workers.memory import run_drain_loop

AT_ONCE = timedelta(milliseconds=5)


async def until_stored(env: AgentEnvironment, count: int) -> None:
    async with asyncio.timeout(20):
        while len(env.memory.passages) < count:
            await asyncio.sleep(0.005)


async def test_what_waits_is_written_when_memory_is_back_without_a_task(env: AgentEnvironment) -> None:
    await commit_passages(env, 3)
    env.memory.failing = True
    async with run_drain_loop(env.outbox_drainer, AT_ONCE):
        await asyncio.sleep(0.1)
        assert env.memory.passages == {}
        assert await env.store.get_oldest_pending_time() == NOON
        env.memory.failing = False
        await until_stored(env, 3)
    assert (await env.store.count_pending_passages(), await env.store.get_oldest_pending_time()) == (
        0,
        None,
    )


async def test_nothing_is_asked_of_memory_while_nothing_waits_and_nothing_embedded_while_it_is_away(
    env: AgentEnvironment,
) -> None:
    asked: list[str] = []

    class Watching(type(env.memory)):
        async def count(self, tenant: str) -> int:
            asked.append(tenant)
            return await super().count(tenant)

    class Embedder(type(env.embedder)):
        async def embed(
            self, texts: Sequence[str], use: EmbeddingUse = "passage"
        ) -> tuple[tuple[float, ...] | None, ...]:
            raise AssertionError("memory is away")

    env.memory, env.embedder = Watching(), Embedder()
    env.memory.failing = True
    async with run_drain_loop(env.outbox_drainer, AT_ONCE):
        await asyncio.sleep(0.05)
        assert asked == []
        await commit_passages(env, 1)
        async with asyncio.timeout(20):
            while len(asked) < 3:
                await asyncio.sleep(0.005)


async def test_a_store_that_does_not_answer_now_is_asked_again(env: AgentEnvironment) -> None:
    await commit_passages(env, 1)
    store, failures = env.store, [1, 2]

    class Away:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def load_outbox_batch(self, limit: int, run_id: str | None = None) -> object:
            if failures:
                failures.pop()
                raise StoreUnavailable("not now")
            return await store.load_outbox_batch(limit, run_id)

    away: PassageOutbox = Away()  # pyright: ignore[reportAssignmentType]: it has all that the store has
    archive = type(env.outbox_drainer)(
        store=away, embedder=env.embedder, memory=env.memory, redactor=env.outbox_drainer.redactor
    )
    async with run_drain_loop(archive, AT_ONCE):
        await until_stored(env, 1)
    assert failures == []
