"""The contracts of texts, outbox, notes and deliverables."""

import hashlib

import pytest

from tests.readers import ANYONE, TASK_1
from tests.store_contract.values import note, opened_run, passage, question, reply, summary
from waystation.agents.deliverables import Analysis, Finding, ReportDraft, ResearchFindings, Section
from waystation.context.transcript import RewindRecord
from waystation.kernel.errors import TextNotFoundError, VersionConflict
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.continuation import Rewind


async def test_a_text_is_found_by_its_content_hash_and_kept_once(store: SqlStore) -> None:
    text = "Zeile\r\n\x00\u2028Ende"
    blob = await store.put_text(text, TASK_1)
    assert blob == hashlib.sha256(text.encode()).hexdigest() == await store.put_text(text, TASK_1)
    assert await store.get_text(blob, ANYONE) == text


async def test_a_missing_text_is_an_error_that_names_its_hash(store: SqlStore) -> None:
    with pytest.raises(TextNotFoundError, match=r"^no text with the content hash abc in this store$"):
        await store.get_text("abc", ANYONE)


async def test_passages_wait_oldest_first_until_they_are_stored(store: SqlStore) -> None:
    one, two = await opened_run(store, "one"), await opened_run(store, "two")
    first = [passage("z", one.run_id), passage("a", one.run_id)]
    other = [passage("m", two.run_id, task_id="task-2")]
    await store.commit_compaction(one, 0, summary(), first, None)
    await store.commit_compaction(two, 0, summary(), other, None)
    assert await store.waiting(10) == (*first, *other)
    assert await store.waiting(1) == (first[0],)
    assert await store.waiting(10, two.run_id) == tuple(other)
    assert (await store.count_pending_passages(), await store.count_pending_passages("task-2")) == (3, 1)
    await store.stored(["z", "m", "never-heard-of"])
    await store.stored([])
    assert await store.waiting(10) == (first[1],)
    assert (await store.count_pending_passages(), await store.count_pending_passages("task-2")) == (1, 0)


async def test_a_passage_that_was_stored_never_waits_again(store: SqlStore) -> None:
    fence = await opened_run(store)
    await store.commit_compaction(fence, 0, summary("a"), [passage("p-1")], None)
    await store.stored(["p-1"])
    await store.commit_compaction(fence, 1, summary("b"), [passage("p-1"), passage("p-2")], None)
    assert await store.waiting(10) == (passage("p-2"),)
    assert await store.list_task_passages("task-1", ANYONE) == (passage("p-1"), passage("p-2"))
    assert await store.list_task_passages("task-2", ANYONE) == ()


async def test_notes_keep_their_order_and_each_id_once_a_run(store: SqlStore) -> None:
    one, two = await opened_run(store, "one"), await opened_run(store, "two")
    taken = (note("b", one.run_id), note("a", one.run_id), note("b", two.run_id))
    for fence, kept in ((one, taken[0]), (one, taken[1]), (two, taken[2]), (one, taken[0])):
        await store.add_note(fence, "task-1", kept)
    assert await store.notes("task-1", ANYONE) == taken
    assert await store.notes("task-1", ANYONE, two.run_id) == (taken[2],)
    assert await store.notes("task-2", ANYONE) == ()


async def test_a_later_hand_in_of_a_run_replaces_the_earlier_one(store: SqlStore) -> None:
    fence = await opened_run(store)
    assert await store.get_deliverable(fence.run_id, ANYONE) is None
    finding = Finding(claim="Blue scatters most", citations=("[sky.md:1-2]",))
    report = ReportDraft(title="Sky", sections=(Section(heading="Why", markdown="Because."),))
    for deliverable in (
        ResearchFindings(findings=(finding,)),
        Analysis(conclusions=(finding,), gaps=("night",)),
        report,
    ):
        await store.hand_in(fence, "task-1", deliverable)
        assert await store.get_deliverable(fence.run_id, ANYONE) == deliverable


async def test_a_rewind_takes_notes_hand_ins_and_passages_back_in_one_commit(store: SqlStore) -> None:
    fence = await opened_run(store)
    for version, message in enumerate((question(1), reply(1))):
        await store.commit_message(fence, version, message)
    for call in ("call-1", "call-2"):
        await store.add_note(fence, "task-1", note(f"{fence.run_id}/{call}", fence.run_id))
    await store.hand_in(fence, "task-1", ReportDraft(title="Whole"))
    await store.commit_compaction(fence, 2, summary(), [passage("p-1"), passage("p-2")], None)
    await store.stored(["p-1"])
    back = Rewind(
        record=RewindRecord(id="edit-1", message_id="question-1"),
        gone=frozenset({"reply-1"}),
        calls=frozenset({"call-2"}),
        handed_in=ReportDraft(title="Half"),
    )
    with pytest.raises(VersionConflict):
        await store.commit_rewind(fence, 2, back)
    assert len(await store.notes("task-1", ANYONE)) == 2
    for _ in range(2):
        await store.commit_rewind(fence, 3, back)
    assert [kept.id for kept in await store.notes("task-1", ANYONE)] == [f"{fence.run_id}/call-1"]
    assert await store.get_deliverable(fence.run_id, ANYONE) == ReportDraft(title="Half")
    assert (await store.waiting(10), await store.list_task_passages("task-1", ANYONE)) == ((), ())
    assert set(await store.list_passage_ids_to_delete(10)) == {"p-1", "p-2"}
    await store.forgotten(["p-1"])
    assert await store.list_passage_ids_to_delete(10) == ("p-2",)
    assert (await store.load(fence.run_id, ANYONE)).version == 4
