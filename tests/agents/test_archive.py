import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.agents.office import NOON, TASK, TENANT, Office
from tests.unit.histories import prose
from waystation.context.transcript import SummaryRecord, build_user_message
from waystation.memory.archive import EMBEDDED_AT_ONCE, DrainResult
from waystation.memory.memory import Passage
from waystation.runtime.sql_store import SqlStore


async def commit_passages(office: Office, count: int, step_id: str = "research-1") -> None:
    """Let this many passages wait, of one compaction."""
    site = await office.site(step_id)
    made = [
        Passage(
            id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{step_id}/{number}")),
            tenant=TENANT,
            session="session",
            task_id=TASK,
            run_id=site.run.run_id,
            step_id=step_id,
            first_message="m2",
            last_message="m6",
            text=f"{number} {prose(20)}",
            content_hash="",
            created=NOON,
        )
        for number in range(count)
    ]
    record = SummaryRecord(id=step_id, strategy="window", covered=("m2",), summary=build_user_message("s-1", "So far."))
    await office.store.commit_compaction(site.fence, 0, record, made, None)


async def test_everything_that_waits_is_stored_once_in_batches(office: Office) -> None:
    await commit_passages(office, EMBEDDED_AT_ONCE + 6)
    assert await office.archive.drain() == DrainResult(stored=EMBEDDED_AT_ONCE + 6, waiting=0)
    assert len(office.memory.passages) == EMBEDDED_AT_ONCE + 6
    assert await office.archive.drain() == DrainResult(stored=0, waiting=0)


async def test_one_agent_run_is_brought_in_without_the_others(office: Office) -> None:
    await commit_passages(office, 2)
    await commit_passages(office, 3, "research-2")
    assert (await office.archive.drain(f"{TASK}/research-2")).stored == 3
    assert await office.store.count_pending_passages() == 2
    assert await office.archive.drain() == DrainResult(stored=2, waiting=0)


async def test_while_memory_does_not_answer_passages_wait(office: Office) -> None:
    await commit_passages(office, 3)
    office.memory.failing = True
    assert await office.archive.drain() == DrainResult(stored=0, waiting=3)
    office.memory.failing = False
    assert await office.archive.drain() == DrainResult(stored=3, waiting=0)


class Crash(Exception):
    pass


class CrashingStore(SqlStore):
    async def stored(self, passage_ids: Sequence[str]) -> None:
        raise Crash


async def test_a_crash_between_writing_and_marking_writes_the_same_points_again(office: Office) -> None:
    await commit_passages(office, 3)
    crashing = CrashingStore(office.store.database, office.clock, office.store_id)
    with pytest.raises(Crash):
        await replace(office.archive, store=crashing).drain()
    assert len(office.memory.passages) == 3
    assert await office.archive.drain() == DrainResult(stored=3, waiting=0)
    assert len(office.memory.passages) == 3
