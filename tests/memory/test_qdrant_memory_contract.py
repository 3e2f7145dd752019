"""What every implementation of the port `Memory` must do. A new one joins by a name in `memory`."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from qdrant_client import AsyncQdrantClient

from tests.memory.memory_values import DIMENSION, EAST, NORTH, make_passage, make_query
from tests.support.qdrant_grpc import run_qdrant_grpc
from tests.support.qdrant_server import run_qdrant_server
from waystation.kernel.errors import MemoryUnavailable
from waystation.memory.passages import MemoryQuery
from waystation.memory.ports import Memory
from waystation.memory.qdrant.collection import QdrantServerConfig
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.memory.qdrant.points import EmbeddingSpec
from waystation.memory.qdrant.server import QdrantServerMemory
from waystation.testing.doubles import ListMemory


@asynccontextmanager
async def edge(folder: Path) -> AsyncGenerator[Memory]:
    memory = await QdrantEdgeMemory.open(folder / "memory", "compass", DIMENSION)
    yield memory
    await memory.aclose()


@asynccontextmanager
async def local_mode(folder: Path) -> AsyncGenerator[Memory]:
    """The adapter for a server over the client's own engine: nothing goes over a wire."""
    nowhere, embedding = (
        QdrantServerConfig(url="http://in-memory"),
        EmbeddingSpec(embedder="compass", dimension=DIMENSION),
    )
    memory = QdrantServerMemory(AsyncQdrantClient(":memory:"), nowhere, embedding)
    yield memory
    await memory.aclose()


@asynccontextmanager
async def over_rest(folder: Path) -> AsyncGenerator[Memory]:
    with run_qdrant_server() as qdrant:
        memory = QdrantServerMemory.open(QdrantServerConfig(url=qdrant.url), "compass", DIMENSION)
        yield memory
        await memory.aclose()


@asynccontextmanager
async def over_grpc(folder: Path) -> AsyncGenerator[Memory]:
    async with run_qdrant_grpc() as qdrant:
        place = QdrantServerConfig(url="http://127.0.0.1", grpc_port=qdrant.port)
        memory = QdrantServerMemory.open(place, "compass", DIMENSION)
        yield memory
        await memory.aclose()


@asynccontextmanager
async def double(folder: Path) -> AsyncGenerator[Memory]:
    yield ListMemory(DIMENSION)


# Said once in a process by the client's own engine, which looks at every point whether there is an index or not.
NO_INDEXES = pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning")


@pytest.fixture(params=[edge, pytest.param(local_mode, marks=NO_INDEXES), over_rest, over_grpc, double])
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Memory]:
    async with request.param(tmp_path) as memory:
        yield memory


async def texts_found(memory: Memory, wanted: MemoryQuery) -> list[str]:
    return [found.passage.text for found in await memory.search(wanted)]


async def test_a_passage_is_found_by_its_words_and_comes_back_whole(memory: Memory) -> None:
    stored = make_passage("The deadline for the wheel audit is in March.")
    await memory.upsert([stored, make_passage("Nothing about that here.")])
    (found,) = await memory.search(make_query("wheel audits"))
    assert found.passage == stored.passage
    assert 0 < found.score <= 1


async def test_a_passage_without_a_common_word_is_found_by_its_vector(memory: Memory) -> None:
    await memory.upsert([make_passage("alpha", dense=EAST), make_passage("beta", dense=NORTH)])
    assert (await texts_found(memory, make_query("gamma", dense=(0.9, 0.1, 0.0, 0.0))))[0] == "alpha"


async def test_words_and_vector_together_beat_either_alone(memory: Memory) -> None:
    both = make_passage("wheel audit in March", dense=EAST)
    await memory.upsert(
        [make_passage("wheel audit in April", dense=NORTH), both, make_passage("something else", dense=EAST)]
    )
    assert (await texts_found(memory, make_query("wheel audit March", dense=EAST)))[0] == both.passage.text


