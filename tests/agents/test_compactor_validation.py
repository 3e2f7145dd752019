"""The check before commit, in a run: what it did is on record, and what no summary would do for is truncated."""

from tests.support.agent_environment import NAME, AgentEnvironment, make_tool_use
from tests.support.conversations import (
    make_call_message,
    make_filler_text,
    make_research_turns,
    make_result_message,
)
from tests.support.full_context import estimate_request_size, make_conversation, make_summary_response, run_compaction
from waystation.context.compaction import CompactionStatus
from waystation.context.constraints import extract_user_constraints
from waystation.context.history import build_model_view
from waystation.context.summary import NOTES_PREFIX, parse_ledger_entries
from waystation.context.transcript import Message, build_user_message
from waystation.testing.doubles import ScriptedModel


async def full_after(env: AgentEnvironment, *remarks: str) -> None:
    """A full context, with remarks of the user's early in it."""
    first, *turns = make_conversation()
    said = [build_user_message(f"r{number}", remark) for number, remark in enumerate(remarks)]
    messages: list[Message] = [first, *turns[:6], *said, *turns[6:], build_user_message("m40", "Go on.")]
    await env.commit_conversation(messages)


async def test_what_the_check_added_and_removed_is_on_record_and_in_the_outcome_also_of_a_retry(
    env: AgentEnvironment,
) -> None:
    await full_after(env, f"Never call {NAME}. See docs/plan.md.")
    request = env.make_compaction_request(await estimate_request_size(env))
    env.model = ScriptedModel([make_summary_response('The user said "dig it out" and more.')])
    outcome = await env.compactor.compact(request)
    assert outcome.status is CompactionStatus.COMPRESSED
    assert outcome.added[:3] == ("constraints of the user: 1", "open items: 1", "requests of the user: 1 of 1")
    assert outcome.removed == ("quotations that the user never said: 1",)
    (record,) = (await env.load_transcript()).compactions
    assert record.type == "summarised"
    assert (record.added, record.removed) == (outcome.added, outcome.removed)
    assert "dig it out" not in record.summary.text
    assert f"\nuser: Never call {NAME}.\n" in record.summary.text
    assert "\nasked: See docs/plan.md.\n" in record.summary.text
    again = await env.compactor.compact(request)
    assert (again.added, again.removed) == (outcome.added, outcome.removed)


async def test_a_quotation_of_a_message_that_was_hidden_before_stays(env: AgentEnvironment) -> None:
    await full_after(env, "Dig it out.")
    await run_compaction(env, ScriptedModel([make_summary_response("Begun.")]))
    over = await env.load_transcript()
    assert "Dig it out." not in [message.text for message in build_model_view(over)]
    await env.commit_conversation(make_research_turns(13, 1_300, tool="recall", start=30))
    outcome = await run_compaction(
        env, ScriptedModel([make_summary_response('The user said "dig it out".')]), known_records=1
    )
    assert (outcome.status, outcome.removed) == (CompactionStatus.COMPRESSED, ())


async def test_demands_over_a_fifth_of_the_window_lead_to_truncation_that_keeps_them_without_a_call(
    env: AgentEnvironment,
) -> None:
    demands = [f"Never dredge basin {number}: {'it is listed, ' * 60}yes." for number in range(2, 30)]
    await full_after(env, *demands)
    model = ScriptedModel([])
    outcome = await run_compaction(env, model)
    assert (outcome.status, model.calls) == (CompactionStatus.TRUNCATED, 0)
    assert outcome.notes[0].startswith("A summary was rejected (FAILED_CHECK, constraints): the text of")
    assert set(extract_user_constraints(build_model_view(await env.load_transcript()))) == set(demands)


async def test_the_ledger_has_the_citations_of_the_notes_it_hides_and_no_figure_of_a_document(
    env: AgentEnvironment,
) -> None:
    note = {"text": "It silted up.", "document": "harbour.md"}
    for call, line in (("c3", 2), ("c5", 1), ("other", 3)):
        await env.call_tool(make_tool_use("take_note", call, **note, first_line=line, last_line=line))
    first, *turns = make_conversation(tool="read_document")
    turns[4:6] = (make_call_message("m6", "c3", tool="take_note"), make_result_message("m7", c3="note 1 kept"))
    turns[6:8] = (
        make_call_message("m8", "c4", tool="query_table"),
        make_result_message("m9", c4=f"8,888.25 and 7,777.50 {make_filler_text(1_300)}"),
    )
    turns[2:4] = (
        make_call_message("m4", "c2", tool="read_document"),
        make_result_message("m5", c2=f"7,777.50 {make_filler_text(1_300)}"),
    )
    turns[8:10] = (make_call_message("m10", "c5", tool="take_note"), make_result_message("m11", c5="note 2 kept"))
    await env.commit_conversation([first, *turns])
    outcome = await run_compaction(env, ScriptedModel([make_summary_response("Silt, [harbour.md:1-1].")]))
    assert outcome.status is CompactionStatus.COMPRESSED
    (record,) = (await env.load_transcript()).compactions
    assert record.type == "summarised"
    assert {"m4", "m5", "m6", "m8", "m9", "m10"} <= set(record.covered)
    assert parse_ledger_entries(record.summary, NOTES_PREFIX) == ("[harbour.md:2-2]",)
    assert "citations of notes: 1" in outcome.added
    assert parse_ledger_entries(record.summary, "figures: ") == ("8,888.25",)
