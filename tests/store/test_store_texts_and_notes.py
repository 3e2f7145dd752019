"""The contracts of texts, outbox, notes and deliverables."""

import hashlib

import pytest

from tests.support.scopes import SYSTEM_SCOPE, TASK_1_SCOPE
from tests.support.store_values import make_note, make_passage, make_question, make_reply, make_summary, open_run
from waystation.agents.deliverables import Analysis, Finding, ReportDraft, ReportSection, ResearchFindings
from waystation.agents.transcript_rewind import TranscriptRewind
from waystation.context.transcript import RewindRecord
from waystation.kernel.errors import TextNotFoundError, VersionConflict
from waystation.runtime.sql_store import SqlStore


async def test_a_text_is_found_by_its_content_hash_and_kept_once(store: SqlStore) -> None:
    text = "Zeile\r\n\x00\u2028Ende"
    blob = await store.put_text(text, TASK_1_SCOPE)
    assert blob == hashlib.sha256(text.encode()).hexdigest() == await store.put_text(text, TASK_1_SCOPE)
    assert await store.get_text(blob, SYSTEM_SCOPE) == text


async def test_a_missing_text_is_an_error_that_names_its_hash(store: SqlStore) -> None:
    with pytest.raises(TextNotFoundError, match=r"^no text with the content hash abc in this store$"):
        await store.get_text("abc", SYSTEM_SCOPE)


async def test_passages_wait_oldest_first_until_they_are_stored(store: SqlStore) -> None:
    one, two = await open_run(store, "one"), await open_run(store, "two")
    first = [make_passage("z", one.run_id), make_passage("a", one.run_id)]
    other = [make_passage("m", two.run_id, task_id="task-2")]
    await store.commit_compaction(one, 0, make_summary(), first, None)
    await store.commit_compaction(two, 0, make_summary(), other, None)
    assert (await store.load_outbox_batch(10)).pending == (*first, *other)
    assert (await store.load_outbox_batch(1)).pending == (first[0],)
    assert (await store.load_outbox_batch(10, two.run_id)).pending == tuple(other)
    assert (await store.count_pending_passages(), await store.count_pending_passages("task-2")) == (3, 1)
    await store.mark_passages_stored(["z", "m", "never-heard-of"])
    await store.mark_passages_stored([])
    assert (await store.load_outbox_batch(10)).pending == (first[1],)
    assert (await store.count_pending_passages(), await store.count_pending_passages("task-2")) == (1, 0)


async def test_a_passage_that_was_stored_never_waits_again(store: SqlStore) -> None:
    fence = await open_run(store)
    await store.commit_compaction(fence, 0, make_summary("a"), [make_passage("p-1")], None)
    await store.mark_passages_stored(["p-1"])
    await store.commit_compaction(fence, 1, make_summary("b"), [make_passage("p-1"), make_passage("p-2")], None)
    assert (await store.load_outbox_batch(10)).pending == (make_passage("p-2"),)
    assert await store.list_task_passages("task-1", SYSTEM_SCOPE) == (make_passage("p-1"), make_passage("p-2"))
    assert await store.list_task_passages("task-2", SYSTEM_SCOPE) == ()


async def test_notes_keep_their_order_and_each_id_once_a_run(store: SqlStore) -> None:
    one, two = await open_run(store, "one"), await open_run(store, "two")
    taken = (make_note("b", one.run_id), make_note("a", one.run_id), make_note("b", two.run_id))
    for fence, kept in ((one, taken[0]), (one, taken[1]), (two, taken[2]), (one, taken[0])):
        await store.add_note(fence, "task-1", kept)
    assert await store.list_notes("task-1", SYSTEM_SCOPE) == taken
    assert await store.list_notes("task-1", SYSTEM_SCOPE, two.run_id) == (taken[2],)
    assert await store.list_notes("task-2", SYSTEM_SCOPE) == ()


async def test_a_later_submission_of_a_run_replaces_the_earlier_one(store: SqlStore) -> None:
    fence = await open_run(store)
    assert await store.get_deliverable(fence.run_id, SYSTEM_SCOPE) is None
    finding = Finding(claim="Blue scatters most", citations=("[sky.md:1-2]",))
    report = ReportDraft(title="Sky", sections=(ReportSection(heading="Why", markdown="Because."),))
    for deliverable in (
        ResearchFindings(findings=(finding,)),
        Analysis(conclusions=(finding,), gaps=("night",)),
        report,
    ):
        await store.commit_deliverable(fence, "task-1", deliverable)
        assert await store.get_deliverable(fence.run_id, SYSTEM_SCOPE) == deliverable


async def test_a_rewind_takes_notes_submissions_and_passages_back_in_one_commit(store: SqlStore) -> None:
    fence = await open_run(store)
    for version, message in enumerate((make_question(1), make_reply(1))):
        await store.commit_message(fence, version, message)
    for call in ("call-1", "call-2"):
        await store.add_note(fence, "task-1", make_note(f"{fence.run_id}/{call}", fence.run_id))
    await store.commit_deliverable(fence, "task-1", ReportDraft(title="Whole"))
    await store.commit_compaction(fence, 2, make_summary(), [make_passage("p-1"), make_passage("p-2")], None)
    await store.mark_passages_stored(["p-1"])
    back = TranscriptRewind(
        record=RewindRecord(id="edit-1", message_id="question-1"),
        removed_messages=frozenset({"reply-1"}),
        removed_calls=frozenset({"call-2"}),
        deliverable=ReportDraft(title="Half"),
    )
    with pytest.raises(VersionConflict):
        await store.commit_rewind(fence, 2, back)
    assert len(await store.list_notes("task-1", SYSTEM_SCOPE)) == 2
    for _ in range(2):
        await store.commit_rewind(fence, 3, back)
    assert [kept.id for kept in await store.list_notes("task-1", SYSTEM_SCOPE)] == [f"{fence.run_id}/call-1"]
    assert await store.get_deliverable(fence.run_id, SYSTEM_SCOPE) == ReportDraft(title="Half")
    assert ((await store.load_outbox_batch(10)).pending, await store.list_task_passages("task-1", SYSTEM_SCOPE)) == (
        (),
        (),
    )
    assert set(await store.list_passage_ids_to_delete(10)) == {"p-1", "p-2"}
    await store.mark_passages_deleted(["p-1"])
    assert await store.list_passage_ids_to_delete(10) == ("p-2",)
    assert (await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).version == 4
