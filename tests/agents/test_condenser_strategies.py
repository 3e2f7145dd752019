"""Compactions by each strategy, over a real store, with a scripted model and with the offline one."""

from dataclasses import replace
from typing import get_args

import pytest

from tests.agents.full_context import compressed, conversation, request_size, summary
from tests.agents.office import PLAN, Office, never
from tests.unit.histories import research
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.leg import AgentConfig, AgentFinished, ContextFull, LegOutcome, LegRequest
from waystation.context.history import build_model_view
from waystation.context.legality import find_violations
from waystation.context.outcome import Status
from waystation.context.policy import Strategy
from waystation.context.restoration import CLOSE as FILES_END
from waystation.context.transcript import Text
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.models.profiles import OFFLINE_MODEL
from waystation.planning.plan import Plan
from waystation.testing import ScriptedModel, make_scripted_response
from workers.models import create_offline_model

ALL: tuple[Strategy, ...] = get_args(Strategy)
SNAPSHOT = "<state_snapshot>\n<overall_goal>\nWhy it silted up.\n</overall_goal>\n</state_snapshot>"


def by(office: Office, strategy: Strategy) -> Office:
    office.terms = office.terms.replace(strategy=strategy)
    return office


@pytest.mark.parametrize("strategy", ALL)
async def test_each_strategy_makes_room_that_lasts(full: Office, strategy: Strategy) -> None:
    outcome = await compressed(by(full, strategy), ScriptedModel([summary()]))
    assert (outcome.status, outcome.strategy) == (Status.COMPRESSED, strategy)
    assert outcome.tokens_after == await request_size(full) <= full.terms.target
    transcript = await full.transcript()
    assert find_violations(build_model_view(transcript)) == ()
    assert build_model_view(transcript)[0] == transcript.messages[0]
    again = await compressed(full, ScriptedModel([]), known_records=1)
    assert again.status is Status.NOOP


async def test_a_snapshot_is_asked_for_in_its_own_words_and_nothing_thought_aloud_is_kept(full: Office) -> None:
    thought = "<scratchpad>It is about a harbour.</scratchpad>\n"
    model = ScriptedModel([make_scripted_response(Text(text=thought + SNAPSHOT))])
    outcome = await compressed(by(full, "snapshot"), model)
    assert outcome.status is Status.COMPRESSED
    assert "<state_snapshot>" in model.requests[0].system
    (record,) = (await full.transcript()).compactions
    assert record.type == "summarised"
    assert "Why it silted up." in record.summary.text
    assert "scratchpad" not in record.summary.text
    assert "It is about a harbour." not in record.summary.text


@pytest.mark.parametrize("thought", ["<scratchpad>On and on", "<scratchpad>Done.</scratchpad>"])
async def test_a_summary_that_was_only_thought_aloud_is_none(full: Office, thought: str) -> None:
    outcome = await compressed(by(full, "snapshot"), ScriptedModel([make_scripted_response(Text(text=thought))]))
    assert outcome.status is Status.TRUNCATED
    assert "FAILED_EMPTY_SUMMARY" in outcome.notes[0]


@pytest.mark.parametrize("strategy", ["window", "replace", "ends"])
async def test_the_other_strategies_share_a_prompt(full: Office, strategy: Strategy) -> None:
    model = ScriptedModel([summary()])
    await compressed(by(full, strategy), model)
    assert "what was tried and failed" in model.requests[0].system
    assert "<state_snapshot>" not in model.requests[0].system


async def test_under_replace_what_was_read_last_comes_back_as_the_agent_saw_it(office: Office) -> None:
    # Too much for the masks alone: six results of 2,000 tokens, of which three stay.
    await office.said(conversation("read_document", 2_000)[:25])
    outcome = await compressed(by(office, "replace"), ScriptedModel([summary()]))
    assert outcome.status is Status.COMPRESSED
    transcript = await office.transcript()
    (record,) = transcript.compactions
    assert record.type == "summarised"
    last = transcript.messages[-1].tool_results[0].content
    assert f'<restored_file name="c12.md">\n{last.strip()[:200]}' in record.summary.text
    assert outcome.tokens_after == await request_size(office) <= office.terms.target


