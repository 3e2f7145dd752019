"""Who looks into embedded memory: several at once, and beside those who keep it open, as two servers of pages do."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from waystation.config.settings import Settings
from waystation.kernel.errors import MemoryInUse, MemoryUnavailable, Unreachable
from waystation.memory.passages import MemoryQuery
from waystation.runtime.redaction_setup import open_embedder
from waystation.runtime.store_setup import open_store
from waystation.tasks.task import tenant_hash
from waystation.workers import memory
from waystation.workers.memory import MemoryReader, open_memory, open_memory_for_search

WANTED = MemoryQuery(tenant=tenant_hash("local"), session=None, text="harbour", dense=None)


@pytest.fixture
async def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home folder with a memory that some worker has made."""
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    made = Settings(home=tmp_path, offline=True, embedder="none")
    async with open_embedder(made) as embedder, open_memory(made, embedder):
        return made


async def test_several_who_look_at_once_wait_for_each_other_without_a_server(settings: Settings) -> None:
    async with aclosing(MemoryReader(settings)) as mine, aclosing(MemoryReader(settings)) as others:
        found = await asyncio.gather(*(reader.search(WANTED, 1_000) for reader in (mine, others) * 4))
    assert found == [()] * 8


async def test_workers_that_start_wait_for_who_looks_and_are_told_of_who_keeps_it(settings: Settings) -> None:
    async with open_embedder(settings) as embedder, open_memory(settings, embedder):
        with pytest.raises(MemoryInUse, match="another process runs the workers"):
            async with open_memory(settings, embedder):
                pass
    async with aclosing(MemoryReader(settings)) as reader, open_embedder(settings) as embedder:
        looks = asyncio.gather(*(reader.search(WANTED, 1_000) for _ in range(8)))
        await asyncio.sleep(0)
        async with open_memory(settings, embedder):
            pass
        await looks


async def test_who_cannot_ask_those_who_keep_it_is_told_so_with_what_to_do(settings: Settings) -> None:
    async with (
        open_embedder(settings) as embedder,
        open_memory(settings, embedder),
        aclosing(MemoryReader(settings)) as reader,
    ):
        with pytest.raises(Unreachable) as told:
            await reader.search(WANTED, 1_000)
    assert f"another process has the memory of {settings.home} open" in str(told.value)
    assert "waystation dev" in str(told.value)
    assert "QDRANT_URL" in str(told.value)


async def test_who_waits_too_long_for_others_is_told_to_try_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LOCK_POLL_SECONDS", 0.1)
    async with (
        aclosing(await open_store(settings)) as store,
        open_embedder(settings) as embedder,
        open_memory_for_search(settings, store, embedder),
        aclosing(MemoryReader(settings)) as reader,
    ):
        with pytest.raises(MemoryUnavailable, match="try again"):
            await reader.search(WANTED, 1_000)
