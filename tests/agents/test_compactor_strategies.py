"""Compactions by each strategy, over a real store, with a scripted model and with the offline one."""

from dataclasses import replace
from typing import get_args

import pytest

from tests.support.agent_environment import PLAN, AgentEnvironment, never_interrupted
from tests.support.conversations import make_research_turns
from tests.support.full_context import estimate_request_size, make_conversation, make_summary_response, run_compaction
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.leg import AgentConfig, AgentFinished, ContextFull, LegOutcome, LegRequest
from waystation.context.compaction import CompactionStatus
from waystation.context.history import build_model_view
from waystation.context.message_rules import find_violations
from waystation.context.policy import StrategyName
from waystation.context.restoration import CLOSE as FILES_END
from waystation.context.transcript import Text
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.models.profiles import OFFLINE_MODEL
from waystation.planning.plan import Plan
from waystation.plugins.offline.chat_model import create_offline_model
from waystation.testing.doubles import ScriptedModel, make_scripted_response

ALL: tuple[StrategyName, ...] = get_args(StrategyName)
SNAPSHOT = "<state_snapshot>\n<overall_goal>\nWhy it silted up.\n</overall_goal>\n</state_snapshot>"


def by(env: AgentEnvironment, strategy: StrategyName) -> AgentEnvironment:
    env.terms = env.terms.replace(strategy=strategy)
    return env


@pytest.mark.parametrize("strategy", ALL)
async def test_each_strategy_makes_room_that_lasts(full_env: AgentEnvironment, strategy: StrategyName) -> None:
    outcome = await run_compaction(by(full_env, strategy), ScriptedModel([make_summary_response()]))
    assert (outcome.status, outcome.strategy) == (CompactionStatus.COMPRESSED, strategy)
    assert outcome.tokens_after == await estimate_request_size(full_env) <= full_env.terms.target
    transcript = await full_env.load_transcript()
    assert find_violations(build_model_view(transcript)) == ()
    assert build_model_view(transcript)[0] == transcript.messages[0]
    again = await run_compaction(full_env, ScriptedModel([]), known_records=1)
    assert again.status is CompactionStatus.NOOP


async def test_a_snapshot_is_asked_for_in_its_own_words_and_nothing_thought_aloud_is_kept(
    full_env: AgentEnvironment,
) -> None:
    thought = "<scratchpad>It is about a harbour.</scratchpad>\n"
    model = ScriptedModel([make_scripted_response(Text(text=thought + SNAPSHOT))])
    outcome = await run_compaction(by(full_env, "snapshot"), model)
    assert outcome.status is CompactionStatus.COMPRESSED
    assert "<state_snapshot>" in model.requests[0].system
    (record,) = (await full_env.load_transcript()).compactions
    assert record.type == "summarised"
    assert "Why it silted up." in record.summary.text
    assert "scratchpad" not in record.summary.text
    assert "It is about a harbour." not in record.summary.text


@pytest.mark.parametrize("thought", ["<scratchpad>On and on", "<scratchpad>Done.</scratchpad>"])
async def test_a_summary_that_was_only_thought_aloud_is_none(full_env: AgentEnvironment, thought: str) -> None:
    outcome = await run_compaction(
        by(full_env, "snapshot"), ScriptedModel([make_scripted_response(Text(text=thought))])
    )
    assert outcome.status is CompactionStatus.TRUNCATED
    assert "FAILED_EMPTY_SUMMARY" in outcome.notes[0]


@pytest.mark.parametrize("strategy", ["window", "replace", "ends"])
async def test_the_other_strategies_share_a_prompt(full_env: AgentEnvironment, strategy: StrategyName) -> None:
    model = ScriptedModel([make_summary_response()])
    await run_compaction(by(full_env, strategy), model)
    assert "What was tried and failed" in model.requests[0].system
    assert "<state_snapshot>" not in model.requests[0].system


async def test_under_replace_what_was_read_last_comes_back_as_the_agent_saw_it(env: AgentEnvironment) -> None:
    # Too much for the masks alone: six results of 2,000 tokens, of which three stay.
    await env.commit_conversation(make_conversation("read_document", 2_000)[:25])
    outcome = await run_compaction(by(env, "replace"), ScriptedModel([make_summary_response()]))
    assert outcome.status is CompactionStatus.COMPRESSED
    transcript = await env.load_transcript()
    (record,) = transcript.compactions
    assert record.type == "summarised"
    last = transcript.messages[-1].tool_results[0].content
    assert f'<restored_file name="c12.md">\n{last.strip()[:200]}' in record.summary.text
    assert outcome.tokens_after == await estimate_request_size(env) <= env.terms.target


