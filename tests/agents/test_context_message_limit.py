"""A context of many small messages is full, too, and an agent's conversation can be bounded."""

import pytest

from tests.support.agent_environment import AGENT_CONFIG, AgentEnvironment, make_tool_use
from tests.support.conversations import make_research_turns
from tests.support.full_context import estimate_request_size, make_summary_response, run_compaction
from waystation.agents.leg import AgentFinished, ContextFull, TurnLimitReached
from waystation.context.compaction import CompactionOutcome, CompactionStatus
from waystation.context.history import build_model_view
from waystation.context.message_rules import find_violations
from waystation.context.transcript import build_user_message
from waystation.testing.doubles import ScriptedModel, make_scripted_response

LIST = make_scripted_response(make_tool_use("list_documents", "c1"))
WIDE = AGENT_CONFIG.replace(window=40_000, trigger=30_000, target=15_000)


async def crowded(env: AgentEnvironment, tool: str = "recall", result_tokens: int = 150) -> None:
    """Let the research agent have 41 messages behind it, all small, and be far from its trigger."""
    env.terms = WIDE.replace(max_view_messages=30, primers=2, recents=10)
    await env.commit_conversation(
        (build_user_message("m1", "Why did it silt up?"), *make_research_turns(20, result_tokens, tool=tool))
    )
    assert await estimate_request_size(env) < env.terms.trigger


async def shown(env: AgentEnvironment) -> int:
    return len(build_model_view(await env.load_transcript()))


@pytest.mark.parametrize(("most", "full"), [(40, True), (41, False), (None, False)])
async def test_more_messages_than_allowed_make_a_context_full(
    env: AgentEnvironment, most: int | None, full: bool
) -> None:
    await crowded(env)
    env.terms = env.terms.replace(max_view_messages=most, turn_limit=1)
    model = ScriptedModel([LIST])
    outcome = await env.run_leg(model)
    assert isinstance(outcome, ContextFull if full else TurnLimitReached)
    assert model.calls == (0 if full else 1)
    if isinstance(outcome, ContextFull):
        assert outcome.request_tokens == await estimate_request_size(env) < env.terms.trigger


async def after_compaction(env: AgentEnvironment) -> CompactionOutcome:
    outcome = await run_compaction(env, ScriptedModel([make_summary_response()]))
    assert outcome.status.made_room
    assert outcome.tokens_after < outcome.tokens_before
    assert find_violations(build_model_view(await env.load_transcript())) == ()
    return outcome


@pytest.mark.parametrize("result_tokens", [150, 700])
async def test_a_crowd_is_summarised_and_as_many_messages_stay_as_were_asked_for(
    env: AgentEnvironment, result_tokens: int
) -> None:
    await crowded(env, result_tokens=result_tokens)
    outcome = await after_compaction(env)
    assert outcome.status is CompactionStatus.COMPRESSED
    assert await shown(env) == 12, "the contract, a summary, and ten recent ones"


async def test_a_crowd_is_not_masked_since_that_leaves_it_a_crowd(env: AgentEnvironment) -> None:
    await crowded(env, tool="read_document", result_tokens=1_150)
    env.terms = env.terms.replace(target=14_000)
    assert (await after_compaction(env)).status is CompactionStatus.COMPRESSED


async def test_a_crowd_whose_summary_fails_is_truncated(env: AgentEnvironment) -> None:
    await crowded(env)
    outcome = await run_compaction(env, ScriptedModel([make_summary_response("")]))
    assert outcome.status is CompactionStatus.TRUNCATED
    assert await shown(env) <= 30


async def test_a_crowd_with_too_little_in_its_middle_for_a_summary_is_truncated(env: AgentEnvironment) -> None:
    env.terms = WIDE.replace(max_view_messages=12, primers=2, recents=10)
    await env.commit_conversation((build_user_message("m1", "Why did it silt up?"), *make_research_turns(6, 1)))
    model = ScriptedModel([])
    outcome = await run_compaction(env, model)
    assert (outcome.status, model.calls) == (CompactionStatus.TRUNCATED, 0)
    assert await shown(env) <= 12


async def test_a_conversation_that_reaches_its_bound_ends_with_what_there_is(env: AgentEnvironment) -> None:
    env.terms = WIDE.replace(max_messages=5)
    model = ScriptedModel([LIST, LIST])
    outcome = await env.run_leg(model)
    assert isinstance(outcome, AgentFinished)
    assert (outcome.partial, model.calls) == (True, 2)
    assert outcome.reason == "its conversation may have at most 5 messages, and another turn would exceed this limit"
    assert len(await env.load_messages()) == 5
