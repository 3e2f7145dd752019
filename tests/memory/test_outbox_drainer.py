import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.agent_environment import NOON, TASK, TENANT, AgentEnvironment
from tests.support.conversations import make_filler_text
from waystation.context.transcript import SummaryRecord, build_user_message
from waystation.memory.indexing import EMBEDDING_BATCH, DrainResult
from waystation.memory.passages import Passage
from waystation.runtime.sql_store import SqlStore


async def commit_passages(env: AgentEnvironment, count: int, step_id: str = "research-1") -> None:
    """Let this many passages wait, of one compaction."""
    site = await env.make_tool_context(step_id)
    made = [
        Passage(
            id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{step_id}/{number}")),
            tenant=TENANT,
            session="session",
            task_id=TASK,
            run_id=site.run.run_id,
            step_id=step_id,
            first_message="m2",
            last_message="m6",
            text=f"{number} {make_filler_text(20)}",
            content_hash="",
            created=NOON,
        )
        for number in range(count)
    ]
    record = SummaryRecord(id=step_id, strategy="window", covered=("m2",), summary=build_user_message("s-1", "So far."))
    await env.store.commit_compaction(site.fence, 0, record, made, None)


async def test_everything_that_waits_is_stored_once_in_batches(env: AgentEnvironment) -> None:
    await commit_passages(env, EMBEDDING_BATCH + 6)
    assert await env.outbox_drainer.drain() == DrainResult(stored=EMBEDDING_BATCH + 6, waiting=0)
    assert len(env.memory.passages) == EMBEDDING_BATCH + 6
    assert await env.outbox_drainer.drain() == DrainResult(stored=0, waiting=0)


async def test_one_agent_run_is_brought_in_without_the_others(env: AgentEnvironment) -> None:
    await commit_passages(env, 2)
    await commit_passages(env, 3, "research-2")
    assert (await env.outbox_drainer.drain(f"{TASK}/research-2")).stored == 3
    assert await env.store.count_pending_passages() == 2
    assert await env.outbox_drainer.drain() == DrainResult(stored=2, waiting=0)


async def test_while_memory_does_not_answer_passages_wait(env: AgentEnvironment) -> None:
    await commit_passages(env, 3)
    env.memory.failing = True
    assert await env.outbox_drainer.drain() == DrainResult(stored=0, waiting=3)
    env.memory.failing = False
    assert await env.outbox_drainer.drain() == DrainResult(stored=3, waiting=0)


class Crash(Exception):
    pass


class CrashingStore(SqlStore):
    async def mark_passages_stored(self, passage_ids: Sequence[str]) -> None:
        raise Crash


async def test_a_crash_between_writing_and_marking_writes_the_same_points_again(env: AgentEnvironment) -> None:
    await commit_passages(env, 3)
    crashing = CrashingStore(env.store.database, env.clock, env.store_id)
    with pytest.raises(Crash):
        await replace(env.outbox_drainer, store=crashing).drain()
    assert len(env.memory.passages) == 3
    assert await env.outbox_drainer.drain() == DrainResult(stored=3, waiting=0)
    assert len(env.memory.passages) == 3
