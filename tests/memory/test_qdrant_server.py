import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from qdrant_client import models

from tests.memory.memory_values import DIMENSION, EAST, make_passage, make_query
from tests.support.qdrant_server import QdrantStub, run_qdrant_server
from waystation.config.settings import Settings
from waystation.kernel.errors import MemoryUnavailable
from waystation.memory.qdrant.collection import QdrantServerConfig
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.memory.qdrant.server import BATCH_BYTES, BATCH_POINTS, QdrantServerMemory, iter_point_batches
from waystation.workers.memory_server import build_qdrant_server

COLLECTION = "waystation"
SUBJECTS = ("wheel", "brake", "bridge", "harbour", "train")
DEEDS = ("was audited in March", "broke in the storm", "costs more than planned", "决定在三月发布新版本的软件")


@pytest.fixture
def qdrant() -> Iterator[QdrantStub]:
    with run_qdrant_server() as running:
        yield running


@pytest.fixture
async def memory(qdrant: QdrantStub) -> AsyncIterator[QdrantServerMemory]:
    memory = opened(qdrant)
    yield memory
    await memory.aclose()


def opened(qdrant: QdrantStub, embedder: str = "compass", dimension: int | None = DIMENSION) -> QdrantServerMemory:
    return QdrantServerMemory.open(QdrantServerConfig(url=qdrant.url, collection=COLLECTION), embedder, dimension)


@pytest.mark.parametrize(
    "text", ["wheel audit March", "the storm broke bridges", "发布新版本", "planned cost", "of the"]
)
async def test_the_server_ranks_passages_as_the_embedded_engine_does(
    memory: QdrantServerMemory, tmp_path: Path, text: str
) -> None:
    chance = random.Random(7)
    # All of different lengths: engines put equal scores in orders of their own.
    passages = [
        make_passage(
            f"{subject} {deed}{' note' * length}", dense=tuple(chance.uniform(-1, 1) for _ in range(DIMENSION))
        )
        for length, (subject, deed, _) in enumerate(product(SUBJECTS, DEEDS, range(3)))
    ]
    edge = await QdrantEdgeMemory.open(tmp_path / "memory", "compass", DIMENSION)
    for engine in (edge, memory):
        await engine.upsert(passages)
        await engine.upsert([make_passage("wheels of another tenant", tenant="t2")])
    wanted = make_query(text, dense=(0.5, -0.2, 0.7, 0.1), limit=20)
    embedded, served = await edge.search(wanted), await memory.search(wanted)
    await edge.aclose()
    assert [found.passage for found in served] == [found.passage for found in embedded]
    assert [found.score for found in served] == pytest.approx([found.score for found in embedded], abs=1e-5)


async def test_workers_that_start_at_once_make_one_collection(qdrant: QdrantStub) -> None:
    qdrant.delay = 0.02  # so that all of them see that there is no collection yet
    memories = [opened(qdrant) for _ in range(6)]
    stored = [make_passage(f"worker {number}", dense=EAST) for number in range(len(memories))]
    await asyncio.gather(*(memory.upsert([item]) for memory, item in zip(memories, stored, strict=True)))
    assert await memories[0].count("t1") == len(memories)
    assert qdrant.requests.count(f"PUT /collections/{COLLECTION}") > 1
    for memory in memories:
        await memory.aclose()


async def test_the_collection_is_indexed_by_what_queries_filter_by(
    qdrant: QdrantStub, memory: QdrantServerMemory
) -> None:
    await memory.count("t1")
    found = qdrant.collection(COLLECTION)
    indexes = {field: index.params for field, index in found.payload_schema.items()}
    keyword = models.KeywordIndexType.KEYWORD
    assert indexes == {
        "tenant": models.KeywordIndexParams(type=keyword, is_tenant=True),
        **{name: models.KeywordIndexParams(type=keyword) for name in ("session", "task_id", "step_id", "kind", "blob")},
        "created": models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME),
    }
    assert found.config.metadata == {"embedder": "compass", "dimension": DIMENSION, "indexing": 1}


async def test_nothing_is_asked_before_the_first_use_and_the_collection_is_looked_at_once(qdrant: QdrantStub) -> None:
    first, second = opened(qdrant), opened(qdrant)
    assert qdrant.requests == []
    await first.count("t1")
    qdrant.requests.clear()
    await second.count("t1")
    await second.count("t1")
    assert qdrant.requests == [
        f"GET /collections/{COLLECTION}/exists",
        f"GET /collections/{COLLECTION}",
        *[f"POST /collections/{COLLECTION}/points/count"] * 2,
    ]
    await first.aclose()
    await second.aclose()


async def test_an_index_that_is_missing_after_a_crash_is_made_later(qdrant: QdrantStub) -> None:
    first, second = opened(qdrant), opened(qdrant)
    await first.count("t1")
    made = set(qdrant.collection(COLLECTION).payload_schema)
    qdrant.drop_index(COLLECTION, "session")
    await second.count("t1")
    assert set(qdrant.collection(COLLECTION).payload_schema) == made
    await first.aclose()
    await second.aclose()


async def test_a_collection_of_another_embedder_is_refused_by_name(
    qdrant: QdrantStub, memory: QdrantServerMemory
) -> None:
    await memory.count("t1")
    qdrant.requests.clear()
    other = opened(qdrant, "sextant", 8)
    named = r"made with the embedder compass \(4 dimensions\), not with sextant \(8 dimensions\)"
    refusal = f"{named}: rebuild it with `waystation memory reindex`"
    for _ in range(2):
        with pytest.raises(MemoryUnavailable, match=refusal):
            await other.upsert([make_passage("wheel", dense=EAST)])
    assert len(qdrant.requests) == 4  # two looks at each use, and nothing more
    await other.aclose()