async def test_one_tenant_never_sees_the_passages_of_another(memory: Memory) -> None:
    await memory.upsert([make_passage("shared secret plan", tenant="t1", dense=EAST)])
    await memory.upsert([make_passage("shared secret plan", tenant="t2", dense=EAST)])
    found = await memory.search(make_query("shared secret plan", tenant="t1", dense=EAST))
    assert [recalled.passage.tenant for recalled in found] == ["t1"]
    assert await memory.search(make_query("shared secret plan", tenant="t3", dense=EAST)) == ()
    assert (await memory.count("t1"), await memory.count("t2"), await memory.count("t3")) == (1, 1, 0)


async def test_one_session_never_sees_the_passages_of_another(memory: Memory) -> None:
    await memory.upsert(
        [make_passage("plan", session="s1", dense=EAST), make_passage("plan", session="s2", dense=EAST)]
    )
    found = await memory.search(make_query("plan", session="s2", dense=EAST))
    assert [recalled.passage.session for recalled in found] == ["s2"]


async def test_the_same_passage_twice_is_one_point(memory: Memory) -> None:
    for _ in range(2):
        await memory.upsert([make_passage("once", dense=EAST)])
    assert await memory.count("t1") == 1


async def test_a_passage_that_is_deleted_is_found_no_more_and_others_are(memory: Memory) -> None:
    gone, stays = make_passage("The beacon is white.", dense=NORTH), make_passage("The beacon is red.", dense=EAST)
    await memory.upsert([gone, stays])
    await memory.delete([gone.passage.id, "0b4f6d3e-0000-5000-8000-000000000000"])
    await memory.delete([])
    assert [found.passage for found in await memory.search(make_query("beacon"))] == [stays.passage]
    assert await memory.count(stays.passage.tenant) == 1


async def test_no_more_passages_come_back_than_asked_for(memory: Memory) -> None:
    await memory.upsert([make_passage(f"wheel number {number}") for number in range(9)])
    assert len(await memory.search(make_query("wheel", limit=3))) == 3


async def test_passages_that_tie_come_in_the_same_order_however_they_were_stored(memory: Memory) -> None:
    lines = [make_passage(f"pump reading {number}", dense=EAST) for number in range(40)]
    asked = make_query("which pump", dense=EAST, limit=7)
    await memory.upsert(lines)
    first = await texts_found(memory, asked)
    await memory.delete([line.passage.id for line in lines])
    for line in reversed(lines):
        await memory.upsert([line])
    assert await texts_found(memory, asked) == first
    assert len(first) == 7


async def test_a_part_of_a_chinese_sentence_finds_it(memory: Memory) -> None:
    await memory.upsert([make_passage("我们决定在三月发布新版本的软件"), make_passage("今天的天气非常好")])
    assert await texts_found(memory, make_query("发布新版本")) == ["我们决定在三月发布新版本的软件"]


async def test_nothing_to_store_and_nothing_to_look_for_are_no_errors(memory: Memory) -> None:
    await memory.upsert([])
    await memory.upsert([make_passage("the of and")])
    assert await memory.search(make_query("")) == ()


async def test_a_vector_of_another_length_is_refused_without_a_word_of_its_text(memory: Memory) -> None:
    with pytest.raises(MemoryUnavailable) as caught:
        await memory.upsert([make_passage("sensitive", dense=(1.0, 2.0))])
    assert "sensitive" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_nothing_is_found_of_documents_that_the_query_is_to_go_without(memory: Memory) -> None:
    said = make_passage("the bar carries two fathoms")
    written = make_passage("the bar carries two cables")
    of_document = written.passage.replace(kind="document", blob="b" * 64, document="pilot.md")
    await memory.upsert([said, written.replace(passage=of_document)])
    asked = make_query("what does the bar carry")
    assert len(await texts_found(memory, asked)) == 2
    assert await texts_found(memory, asked.replace(excluded_hashes=("b" * 64,))) == [said.passage.text]
    assert await texts_found(memory, asked.replace(kinds=("document",))) == [of_document.text]
