"""A middle that is too long for the model that condenses: summarised in parts, each paid once, then joined."""

import re
from collections.abc import Callable

import pytest

from tests.support.agent_environment import NAME, NAME_PLACEHOLDER, AgentEnvironment
from tests.support.conversations import make_filler_text, make_research_turns, make_result_message
from tests.support.full_context import list_passage_texts, run_compaction
from waystation.context.compaction import CompactionOutcome, CompactionStatus
from waystation.context.tokens import estimate_text
from waystation.context.transcript import SummaryPartRecord, Text, build_user_message
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ModelError, ModelRejected, ModelUnavailable
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.models.profiles import get_model_profile
from waystation.testing.doubles import ScriptedModel, make_scripted_response

LIMIT = Limit(tokens=5_000_000)
WINDOW = get_model_profile("small").window
COST = Usage(input=1_000, output=100)
PART = re.compile(r"This is part (\d) of (\d) ")
JOIN = "The conversation is given as summaries of its parts"


@pytest.fixture
async def vast(env: AgentEnvironment) -> AgentEnvironment:
    """An agent with a larger window than the model that condenses; its middle fills that twice over."""
    env.terms, env.limit = env.terms.replace(window=500_000, trigger=300_000, target=150_000), LIMIT
    turns = make_research_turns(26, 15_000, tool="recall")
    turns[9] = make_result_message("m11", c5=f"{NAME} kept the harbour.")
    await env.commit_conversation((build_user_message("m1", "Why did it silt up?"), *turns))
    return env


def said(request: ModelRequest) -> str:
    return request.messages[0].text


def answers(fail_at: int = 0, error: ModelError | None = None) -> Callable[[ModelRequest], ModelResponse]:
    """Part n comes to "Part n of NAME"; the join to what was asked; a part may fail."""

    def answer(request: ModelRequest) -> ModelResponse:
        found = PART.search(said(request))
        number = int(found[1]) if found else 0
        if error is not None and number == fail_at:
            raise error
        if number == fail_at != 0:
            return make_scripted_response(usage=COST)
        text = f"Part {number} of {NAME}." if number else f"All parts. {make_filler_text(200)}"
        return make_scripted_response(Text(text=text), usage=COST)

    return answer


async def condensed(env: AgentEnvironment, model: ScriptedModel) -> CompactionOutcome:
    return await run_compaction(env, model, limit=LIMIT)


async def test_a_middle_over_the_condensing_models_window_is_summarised_in_parts_and_joined(
    vast: AgentEnvironment,
) -> None:
    model = ScriptedModel(answers())
    outcome = await condensed(vast, model)
    assert outcome.status is CompactionStatus.COMPRESSED
    *parts, join = model.requests
    assert [PART.search(said(part)) is not None for part in parts] == [True, True, True]
    assert all(estimate_text(said(part)) < WINDOW * 3 // 4 for part in parts)
    assert JOIN in said(join)
    for number in (1, 2, 3):
        assert f"<earlier_conversation>\nPart {number} of {NAME_PLACEHOLDER}.\n</earlier_conversation>" in said(join)
    assert "".join(said(part) for part in parts).count("[m6 assistant calls recall]") == 1
    assert NAME not in "".join(request.model_dump_json() for request in model.requests)
    (record,) = (await vast.load_transcript()).compactions
    assert record.type == "summarised"
    assert "All parts." in record.summary.text
    assert outcome.covered == len(record.covered)
    assert outcome.redactions == 4, "one in the middle, one in what each part came to"


async def test_each_part_is_charged_under_a_key_of_its_own(vast: AgentEnvironment) -> None:
    before = (await vast.store.get_run_usage("task-1/research-1")).spent.tokens
    outcome = await condensed(vast, ScriptedModel(answers()))
    keys = [charge.key for charge in vast.meter.charges if charge.kind == "summary"]
    made = outcome.compaction_id
    assert keys == [*(f"summary-{made}-{number}" for number in (1, 2, 3)), f"summary-{made}"]
    assert outcome.totals.spent.tokens == before + 4 * COST.fresh
    assert outcome.totals.possibly_billed == 0


@pytest.mark.parametrize("fails_at", [2, 3, 0])
async def test_a_crash_on_the_way_does_not_pay_finished_parts_again(vast: AgentEnvironment, fails_at: int) -> None:
    before = (await vast.store.get_run_usage("task-1/research-1")).spent.tokens
    busy = ScriptedModel(answers(fails_at, ModelUnavailable("overloaded", possibly_billed=False)))
    with pytest.raises(ModelUnavailable):
        await condensed(vast, busy)
    assert (await vast.load_transcript()).compactions == ()
    again = ScriptedModel(answers())
    outcome = await condensed(vast, again)
    assert outcome.status is CompactionStatus.COMPRESSED
    asked = [found[1] if (found := PART.search(said(request))) else "join" for request in again.requests]
    assert asked == ["1", "2", "3", "join"][(fails_at or 4) - 1 :]
    assert outcome.totals.spent.tokens == before + 4 * COST.fresh
    kept = [record for record in (await vast.load_transcript()).records if isinstance(record, SummaryPartRecord)]
    assert [record.text for record in kept] == [f"Part {number} of {NAME_PLACEHOLDER}." for number in (1, 2, 3)]


async def test_a_part_that_comes_to_nothing_ends_it_and_is_charged(vast: AgentEnvironment) -> None:
    before = (await vast.store.get_run_usage("task-1/research-1")).spent.tokens
    model = ScriptedModel(answers(fail_at=2))
    outcome = await condensed(vast, model)
    assert (outcome.status, model.calls) == (CompactionStatus.TRUNCATED, 2)
    assert "FAILED_EMPTY_SUMMARY" in outcome.notes[0]
    assert outcome.totals.spent.tokens == before + 2 * COST.fresh


async def test_a_part_that_is_refused_leads_to_truncation_and_never_to_more_parts(vast: AgentEnvironment) -> None:
    model = ScriptedModel(answers(2, ModelRejected("prompt is too long")))
    outcome = await condensed(vast, model)
    assert (outcome.status, model.calls) == (CompactionStatus.TRUNCATED, 2)
    assert outcome.notes == ("The summariser failed: prompt is too long",)


async def test_parts_are_in_no_view_and_in_memory_no_second_time(vast: AgentEnvironment) -> None:
    await condensed(vast, ScriptedModel(answers()))
    assert "All parts." not in "".join(list_passage_texts(vast))
    assert "Part 1 of" not in "".join(list_passage_texts(vast))
