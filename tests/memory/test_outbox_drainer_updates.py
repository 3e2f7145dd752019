"""Passages that changed are written over what memory has of them, or are not there at all."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.memory.test_outbox_drainer import commit_passages
from tests.memory.test_outbox_drainer_rejections import WrongDimensionEmbedder, make_outbox_drainer
from tests.support.agent_environment import TENANT, AgentEnvironment
from tests.support.conversations import make_filler_text
from waystation.erasure.erasure import ERASED_MARKER, ErasureQuery, PersonErasureOrder
from waystation.kernel.errors import MemoryUnavailable
from waystation.testing.doubles import ListMemory


async def changed(env: AgentEnvironment) -> None:
    """All passages had a person."""
    tenant = env.ref.tenant
    order = PersonErasureOrder(
        store_id=await env.store.get_store_id(), tenant=tenant, wanted_placeholder="", placeholders=()
    )
    await env.store.erase_person(order, ErasureQuery(make_filler_text(20)))


async def test_what_changed_is_written_over(env: AgentEnvironment) -> None:
    await commit_passages(env, 3)
    memory = ListMemory(4)
    archive = replace(env.outbox_drainer, memory=memory, embedder=WrongDimensionEmbedder())
    await archive.drain()
    await changed(env)
    await archive.replace_rewritten_points()
    assert [item.passage.text.strip() for item in memory.passages.values()] == [
        f"{number} {ERASED_MARKER}" for number in range(3)
    ]
    assert await env.store.count_pending_passages() == 0


async def test_what_memory_refuses_now_it_has_no_more_as_it_was_before(env: AgentEnvironment, tmp_path: Path) -> None:
    await commit_passages(env, 3)
    archive = await make_outbox_drainer(env, tmp_path)
    await archive.drain()
    await changed(env)
    picky = replace(archive, embedder=WrongDimensionEmbedder("1"))
    await picky.replace_rewritten_points()
    assert await archive.memory.count(TENANT) == 2
    await archive.memory.aclose()


async def test_while_memory_is_away_it_is_not_done(env: AgentEnvironment) -> None:
    await commit_passages(env, 1)
    memory = ListMemory(4)
    memory.failing = True
    with pytest.raises(MemoryUnavailable):
        await replace(env.outbox_drainer, memory=memory, embedder=WrongDimensionEmbedder()).replace_rewritten_points()
