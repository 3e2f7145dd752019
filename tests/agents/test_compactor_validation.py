"""The check before commit, in a run: what it did is on record, and what no summary would do for is truncated."""

from tests.support.agent_environment import NAME, AgentEnvironment
from tests.support.conversations import make_research_turns
from tests.support.full_context import estimate_request_size, make_conversation, make_summary_response, run_compaction
from waystation.context.compaction import CompactionStatus
from waystation.context.constraints import extract_user_constraints
from waystation.context.history import build_model_view
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
    assert outcome.removed == ("quotations in the user's name, never said: 1",)
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
    assert outcome.notes[0].startswith("A summary was rejected (FAILED_CHECK): constraints: what the user demanded")
    assert set(extract_user_constraints(build_model_view(await env.load_transcript()))) == set(demands)
