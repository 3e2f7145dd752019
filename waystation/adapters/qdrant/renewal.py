"""A shard is written anew beside itself, so that what was deleted lies in no file, and its index has all of its points.

The engine only marks what it deletes, and keeps what was written in its log, which it never cuts. Its optimiser holds
Python's lock for as long as it works, so it is run in a process of its own.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import qdrant_edge as qe

from waystation.adapters.qdrant.folder import create_shard, load
from waystation.adapters.qdrant.points import Embedding
from waystation.children import environment, python

PAGE_POINTS = 1_000
"""Read and written at once."""
OPTIMISER = "waystation.adapters.qdrant.optimiser"

logger = logging.getLogger(__name__)


def copy(shard: qe.EdgeShard, place: Path, embedding: Embedding) -> int:
    """Write the shard's points into a new one in this folder; how many. Points may come and go meanwhile."""
    create_shard(place, embedding)
    fresh = load(place)
    try:
        count = sum(_copied(shard, fresh))
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    finally:
        fresh.close()
    return count


def _copied(shard: qe.EdgeShard, fresh: qe.EdgeShard) -> Iterator[int]:
    """How many points each page had."""
    start: qe.PointId | None = None
    while True:
        page = qe.ScrollRequest(offset=start, limit=PAGE_POINTS, with_payload=True, with_vector=True)
        records, start = shard.scroll(page)
        points = [qe.Point(record.id, record.vector or {}, record.payload) for record in records]
        fresh.update(qe.UpdateOperation.upsert_points(points))
        yield len(points)
        if start is None:
            return


async def optimise(place: Path) -> None:
    """Have the index of the shard in this folder made, which nobody has open.

    Without it a search looks at every point: where it cannot be made, that is no reason to give the shard up.
    """
    child = await asyncio.create_subprocess_exec(
        *python(OPTIMISER, str(os.getpid()), str(place)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment(),
    )
    try:
        if code := await child.wait():
            logger.warning("the index of the memory was not made (exit code %s): searches take longer", code)
    except asyncio.CancelledError:
        child.kill()
        await child.wait()
        raise
