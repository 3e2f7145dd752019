import asyncio
import sys
from pathlib import Path

import pytest

from waystation.kernel.errors import MemoryUnavailable
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.memory.qdrant.points import with_bigrams

WRITE_AND_WAIT = """
import asyncio, sys
from pathlib import Path
from datetime import UTC, datetime
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.memory.passages import EmbeddedPassage, Passage

def passage(number):
    return EmbeddedPassage(dense=None, passage=Passage(
        id=f"00000000-0000-0000-0000-{number:012d}", tenant="t", session="s", task_id="k", run_id="k/r", step_id="r",
        first_message="m1", last_message="m1", text=f"wheel {number}", content_hash="0",
        created=datetime(2026, 1, 1, tzinfo=UTC)))

async def main():
    memory = await QdrantEdgeMemory.open(Path(sys.argv[1]), "compass", 4)
    await memory.upsert([passage(number) for number in range(50)])
    print("written", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_what_was_stored_survives_kill_9_and_the_memory_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITE_AND_WAIT, str(path), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert child.stdout is not None
    assert (await child.stdout.readline()).strip() == b"written"
    with pytest.raises(MemoryUnavailable, match="already open"):
        await QdrantEdgeMemory.open(path, "compass", 4)
    child.kill()
    await child.communicate()
    memory = await QdrantEdgeMemory.open(path, "compass", 4)
    assert await memory.count("t") == 50
    await memory.aclose()


async def test_a_second_opening_in_this_process_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    first = await QdrantEdgeMemory.open(tmp_path / "memory", "compass", 4)
    with pytest.raises(MemoryUnavailable, match="already open, in this or another process"):
        await QdrantEdgeMemory.open(tmp_path / "memory", "compass", 4)
    await first.aclose()
    again = await QdrantEdgeMemory.open(tmp_path / "memory", "compass", 4)
    await again.aclose()


async def test_a_memory_made_with_another_embedder_is_refused_by_name(tmp_path: Path) -> None:
    await (await QdrantEdgeMemory.open(tmp_path / "memory", "compass", 4)).aclose()
    with pytest.raises(MemoryUnavailable, match=r"made with the embedder compass \(4 dimensions\), not with sextant"):
        await QdrantEdgeMemory.open(tmp_path / "memory", "sextant", 8)


async def test_a_memory_without_a_dense_embedder_works_by_words(tmp_path: Path) -> None:
    memory = await QdrantEdgeMemory.open(tmp_path / "memory", "none", None)
    assert await memory.count("t") == 0
    await memory.aclose()


async def test_a_directory_that_is_no_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    with pytest.raises(MemoryUnavailable, match=r"embedder\.json"):
        await QdrantEdgeMemory.open(tmp_path / "memory", "compass", 4)


async def test_a_closed_memory_is_unavailable(tmp_path: Path) -> None:
    memory = await QdrantEdgeMemory.open(tmp_path / "memory", "compass", 4)
    await memory.aclose()
    with pytest.raises(MemoryUnavailable, match="cannot count the passages in memory"):
        await memory.count("t")


async def test_two_openings_of_a_new_memory_at_once_leave_one_memory(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    outcomes = await asyncio.gather(
        *(QdrantEdgeMemory.open(path, "compass", 4) for _ in range(4)), return_exceptions=True
    )
    (opened,) = [outcome for outcome in outcomes if isinstance(outcome, QdrantEdgeMemory)]
    assert all(isinstance(outcome, MemoryUnavailable) for outcome in outcomes if outcome is not opened)
    assert [entry.name for entry in tmp_path.iterdir()] == ["memory"]
    await opened.aclose()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words", "plain words"),
        ("新版本", " 新版 版本 "),
        ("v2 発 now", "v2  発  now"),
        ("カタカナ", " カタ タカ カナ "),
    ],
)
def test_only_unspaced_scripts_are_cut_into_pairs(text: str, expected: str) -> None:
    assert with_bigrams(text) == expected
