"""Conversations that are taken back, with everything that went on after that message."""

import uuid

import pytest
from pydantic import JsonValue

from tests.agents.office import NOON, TASK, Office
from tests.readers import ANYONE
from tests.unit.histories import prose
from waystation.agents.deliverables import Note, ReportDraft
from waystation.agents.tools.work import extract_deliverable
from waystation.context.history import build_model_view, get_effective_transcript
from waystation.context.transcript import Message, SummaryRecord, ToolResult, ToolUse, build_user_message
from waystation.kernel.errors import BadInput, StaleFenceError
from waystation.memory.memory import Passage
from waystation.tasks.context_editor import Rewinder
from waystation.tasks.continuation import taken_back

FINDING: JsonValue = {"claim": "It silted up.", "citations": ["[harbour.md:2-2]"]}


def called(number: int, name: str, arguments: dict[str, JsonValue], *, fails: bool = False) -> tuple[Message, Message]:
    """A call and its result: messages 2n and 2n + 1."""
    call = ToolUse(id=f"call-{number}", name=name, input=arguments)
    result = ToolResult(tool_use_id=call.id, content="done", is_error=fails)
    return (
        Message(id=f"m{2 * number}", role="assistant", blocks=(call,)),
        Message(id=f"m{2 * number + 1}", role="user", blocks=(result,)),
    )


def section(number: int, heading: str, *, fails: bool = False) -> tuple[Message, Message]:
    return called(number, "write_section", {"heading": heading, "markdown": f"Text {number}."}, fails=fails)


def passage(office: Office, first: str, last: str) -> Passage:
    run = office.run_ref("writing")
    return Passage(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, first + last)),
        tenant=run.tenant,
        session=run.session,
        task_id=TASK,
        run_id=run.run_id,
        step_id="writing",
        first_message=first,
        last_message=last,
        text=prose(20),
        content_hash="",
        created=NOON,
    )


def rewinder(office: Office) -> Rewinder:
    return Rewinder(store=office.store, archive=office.archive)


async def written(office: Office) -> None:
    """A report of three sections, a note with each, and a compaction over the first two with its passages in memory."""
    site = await office.site("writing")
    said = [
        build_user_message("m1", "Write it down."),
        *(message for number in (1, 2, 3) for message in section(number, f"Part {number}")),
    ]
    for version, message in enumerate(said):
        await office.store.commit_message(site.fence, version, message)
    for number in (1, 2, 3):
        note = Note(
            id=f"{site.run.run_id}/call-{number}",
            run_id=site.run.run_id,
            text=prose(5),
            document="harbour.md",
            first_line=1,
            last_line=1,
        )
        await office.store.add_note(site.fence, TASK, note)
    draft = extract_deliverable(said)
    assert draft is not None
    await office.store.hand_in(site.fence, TASK, draft)
    record = SummaryRecord(
        id="s-1", strategy="window", covered=("m2", "m3"), summary=build_user_message("s-1", "So far.")
    )
    made = [passage(office, "m2", "m3"), passage(office, "m3", "m6")]
    await office.store.commit_compaction(site.fence, len(said), record, made, None)
    await office.archive.drain()


async def test_notes_sections_and_passages_go_with_their_messages_and_the_rest_stays(office: Office) -> None:
    await written(office)
    run = office.run_ref("writing")
    await rewinder(office).rewind(run, "m3", "edit-1", keep=True)
    transcript = await office.store.load(run.run_id, ANYONE)
    assert [message.id for message in build_model_view(transcript)] == ["m1", "m2", "m3"]
    assert len(transcript.messages) == 7
    assert [note.id for note in await office.store.notes(TASK, ANYONE)] == [f"{run.run_id}/call-1"]
    draft = await office.store.get_deliverable(run.run_id, ANYONE)
    assert isinstance(draft, ReportDraft)
    assert [part.heading for part in draft.sections] == ["Part 1"]
    kept = passage(office, "m2", "m3")
    assert await office.store.list_task_passages(TASK, ANYONE) == (kept,)
    assert list(office.memory.passages) == [kept.id]


async def test_the_same_rewind_twice_is_one_and_takes_no_right_to_write_away(office: Office) -> None:
    await written(office)
    run = office.run_ref("writing")
    await rewinder(office).rewind(run, "m3", "edit-1", keep=True)
    before = await office.store.load(run.run_id, ANYONE)
    fence = await office.store.take_fence(run.run_id)
    await rewinder(office).rewind(run, "m3", "edit-1", keep=True)
    assert await office.store.load(run.run_id, ANYONE) == before
    await office.store.commit_message(fence, before.version, build_user_message("m8", "On."))
    late = taken_back(before, "m2", "edit-2", keep=True)
    stale = fence.replace(number=fence.number - 1)
    with pytest.raises(StaleFenceError):
        await office.store.commit_rewind(stale, before.version, late)


async def test_memory_that_does_not_answer_forgets_later(office: Office) -> None:
    await written(office)
    office.memory.failing = True
    await rewinder(office).rewind(office.run_ref("writing"), "m1", "edit-1", keep=True)
    office.memory.failing = False
    assert len(office.memory.passages) == 2
    await office.archive.drain()
    assert office.memory.passages == {}
    assert await office.store.list_passage_ids_to_delete(10) == ()


async def test_a_passage_that_comes_late_into_memory_is_taken_out_again(office: Office) -> None:
    """It was read from the outbox before its conversation was taken back."""
    await written(office)
    await rewinder(office).rewind(office.run_ref("writing"), "m1", "edit-1", keep=True)
    await office.store.stored([passage(office, "m2", "m3").id])
    assert await office.store.waiting(10) == ()
    assert await office.store.list_passage_ids_to_delete(10) == (passage(office, "m2", "m3").id,)


async def test_an_unknown_message_is_refused_and_nothing_changes(office: Office) -> None:
    await written(office)
    run = office.run_ref("writing")
    before = await office.store.load(run.run_id, ANYONE)
    with pytest.raises(BadInput, match="there is no message 'm9' in this conversation; there are: m1 to m7"):
        await rewinder(office).rewind(run, "m9", "edit-1", keep=True)
    assert await office.store.load(run.run_id, ANYONE) == before


def test_what_was_handed_in_follows_from_the_calls_that_succeeded() -> None:
    said = [*section(1, "A"), *section(2, "B", fails=True), *section(3, "A"), *section(4, "C")]
    draft = extract_deliverable(said)
    assert isinstance(draft, ReportDraft)
    assert [(part.heading, part.markdown) for part in draft.sections] == [("A", "Text 3."), ("C", "Text 4.")]
    whole = extract_deliverable([*said, *called(5, "submit_report", {"title": "T", "summary": "S"})])
    assert isinstance(whole, ReportDraft)
    assert (whole.title, len(whole.sections)) == ("T", 2)
    assert extract_deliverable(called(1, "submit_findings", {"findings": [FINDING]})) is not None
    assert extract_deliverable([build_user_message("m1", "Go."), *called(1, "read_notes", {})]) is None


async def test_going_back_before_the_first_message_leaves_nothing_that_counts(office: Office) -> None:
    await written(office)
    run = office.run_ref("writing")
    await rewinder(office).rewind(run, "m1", "edit-1", keep=False)
    assert get_effective_transcript(await office.store.load(run.run_id, ANYONE)).messages == ()
    assert await office.store.get_deliverable(run.run_id, ANYONE) is None
    assert await office.store.notes(TASK, ANYONE) == ()