async def test_restored_files_go_neither_to_the_summariser_nor_to_memory_again(env: AgentEnvironment) -> None:
    await env.commit_conversation(make_conversation("read_document", 2_000)[:25])
    await run_compaction(by(env, "replace"), ScriptedModel([make_summary_response()]))
    assert FILES_END in build_model_view(await env.load_transcript())[1].text
    await env.commit_conversation(make_research_turns(8, 2_000, start=13))
    stored = len(env.memory.passages)
    model = ScriptedModel([make_summary_response("The second part.")])
    outcome = await run_compaction(env, model, known_records=1)
    assert outcome.status is CompactionStatus.COMPRESSED
    assert "<restored_file" not in model.requests[0].model_dump_json()
    assert "let it silt up" in model.requests[0].model_dump_json(), "the earlier summary itself is carried on"
    added = list(env.memory.passages.values())[stored:]
    assert not any("restored_file" in item.passage.text for item in added)
    assert build_model_view(await env.load_transcript())[1].text.count("<restored_files>") == 1


@pytest.mark.parametrize("strategy", ["window", "snapshot", "ends"])
async def test_no_other_strategy_brings_files_back(env: AgentEnvironment, strategy: StrategyName) -> None:
    await env.commit_conversation(make_conversation("read_document", 2_000)[:25])
    outcome = await run_compaction(by(env, strategy), ScriptedModel([make_summary_response()]))
    assert outcome.status is CompactionStatus.COMPRESSED
    assert all("restored_file" not in message.text for message in build_model_view(await env.load_transcript()))


async def test_with_summaries_switched_off_the_oldest_half_is_hidden(full_env: AgentEnvironment) -> None:
    model = ScriptedModel([])
    full_env.terms = full_env.terms.replace(auto_compact=False)
    outcome = await run_compaction(full_env, model)
    assert (outcome.status, model.calls) == (CompactionStatus.TRUNCATED, 0)


# ----------------------------------------------------------------------------------------------- with the offline model


def _report(gate: int) -> str:
    return "\n".join(
        f"In {1800 + year} the gates of harbour {gate} silted up by {year * 7 + gate} feet, as inspector {year} noted."
        for year in range(60)
    )


async def worked(env: AgentEnvironment, strategy: StrategyName) -> tuple[LegOutcome, list[CompactionStatus]]:
    """The research agent's whole run, in a window that a few pages fill, and how its compactions ended."""
    env.terms = AgentConfig(
        model=OFFLINE_MODEL,
        condense_model=OFFLINE_MODEL,
        window=11_000,
        trigger=8_250,
        target=4_875,
        strategy=strategy,
        backpressure=False,
    )
    documents = [SourceDocument(name=f"gate-{number}.md", text=_report(number)) for number in range(8)]
    goal = "What does each of these documents say about the gates of the harbour?"
    research_step, *others = PLAN.steps
    await env.open_task(documents, Plan(steps=(research_step.replace(goal=goal), *others)))
    metered = MeteredModel(model=create_offline_model(), store=env.store, clock=env.clock, meter=env.meter)
    loop, condenser = replace(env.agent_loop, model=metered), replace(env.compactor, model=metered)
    statuses: list[CompactionStatus] = []
    for leg in range(1, 60):
        request = LegRequest(run=env.run_ref(), leg=leg, limit=Limit(tokens=2_000_000), config=env.terms)
        ended = await loop.run(request, never_interrupted)
        if isinstance(ended, AgentFinished):
            return ended, statuses
        if isinstance(ended, ContextFull):
            known = len((await env.load_transcript()).compactions)
            full_env = env.make_compaction_request(ended.request_tokens).replace(
                known_records=known, limit=request.limit
            )
            statuses.append((await condenser.compact(full_env)).status)
    raise AssertionError(f"the agent did not hand in; its compactions: {statuses}")


@pytest.mark.parametrize("strategy", ALL)
async def test_an_agent_of_the_offline_model_comes_to_its_end_under_each_strategy(
    bare_env: AgentEnvironment, strategy: StrategyName
) -> None:
    ended, statuses = await worked(bare_env, strategy)
    assert isinstance(ended, AgentFinished)
    assert not ended.partial
    assert CompactionStatus.COMPRESSED in statuses
    assert all(status.made_room for status in statuses)
    transcript = await bare_env.load_transcript()
    summaries = [record.summary.text for record in transcript.compactions if record.type == "summarised"]
    assert all(("<state_snapshot>" in text) is (strategy == "snapshot") for text in summaries)
