"""The embedded memory written anew: what was deleted lies in no file of it, and its index has all of its points."""

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from tests.support.store_values import make_passage
from waystation.memory.passages import EmbeddedPassage, MemoryQuery
from waystation.memory.qdrant.edge import QdrantEdgeMemory, read_memory_metadata

TENANT = make_passage("0").tenant


def said(number: int) -> str:
    """What no compression makes shorter."""
    return random.Random(number).randbytes(12).hex()


def point_id(number: int) -> str:
    return str(uuid.UUID(int=number + 1))


def points(numbers: Sequence[int], dimension: int = 4) -> list[EmbeddedPassage]:
    chance = random.Random(numbers[0])
    return [
        EmbeddedPassage(
            passage=make_passage(point_id(number)).replace(text=f"harbour {said(number)}"),
            dense=tuple(chance.gauss(0, 1) for _ in range(dimension)),
        )
        for number in numbers
    ]


def in_files(folder: Path, numbers: Sequence[int]) -> list[int]:
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return [number for number in numbers if said(number).encode() in content]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@pytest.fixture
async def memory(folder: Path) -> AsyncGenerator[QdrantEdgeMemory]:
    opened = await QdrantEdgeMemory.open(folder, "compass", 4)
    yield opened
    await opened.aclose()


async def found(memory: QdrantEdgeMemory, number: int) -> bool:
    query = MemoryQuery(tenant=TENANT, session=None, text=said(number), dense=None)
    return any(said(number) in one.passage.text for one in await memory.search(query))


async def test_what_was_deleted_lies_in_no_file_and_the_rest_is_found(memory: QdrantEdgeMemory, folder: Path) -> None:
    await memory.upsert(points(range(300)))
    await memory.delete([point_id(number) for number in range(10)])
    assert in_files(folder, range(10)) == [*range(10)]
    await memory.erase_deleted_points()
    assert in_files(folder, range(10)) == []
    assert not await found(memory, 3)
    assert await found(memory, 30)
    await memory.aclose()
    again = await QdrantEdgeMemory.open(folder, "compass", 4)
    assert await again.count(TENANT) == 290
    assert await found(again, 299)
    await again.aclose()


async def test_it_is_searched_and_written_as_ever_while_it_is_written_anew(memory: QdrantEdgeMemory) -> None:
    await memory.upsert(points(range(3_000)))
    purging = asyncio.create_task(memory.erase_deleted_points())
    number = 3_000
    while not purging.done():
        await memory.upsert(points([number]))
        await memory.delete([point_id(number - 3_000)])
        assert await found(memory, number)
        number += 1
    await purging
    assert number > 3_002
    assert await memory.count(TENANT) == 3_000
    assert await found(memory, number - 1)
    assert not await found(memory, 0)


async def test_what_an_attempt_left_that_was_killed_goes_with_the_next(memory: QdrantEdgeMemory, folder: Path) -> None:
    await memory.upsert(points(range(10)))
    (folder / "shard-left").mkdir()
    (folder / "shard-left" / "page").write_text(said(99))
    await memory.erase_deleted_points()
    assert in_files(folder, [99]) == []
    assert len([*folder.iterdir()]) == 2


async def test_as_it_grows_its_points_come_into_the_index(
    memory: QdrantEdgeMemory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation.memory.qdrant.edge.MAX_UNINDEXED_POINTS", 100)
    await memory.upsert(points(range(99)))
    assert read_memory_metadata(folder).indexed == 0
    await memory.upsert(points(range(99, 120)))
    while read_memory_metadata(folder).indexed == 0:
        await asyncio.sleep(0.02)
    await memory.upsert(points(range(120, 140)))
    assert await memory.count(TENANT) == 140
    await memory.aclose()
    again = await QdrantEdgeMemory.open(folder, "compass", 4)
    await again.upsert(points(range(140, 150)))
    assert read_memory_metadata(folder).indexed == 120
    await again.aclose()


async def test_the_index_is_made_beside_the_work(folder: Path) -> None:
    memory = await QdrantEdgeMemory.open(folder, "compass", 2_048)
    for first in range(0, 1_500, 100):
        await memory.upsert(points(range(first, first + 100), 2_048))
    assert not [*folder.rglob("*graph*")]
    await memory.erase_deleted_points()
    assert [*folder.rglob("*graph*")]
    await memory.aclose()
