import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.office import TASK, TENANT, Office
from tests.agents.test_archive import commit_passages
from tests.qdrant_server import running_qdrant
from tests.readers import ANYONE
from waystation.kernel.scopes import TenantScope
from waystation.memory.archive import EMBEDDED_AT_ONCE, DrainResult, OutboxDrainer
from waystation.memory.ports import Use
from waystation.memory.qdrant.collection import QdrantServer
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.memory.qdrant.server import QdrantServerMemory
from waystation.testing import PlainRedactor


class ShortVectors:
    """Embeds some texts in too few dimensions: the engine refuses such a point, as a server does by status 400."""

    name = "short"
    dimension: int | None = 4

    def __init__(self, *short: str) -> None:
        self._short = short

    async def embed(self, texts: Sequence[str], use: Use = "passage") -> tuple[tuple[float, ...] | None, ...]:
        return tuple((1.0,) if text.split()[0] in self._short else (1.0, 0.0, 0.0, 0.0) for text in texts)


async def archive_of(office: Office, folder: Path, *short: str) -> OutboxDrainer:
    memory = await QdrantEdgeMemory.open(folder / "memory", "short", 4)
    return replace(office.archive, memory=memory, embedder=ShortVectors(*short))


async def test_one_point_that_is_refused_is_put_aside_and_blocks_no_other(office: Office, tmp_path: Path) -> None:
    await commit_passages(office, EMBEDDED_AT_ONCE + 6)
    archive = await archive_of(office, tmp_path, "5", "40")
    assert await archive.drain() == DrainResult(stored=EMBEDDED_AT_ONCE + 4, waiting=0)
    assert await archive.memory.count(TENANT) == EMBEDDED_AT_ONCE + 4
    kept = [
        passage.id
        for passage in await office.store.list_task_passages(TASK, ANYONE)
        if passage.text.split()[0] in {"5", "40"}
    ]
    assert list(await office.store.refused()) == list(await office.store.refused(TASK)) == kept
    assert await office.store.refused("task-2") == ()
    assert await archive.drain() == DrainResult(stored=0, waiting=0)
    await archive.memory.aclose()


async def test_a_server_refuses_one_point_by_its_status_and_takes_the_others_once(office: Office) -> None:
    await commit_passages(office, EMBEDDED_AT_ONCE + 6)
    with running_qdrant() as qdrant:
        memory = QdrantServerMemory.open(QdrantServer(url=qdrant.url), "short", 4)
        archive = replace(office.archive, memory=memory, embedder=ShortVectors("5", "40"))
        assert await archive.drain() == DrainResult(stored=EMBEDDED_AT_ONCE + 4, waiting=0)
        refused = await office.store.refused()
        points = [str(point.id) for point in qdrant.points("waystation")]
        await memory.aclose()
    assert len(refused) == 2
    assert sorted(points) == sorted(await office.store.passage_ids())
    assert not {*refused} & {*points}


async def test_where_nothing_is_taken_memory_may_be_at_fault_and_everything_waits(
    office: Office, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await commit_passages(office, 3)
    archive = await archive_of(office, tmp_path, "0", "1", "2")
    with caplog.at_level(logging.DEBUG):
        assert await archive.drain() == DrainResult(stored=0, waiting=3)
    assert await office.store.refused() == ()
    mended = replace(archive, embedder=ShortVectors())
    assert await mended.drain() == DrainResult(stored=3, waiting=0)
    await archive.memory.aclose()


async def test_a_refused_passage_is_taken_back_like_any_other(office: Office, tmp_path: Path) -> None:
    await commit_passages(office, 3)
    archive = await archive_of(office, tmp_path, "1")
    await archive.drain()
    (refused,) = await office.store.refused()
    assert refused in {passage.id for passage in await office.store.list_task_passages(TASK, ANYONE)}
    assert [passage.id for passage in await office.store.find_passages(refused[:8], office.ref.reader)] == [refused]
    assert await office.store.find_passages(refused[:8], TenantScope(tenant="other")) == ()
    assert await office.store.find_passages("%", office.ref.reader) == ()
    await archive.memory.aclose()


async def test_a_passage_that_still_holds_something_private_reaches_neither_embedder_nor_memory(
    office: Office, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await commit_passages(office, 3)
    read: list[str] = []

    class Reading(ShortVectors):
        async def embed(self, texts: Sequence[str], use: Use = "passage") -> tuple[tuple[float, ...] | None, ...]:
            read.extend(texts)
            return await super().embed(texts, use)

    passages = await office.store.waiting(3)
    private = PlainRedactor({passages[1].text: "<SECRET_000000000000>"})
    archive = replace(await archive_of(office, tmp_path), embedder=Reading(), redactor=private)
    assert await archive.drain() == DrainResult(stored=2, waiting=0)
    assert await office.store.refused() == (passages[1].id,)
    assert not any(passages[1].text in text for text in read)
    assert passages[1].id in caplog.text
    assert passages[1].text not in caplog.text
    await archive.memory.aclose()


async def test_what_cannot_be_looked_at_waits(office: Office, tmp_path: Path) -> None:
    await commit_passages(office, 3)
    office.redactor.failing = True
    archive = await archive_of(office, tmp_path)
    assert await archive.drain() == DrainResult(stored=0, waiting=3)
    office.redactor.failing = False
    assert await archive.drain() == DrainResult(stored=3, waiting=0)
    await archive.memory.aclose()