async def test_a_collection_of_another_program_is_left_alone(qdrant: QdrantStub, memory: QdrantServerMemory) -> None:
    qdrant.make_foreign_collection(COLLECTION, 8)
    with pytest.raises(MemoryUnavailable, match=r"does not name its embedder: .* Set WAYSTATION_QDRANT_COLLECTION"):
        await memory.upsert([make_passage("wheel", dense=EAST)])
    assert qdrant.collection(COLLECTION).payload_schema == {}


async def test_a_collection_that_was_deleted_is_made_again(qdrant: QdrantStub, memory: QdrantServerMemory) -> None:
    await memory.upsert([make_passage("before", dense=EAST)])
    qdrant.delete_collection(COLLECTION)
    await memory.upsert([make_passage("after", dense=EAST)])
    assert [found.passage.text for found in await memory.search(make_query("after", dense=EAST))] == ["after"]


async def test_without_a_dense_embedder_memory_works_by_words(qdrant: QdrantStub) -> None:
    memory = opened(qdrant, "none", None)
    await memory.upsert([make_passage("wheel audit"), make_passage("nothing else")])
    assert [found.passage.text for found in await memory.search(make_query("wheel"))] == ["wheel audit"]
    await memory.aclose()


async def test_many_passages_go_in_several_requests(qdrant: QdrantStub, memory: QdrantServerMemory) -> None:
    passages = [make_passage(f"{number} {'wheel ' * 2_000}") for number in range(BATCH_POINTS * 2 + 1)]
    await memory.upsert(passages)
    assert await memory.count("t1") == len(passages)
    assert qdrant.requests.count(f"PUT /collections/{COLLECTION}/points") == 3
    assert max(qdrant.bodies) < BATCH_BYTES + 10_000


@given(st.lists(st.integers(0, BATCH_BYTES // 3), max_size=12), st.booleans())
def test_batches_keep_every_point_in_order_within_their_limits(sizes: list[int], giant: bool) -> None:
    lengths = [*sizes, BATCH_BYTES * 2] if giant else sizes
    points = [models.PointStruct(id=at, vector={}, payload={"t": "x" * size}) for at, size in enumerate(lengths)]
    made = list(iter_point_batches(points))
    assert [point for batch in made for point in batch] == points
    for batch in made:
        assert len(batch) == 1 or sum(len(point.model_dump_json()) for point in batch) <= BATCH_BYTES


async def test_what_is_no_passage_stays_out_of_the_error(qdrant: QdrantStub, memory: QdrantServerMemory) -> None:
    await memory.count("t1")
    qdrant.put_point(COLLECTION, {"dense": list(EAST)}, {"tenant": "t1", "session": "s1", "text": "sensitive"})
    with pytest.raises(MemoryUnavailable, match=r"sent an unusable answer \(ValidationError\)") as caught:
        await memory.search(make_query("wheel", dense=EAST))
    assert "sensitive" not in str(caught.value)
    assert caught.value.__context__ is None


async def test_points_hold_what_the_embedded_engine_holds(qdrant: QdrantStub, memory: QdrantServerMemory) -> None:
    item = make_passage("wheel", dense=EAST)
    await memory.upsert([item])
    (record,) = qdrant.points(COLLECTION)
    assert record.id == item.passage.id
    assert record.payload == json.loads(item.passage.model_dump_json())


def settled(qdrant: QdrantStub, **given: object) -> Settings:
    return Settings.model_validate({"qdrant_url": qdrant.url, "qdrant_grpc_port": 0, **given})


async def made(settings: Settings) -> None:
    assert settings.qdrant_url is not None
    server = build_qdrant_server(settings, settings.qdrant_url)
    async with aclosing(QdrantServerMemory.open(server, "compass", DIMENSION)) as memory:
        await memory.check()


async def test_a_collection_is_made_as_the_settings_want_it(qdrant: QdrantStub) -> None:
    await made(settled(qdrant, qdrant_quantisation="scalar", qdrant_shards=6, qdrant_replicas=2, qdrant_on_disk=True))
    wanted = qdrant.wanted[COLLECTION]
    assert (wanted.shard_number, wanted.replication_factor, wanted.on_disk_payload) == (6, 2, True)
    assert isinstance(wanted.vectors, dict)
    assert [vector.on_disk for vector in wanted.vectors.values()] == [True]
    assert isinstance(wanted.quantization_config, models.ScalarQuantization)
    assert wanted.quantization_config.scalar.type is models.ScalarType.INT8


@pytest.mark.parametrize(
    ("name", "kind"),
    [("none", None), ("product", models.ProductQuantization), ("binary", models.BinaryQuantization)],
)
async def test_without_a_word_the_server_decides(qdrant: QdrantStub, name: str, kind: type[object] | None) -> None:
    await made(settled(qdrant, qdrant_quantisation=name))
    wanted = qdrant.wanted[COLLECTION]
    assert (wanted.shard_number, wanted.replication_factor, wanted.on_disk_payload) == (None, None, None)
    assert wanted.quantization_config is None if kind is None else isinstance(wanted.quantization_config, kind)
