"""A context of many small messages is full, too, and an agent's conversation can be bounded."""

import pytest

from tests.agents.full_context import compressed, request_size, summary
from tests.agents.office import TERMS, Office, use
from tests.unit.histories import research
from waystation.agents.leg import AgentFinished, ContextFull, TurnLimit
from waystation.context.history import build_model_view
from waystation.context.legality import find_violations
from waystation.context.outcome import CompactionOutcome, Status
from waystation.context.transcript import build_user_message
from waystation.testing import ScriptedModel, make_scripted_response

LIST = make_scripted_response(use("list_documents", "c1"))
WIDE = TERMS.replace(window=40_000, trigger=30_000, target=15_000)


async def crowded(office: Office, tool: str = "recall", result_tokens: int = 150) -> None:
    """Let the research agent have 41 messages behind it, all small, and be far from its trigger."""
    office.terms = WIDE.replace(messages=30, primers=2, recents=10)
    await office.said((build_user_message("m1", "Why did it silt up?"), *research(20, result_tokens, tool=tool)))
    assert await request_size(office) < office.terms.trigger


async def shown(office: Office) -> int:
    return len(build_model_view(await office.transcript()))


@pytest.mark.parametrize(("most", "full"), [(40, True), (41, False), (None, False)])
async def test_more_messages_than_allowed_make_a_context_full(office: Office, most: int | None, full: bool) -> None:
    await crowded(office)
    office.terms = office.terms.replace(messages=most, turn_limit=1)
    model = ScriptedModel([LIST])
    outcome = await office.leg(model)
    assert isinstance(outcome, ContextFull if full else TurnLimit)
    assert model.calls == (0 if full else 1)
    if isinstance(outcome, ContextFull):
        assert outcome.request_tokens == await request_size(office) < office.terms.trigger


async def after_compaction(office: Office) -> CompactionOutcome:
    outcome = await compressed(office, ScriptedModel([summary()]))
    assert outcome.status.made_room
    assert outcome.tokens_after < outcome.tokens_before
    assert find_violations(build_model_view(await office.transcript())) == ()
    return outcome


@pytest.mark.parametrize("result_tokens", [150, 700])
async def test_a_crowd_is_summarised_and_as_many_messages_stay_as_were_asked_for(
    office: Office, result_tokens: int
) -> None:
    await crowded(office, result_tokens=result_tokens)
    outcome = await after_compaction(office)
    assert outcome.status is Status.COMPRESSED
    assert await shown(office) == 12, "the contract, a summary, and ten recent ones"


async def test_a_crowd_is_not_masked_since_that_leaves_it_a_crowd(office: Office) -> None:
    await crowded(office, tool="read_document", result_tokens=1_150)
    office.terms = office.terms.replace(target=14_000)
    assert (await after_compaction(office)).status is Status.COMPRESSED


async def test_a_crowd_whose_summary_fails_is_truncated(office: Office) -> None:
    await crowded(office)
    outcome = await compressed(office, ScriptedModel([summary("")]))
    assert outcome.status is Status.TRUNCATED
    assert await shown(office) <= 30


async def test_a_crowd_with_too_little_in_its_middle_for_a_summary_is_truncated(office: Office) -> None:
    office.terms = WIDE.replace(messages=12, primers=2, recents=10)
    await office.said((build_user_message("m1", "Why did it silt up?"), *research(6, 1)))
    model = ScriptedModel([])
    outcome = await compressed(office, model)
    assert (outcome.status, model.calls) == (Status.TRUNCATED, 0)
    assert await shown(office) <= 12


async def test_a_conversation_that_reaches_its_bound_ends_with_what_there_is(office: Office) -> None:
    office.terms = WIDE.replace(history=5)
    model = ScriptedModel([LIST, LIST])
    outcome = await office.leg(model)
    assert isinstance(outcome, AgentFinished)
    assert (outcome.partial, model.calls) == (True, 2)
    assert outcome.reason == "its conversation may have 5 messages, and another turn would be over that"
    assert len(await office.talk()) == 5
