"""Measures passages per second into memory, and milliseconds per search: the embedded engine against qdrant-client's
local mode.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from qdrant_client import AsyncQdrantClient

from benchmarks.budgets.tables import print_table
from benchmarks.memory.conversations import PARTS, PROJECTS, REMARKS
from benchmarks.memory.indexing import CREATED, RUN
from waystation.memory.indexing import EMBEDDING_BATCH
from waystation.memory.passages import EmbeddedPassage, MemoryQuery, Passage
from waystation.memory.ports import Memory
from waystation.memory.qdrant.collection import QdrantServerConfig
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.memory.qdrant.points import EmbeddingSpec
from waystation.memory.qdrant.server import QdrantServerMemory

SIZES = (10_000, 100_000)
LOCAL_SIZE = 2_000
"""Local mode looks at every point for every search: more of them take too long."""
QUERIES, LOCAL_QUERIES = 500, 20
DIMENSION = 256
SESSIONS = 20
HEAD = ("engine", "passages", "upserts a second", "search p50, ms", "search p99, ms")


class Speed(NamedTuple):
    """Of one engine."""

    upserts: float
    p50_ms: float
    p99_ms: float


def _vector(chance: np.random.Generator) -> tuple[float, ...]:
    return tuple(chance.standard_normal(DIMENSION).tolist())


def _batches(count: int) -> Iterator[list[EmbeddedPassage]]:
    """Passages of about 600 characters, in twenty sessions of one tenant, made as they are needed."""
    chance, numbers = random.Random(1), np.random.default_rng(1)
    for first in range(0, count, EMBEDDING_BATCH):
        places = range(first, min(count, first + EMBEDDING_BATCH))
        yield [EmbeddedPassage(passage=_passage(place, chance), dense=_vector(numbers)) for place in places]


def _passage(number: int, chance: random.Random) -> Passage:
    said = [
        f"[m{number + line} user] "
        + chance.choice(REMARKS).format(project=chance.choice(PROJECTS), part=chance.choice(PARTS))
        + f" {chance.randrange(10**6)}"
        for line in range(6)
    ]
    return Passage(
        tenant=RUN.tenant,
        task_id=RUN.task_id,
        step_id=RUN.step_id,
        session=f"session-{number % SESSIONS}",
        run_id=RUN.run_id,
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))),
        first_message=f"m{number}",
        last_message=f"m{number + 5}",
        text="\n".join(said),
        content_hash=str(number),
        created=CREATED,
    )


async def _measured(memory: Memory, count: int, queries: int) -> Speed:
    """Batches as the outbox writes them; searches one after the other, each in one session."""
    writing = 0.0
    for batch in _batches(count):
        start = time.perf_counter()
        await memory.upsert(batch)
        writing += time.perf_counter() - start
    chance, numbers, times = random.Random(2), np.random.default_rng(2), list[float]()
    for _ in range(queries):
        text = f"what about the {chance.choice(PARTS)} of {chance.choice(PROJECTS)}"
        session = f"session-{chance.randrange(SESSIONS)}"
        query = MemoryQuery(tenant=RUN.tenant, session=session, text=text, dense=_vector(numbers))
        start = time.perf_counter()
        assert await memory.search(query)
        times.append((time.perf_counter() - start) * 1_000)
    return Speed(count / writing, *np.percentile(times, [50, 99]).tolist())


async def _edge(count: int) -> Speed:
    with TemporaryDirectory() as folder:
        memory = await QdrantEdgeMemory.open(Path(folder) / "memory", "random", DIMENSION)
        speed = await _measured(memory, count, QUERIES)
        await memory.aclose()
        return speed


async def _local(count: int) -> Speed:
    with TemporaryDirectory() as folder:
        embedding = EmbeddingSpec(embedder="random", dimension=DIMENSION)
        client = AsyncQdrantClient(path=folder)
        memory = QdrantServerMemory(client, QdrantServerConfig(url="http://local"), embedding)
        speed = await _measured(memory, count, LOCAL_QUERIES)
        await memory.aclose()
        return speed


def _row(engine: str, count: int, speed: Speed) -> tuple[object, ...]:
    return (engine, f"{count:,}", f"{speed.upserts:,.0f}", f"{speed.p50_ms:,.1f}", f"{speed.p99_ms:,.1f}")


def prove() -> None:
    """Print the table."""
    engines: list[tuple[str, int, Callable[[int], Awaitable[Speed]]]] = [
        ("qdrant-client, local mode", LOCAL_SIZE, _local),
        *(("embedded", count, _edge) for count in (LOCAL_SIZE, *SIZES)),
    ]
    speeds = [(name, count, asyncio.run(_awaited(measure(count)))) for name, count, measure in engines]
    rows = [_row(*measured) for measured in speeds]
    (_, _, local), (_, _, edge), *_ = speeds
    ratio = (edge.upserts / local.upserts, local.p50_ms / edge.p50_ms, local.p99_ms / edge.p99_ms)
    rows.append(("embedded, times as fast", f"{LOCAL_SIZE:,}", *(f"{times:,.0f}" for times in ratio)))
    print_table(f"Speed, {DIMENSION} dimensions, batches of {EMBEDDING_BATCH}, {SESSIONS} sessions", HEAD, rows)


async def _awaited(measured: Awaitable[Speed]) -> Speed:
    return await measured
