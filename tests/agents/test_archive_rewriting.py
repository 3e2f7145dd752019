"""Passages that changed are written over what memory has of them, or are not there at all."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.office import TENANT, Office
from tests.agents.test_archive import commit_passages
from tests.agents.test_archive_refusals import ShortVectors, archive_of
from tests.unit.histories import prose
from waystation.erasure.removal import ERASED, PersonOrder, Sought
from waystation.kernel.errors import MemoryUnavailable
from waystation.testing import ListMemory


async def changed(office: Office) -> None:
    """All passages had a person."""
    tenant = office.ref.tenant
    order = PersonOrder(store_id=await office.store.store_id(), tenant=tenant, wanted="", placeholders=())
    await office.store.erase(order, Sought(prose(20)))


async def test_what_changed_is_written_over(office: Office) -> None:
    await commit_passages(office, 3)
    memory = ListMemory(4)
    archive = replace(office.archive, memory=memory, embedder=ShortVectors())
    await archive.drain()
    await changed(office)
    await archive.rewrite()
    assert [item.passage.text.strip() for item in memory.passages.values()] == [
        f"{number} {ERASED}" for number in range(3)
    ]
    assert await office.store.count_pending_passages() == 0


async def test_what_memory_refuses_now_it_has_no_more_as_it_was_before(office: Office, tmp_path: Path) -> None:
    await commit_passages(office, 3)
    archive = await archive_of(office, tmp_path)
    await archive.drain()
    await changed(office)
    picky = replace(archive, embedder=ShortVectors("1"))
    await picky.rewrite()
    assert await archive.memory.count(TENANT) == 2
    await archive.memory.aclose()


async def test_while_memory_is_away_it_is_not_done(office: Office) -> None:
    await commit_passages(office, 1)
    memory = ListMemory(4)
    memory.failing = True
    with pytest.raises(MemoryUnavailable):
        await replace(office.archive, memory=memory, embedder=ShortVectors()).rewrite()
