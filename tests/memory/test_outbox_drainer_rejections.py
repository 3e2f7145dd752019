import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.memory.test_outbox_drainer import commit_passages
from tests.support.agent_environment import TASK, TENANT, AgentEnvironment
from tests.support.qdrant_server import run_qdrant_server
from tests.support.scopes import SYSTEM_SCOPE
from waystation.kernel.scopes import TenantScope
from waystation.memory.indexing import EMBEDDING_BATCH, DrainResult, OutboxDrainer
from waystation.memory.ports import EmbeddingUse
from waystation.memory.qdrant.collection import QdrantServerConfig
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.memory.qdrant.server import QdrantServerMemory
from waystation.testing.doubles import PlainRedactor


class WrongDimensionEmbedder:
    """Embeds some texts in too few dimensions: the engine refuses such a point, as a server does by status 400."""

    name = "short"
    dimension: int | None = 4

    def __init__(self, *short: str) -> None:
        self._short = short

    async def embed(self, texts: Sequence[str], use: EmbeddingUse = "passage") -> tuple[tuple[float, ...] | None, ...]:
        return tuple((1.0,) if text.split()[0] in self._short else (1.0, 0.0, 0.0, 0.0) for text in texts)


async def make_outbox_drainer(env: AgentEnvironment, folder: Path, *short: str) -> OutboxDrainer:
    memory = await QdrantEdgeMemory.open(folder / "memory", "short", 4)
    return replace(env.outbox_drainer, memory=memory, embedder=WrongDimensionEmbedder(*short))


async def test_one_point_that_is_refused_is_put_aside_and_blocks_no_other(
    env: AgentEnvironment, tmp_path: Path
) -> None:
    await commit_passages(env, EMBEDDING_BATCH + 6)
    archive = await make_outbox_drainer(env, tmp_path, "5", "40")
    assert await archive.drain() == DrainResult(stored=EMBEDDING_BATCH + 4, waiting=0)
    assert await archive.memory.count(TENANT) == EMBEDDING_BATCH + 4
    kept = [
        passage.id
        for passage in await env.store.list_task_passages(TASK, SYSTEM_SCOPE)
        if passage.text.split()[0] in {"5", "40"}
    ]
    assert (
        list(await env.store.list_rejected_passage_ids())
        == list(await env.store.list_rejected_passage_ids(TASK))
        == kept
    )
    assert await env.store.list_rejected_passage_ids("task-2") == ()
    assert await archive.drain() == DrainResult(stored=0, waiting=0)
    await archive.memory.aclose()


async def test_a_server_refuses_one_point_by_its_status_and_takes_the_others_once(env: AgentEnvironment) -> None:
    await commit_passages(env, EMBEDDING_BATCH + 6)
    with run_qdrant_server() as qdrant:
        memory = QdrantServerMemory.open(QdrantServerConfig(url=qdrant.url), "short", 4)
        archive = replace(env.outbox_drainer, memory=memory, embedder=WrongDimensionEmbedder("5", "40"))
        assert await archive.drain() == DrainResult(stored=EMBEDDING_BATCH + 4, waiting=0)
        refused = await env.store.list_rejected_passage_ids()
        points = [str(point.id) for point in qdrant.points("waystation")]
        await memory.aclose()
    assert len(refused) == 2
    assert sorted(points) == sorted(await env.store.list_passage_ids())
    assert not {*refused} & {*points}


async def test_where_nothing_is_taken_memory_may_be_at_fault_and_everything_waits(
    env: AgentEnvironment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await commit_passages(env, 3)
    archive = await make_outbox_drainer(env, tmp_path, "0", "1", "2")
    with caplog.at_level(logging.DEBUG):
        assert await archive.drain() == DrainResult(stored=0, waiting=3)
    assert await env.store.list_rejected_passage_ids() == ()
    mended = replace(archive, embedder=WrongDimensionEmbedder())
    assert await mended.drain() == DrainResult(stored=3, waiting=0)
    await archive.memory.aclose()


async def test_a_refused_passage_is_taken_back_like_any_other(env: AgentEnvironment, tmp_path: Path) -> None:
    await commit_passages(env, 3)
    archive = await make_outbox_drainer(env, tmp_path, "1")
    await archive.drain()
    (refused,) = await env.store.list_rejected_passage_ids()
    assert refused in {passage.id for passage in await env.store.list_task_passages(TASK, SYSTEM_SCOPE)}
    assert [passage.id for passage in await env.store.find_passages(refused[:8], env.ref.scope)] == [refused]
    assert await env.store.find_passages(refused[:8], TenantScope(tenant="other")) == ()
    assert await env.store.find_passages("%", env.ref.scope) == ()
    await archive.memory.aclose()


async def test_a_passage_that_still_holds_something_private_reaches_neither_embedder_nor_memory(
    env: AgentEnvironment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await commit_passages(env, 3)
    read: list[str] = []

    class Reading(WrongDimensionEmbedder):
        async def embed(
            self, texts: Sequence[str], use: EmbeddingUse = "passage"
        ) -> tuple[tuple[float, ...] | None, ...]:
            read.extend(texts)
            return await super().embed(texts, use)

    passages = (await env.store.load_outbox_batch(3)).pending
    private = PlainRedactor({passages[1].text: "<SECRET_000000000000>"})
    archive = replace(await make_outbox_drainer(env, tmp_path), embedder=Reading(), redactor=private)
    assert await archive.drain() == DrainResult(stored=2, waiting=0)
    assert await env.store.list_rejected_passage_ids() == (passages[1].id,)
    assert not any(passages[1].text in text for text in read)
    assert passages[1].id in caplog.text
    assert passages[1].text not in caplog.text
    await archive.memory.aclose()


async def test_what_cannot_be_looked_at_waits(env: AgentEnvironment, tmp_path: Path) -> None:
    await commit_passages(env, 3)
    env.redactor.failing = True
    archive = await make_outbox_drainer(env, tmp_path)
    assert await archive.drain() == DrainResult(stored=0, waiting=3)
    env.redactor.failing = False
    assert await archive.drain() == DrainResult(stored=3, waiting=0)
    await archive.memory.aclose()
