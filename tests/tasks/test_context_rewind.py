"""Conversations that are taken back, with everything that went on after that message."""

import uuid

import pytest
from pydantic import JsonValue

from tests.support.agent_environment import NOON, TASK, AgentEnvironment
from tests.support.conversations import make_filler_text
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.citation_feedback import NOT_FINAL
from waystation.agents.deliverables import Note, ReportDraft, ResearchFindings
from waystation.agents.tools.submissions import extract_deliverable
from waystation.agents.transcript_rewind import build_transcript_rewind
from waystation.context.history import build_model_view, get_effective_transcript
from waystation.context.transcript import Message, SummaryRecord, ToolResult, ToolUse, build_user_message
from waystation.kernel.errors import BadInput, StaleFenceError
from waystation.memory.passages import Passage
from waystation.tasks.context_editor import TranscriptRewinder

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


def passage(env: AgentEnvironment, first: str, last: str) -> Passage:
    run = env.run_ref("writing")
    return Passage(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, first + last)),
        tenant=run.tenant,
        session=run.session,
        task_id=TASK,
        run_id=run.run_id,
        step_id="writing",
        first_message=first,
        last_message=last,
        text=make_filler_text(20),
        content_hash="",
        created=NOON,
    )


def rewinder(env: AgentEnvironment) -> TranscriptRewinder:
    return TranscriptRewinder(env.store, env.outbox_drainer, env.agent_deps.submission_checker)


async def written(env: AgentEnvironment) -> None:
    """A report of three sections, a note with each, and a compaction over the first two with its passages in memory."""
    site = await env.make_tool_context("writing")
    said = [
        build_user_message("m1", "Write it down."),
        *(message for number in (1, 2, 3) for message in section(number, f"Part {number}")),
    ]
    for version, message in enumerate(said):
        await env.store.commit_message(site.fence, version, message)
    for number in (1, 2, 3):
        note = Note(
            id=f"{site.run.run_id}/call-{number}",
            run_id=site.run.run_id,
            text=make_filler_text(5),
            document="harbour.md",
            first_line=1,
            last_line=1,
        )
        await env.store.add_note(site.fence, TASK, note)
    draft = extract_deliverable(said)
    assert draft is not None
    await env.store.commit_deliverable(site.fence, TASK, draft)
    record = SummaryRecord(
        id="s-1", strategy="window", covered=("m2", "m3"), summary=build_user_message("s-1", "So far.")
    )
    made = [passage(env, "m2", "m3"), passage(env, "m3", "m6")]
    await env.store.commit_compaction(site.fence, len(said), record, made, None)
    await env.outbox_drainer.drain()


async def test_notes_sections_and_passages_go_with_their_messages_and_the_rest_stays(
    env: AgentEnvironment,
) -> None:
    await written(env)
    run = env.run_ref("writing")
    await rewinder(env).rewind(run, "m3", "edit-1", keep=True)
    transcript = await env.store.load_transcript(run.run_id, SYSTEM_SCOPE)
    assert [message.id for message in build_model_view(transcript)] == ["m1", "m2", "m3"]
    assert len(transcript.messages) == 7
    assert [note.id for note in await env.store.list_notes(TASK, SYSTEM_SCOPE)] == [f"{run.run_id}/call-1"]
    draft = await env.store.get_deliverable(run.run_id, SYSTEM_SCOPE)
    assert isinstance(draft, ReportDraft)
    assert [part.heading for part in draft.sections] == ["Part 1"]
    kept = passage(env, "m2", "m3")
    assert await env.store.list_task_passages(TASK, SYSTEM_SCOPE) == (kept,)
    assert list(env.memory.passages) == [kept.id]


async def test_the_same_rewind_twice_is_one_and_takes_no_right_to_write_away(env: AgentEnvironment) -> None:
    await written(env)
    run = env.run_ref("writing")
    await rewinder(env).rewind(run, "m3", "edit-1", keep=True)
    before = await env.store.load_transcript(run.run_id, SYSTEM_SCOPE)
    fence = await env.store.acquire_fence(run.run_id)
    await rewinder(env).rewind(run, "m3", "edit-1", keep=True)
    assert await env.store.load_transcript(run.run_id, SYSTEM_SCOPE) == before
    await env.store.commit_message(fence, before.version, build_user_message("m8", "On."))
    late = build_transcript_rewind(before, "m2", "edit-2", keep=True)
    stale = fence.replace(number=fence.number - 1)
    with pytest.raises(StaleFenceError):
        await env.store.commit_rewind(stale, before.version, late)