async def test_restored_files_go_neither_to_the_summariser_nor_to_memory_again(office: Office) -> None:
    await office.said(conversation("read_document", 2_000)[:25])
    await compressed(by(office, "replace"), ScriptedModel([summary()]))
    assert FILES_END in build_model_view(await office.transcript())[1].text
    await office.said(research(8, 2_000, start=13))
    stored = len(office.memory.passages)
    model = ScriptedModel([summary("The second part.")])
    outcome = await compressed(office, model, known_records=1)
    assert outcome.status is Status.COMPRESSED
    assert "<restored_file" not in model.requests[0].model_dump_json()
    assert "let it silt up" in model.requests[0].model_dump_json(), "the earlier summary itself is carried on"
    added = list(office.memory.passages.values())[stored:]
    assert not any("restored_file" in item.passage.text for item in added)
    assert build_model_view(await office.transcript())[1].text.count("<restored_files>") == 1


@pytest.mark.parametrize("strategy", ["window", "snapshot", "ends"])
async def test_no_other_strategy_brings_files_back(office: Office, strategy: Strategy) -> None:
    await office.said(conversation("read_document", 2_000)[:25])
    outcome = await compressed(by(office, strategy), ScriptedModel([summary()]))
    assert outcome.status is Status.COMPRESSED
    assert all("restored_file" not in message.text for message in build_model_view(await office.transcript()))


async def test_with_summaries_switched_off_the_oldest_half_is_hidden(full: Office) -> None:
    model = ScriptedModel([])
    full.terms = full.terms.replace(auto_compact=False)
    outcome = await compressed(full, model)
    assert (outcome.status, model.calls) == (Status.TRUNCATED, 0)


# ----------------------------------------------------------------------------------------------- with the offline model


def _report(gate: int) -> str:
    return "\n".join(
        f"In {1800 + year} the gates of harbour {gate} silted up by {year * 7 + gate} feet, as inspector {year} noted."
        for year in range(60)
    )


async def worked(office: Office, strategy: Strategy) -> tuple[LegOutcome, list[Status]]:
    """The research agent's whole run, in a window that a few pages fill, and how its compactions ended."""
    office.terms = AgentConfig(
        model=OFFLINE_MODEL,
        condense_model=OFFLINE_MODEL,
        window=9_000,
        trigger=6_750,
        target=3_375,
        strategy=strategy,
        backpressure=False,
    )
    documents = [SourceDocument(name=f"gate-{number}.md", text=_report(number)) for number in range(8)]
    goal = "What does each of these documents say about the gates of the harbour?"
    research_step, *others = PLAN.steps
    await office.open_task(documents, Plan(steps=(research_step.replace(goal=goal), *others)))
    metered = MeteredModel(model=create_offline_model(), store=office.store, clock=office.clock, meter=office.meter)
    loop, condenser = replace(office.loop, model=metered), replace(office.condenser, model=metered)
    statuses: list[Status] = []
    for leg in range(1, 60):
        request = LegRequest(run=office.run_ref(), leg=leg, limit=Limit(tokens=2_000_000), terms=office.terms)
        ended = await loop.run(request, never)
        if isinstance(ended, AgentFinished):
            return ended, statuses
        if isinstance(ended, ContextFull):
            known = len((await office.transcript()).compactions)
            full = office.compaction(ended.request_tokens).replace(known_records=known, limit=request.limit)
            statuses.append((await condenser.compress(full)).status)
    raise AssertionError(f"the agent did not hand in; its compactions: {statuses}")


@pytest.mark.parametrize("strategy", ALL)
async def test_an_agent_of_the_offline_model_comes_to_its_end_under_each_strategy(
    bare_office: Office, strategy: Strategy
) -> None:
    ended, statuses = await worked(bare_office, strategy)
    assert isinstance(ended, AgentFinished)
    assert not ended.partial
    assert Status.COMPRESSED in statuses
    assert all(status.made_room for status in statuses)
    transcript = await bare_office.transcript()
    summaries = [record.summary.text for record in transcript.compactions if record.type == "summarised"]
    assert all(("<state_snapshot>" in text) is (strategy == "snapshot") for text in summaries)