async def test_memory_that_does_not_answer_forgets_later(env: AgentEnvironment) -> None:
    await written(env)
    env.memory.failing = True
    await rewinder(env).rewind(env.run_ref("writing"), "m1", "edit-1", keep=True)
    env.memory.failing = False
    assert len(env.memory.passages) == 2
    await env.outbox_drainer.drain()
    assert env.memory.passages == {}
    assert await env.store.list_passage_ids_to_delete(10) == ()


async def test_a_passage_that_comes_late_into_memory_is_taken_out_again(env: AgentEnvironment) -> None:
    """It was read from the outbox before its conversation was taken back."""
    await written(env)
    await rewinder(env).rewind(env.run_ref("writing"), "m1", "edit-1", keep=True)
    await env.store.mark_passages_stored([passage(env, "m2", "m3").id])
    assert (await env.store.load_outbox_batch(10)).pending == ()
    assert await env.store.list_passage_ids_to_delete(10) == (passage(env, "m2", "m3").id,)


async def test_an_unknown_message_is_refused_and_nothing_changes(env: AgentEnvironment) -> None:
    await written(env)
    run = env.run_ref("writing")
    before = await env.store.load_transcript(run.run_id, SYSTEM_SCOPE)
    with pytest.raises(BadInput, match="there is no message 'm9' in this conversation; its messages are: m1 to m7"):
        await rewinder(env).rewind(run, "m9", "edit-1", keep=True)
    assert await env.store.load_transcript(run.run_id, SYSTEM_SCOPE) == before


def test_what_is_kept_until_it_is_mended_counts_as_submitted() -> None:
    first: JsonValue = [{"claim": "First.", "citations": []}]
    again: JsonValue = [{"claim": "Again.", "citations": []}]
    said = [
        *called(1, "submit_findings", {"findings": first}),
        *called(2, "submit_findings", {"findings": again}, fails=True),
    ]
    assert extract_deliverable(said) == extract_deliverable(said[:2])
    kept = said[3].replace(blocks=tuple(one.replace(content=NOT_FINAL) for one in said[3].tool_results))
    found = extract_deliverable([*said[:3], kept])
    assert isinstance(found, ResearchFindings)
    assert found.findings[0].claim == "Again."


async def test_after_a_rewind_citations_have_one_spelling_too(env: AgentEnvironment) -> None:
    site = await env.make_tool_context()
    found: JsonValue = [{"claim": "It silted up.", "citations": ["harbour.md, line 2"]}]
    said = [
        build_user_message("m1", "Go."),
        *called(1, "submit_findings", {"findings": found}),
        build_user_message("m9", "Stop."),
    ]
    for version, message in enumerate(said):
        await env.store.commit_message(site.fence, version, message)
    submitted = extract_deliverable(said)
    assert submitted is not None
    await env.store.commit_deliverable(site.fence, TASK, submitted)
    await rewinder(env).rewind(site.run, said[2].id, "edit-1", keep=True)
    kept = await env.store.get_deliverable(site.run.run_id, SYSTEM_SCOPE)
    assert isinstance(kept, ResearchFindings)
    assert kept.findings[0].citations == ("[harbour.md:2-2]",)


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


async def test_going_back_before_the_first_message_leaves_nothing_that_counts(env: AgentEnvironment) -> None:
    await written(env)
    run = env.run_ref("writing")
    await rewinder(env).rewind(run, "m1", "edit-1", keep=False)
    assert get_effective_transcript(await env.store.load_transcript(run.run_id, SYSTEM_SCOPE)).messages == ()
    assert await env.store.get_deliverable(run.run_id, SYSTEM_SCOPE) is None
    assert await env.store.list_notes(TASK, SYSTEM_SCOPE) == ()
