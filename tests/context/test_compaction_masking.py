"""When old results are masked, and which."""

import pytest

from tests.support.conversations import (
    READ,
    REREADABLE,
    make_call_message,
    make_filler_text,
    make_research_transcript,
    make_research_turns,
    make_result_message,
    make_small_policy,
    make_transcript,
)
from waystation.context.history import build_model_view, with_record
from waystation.context.pipeline import CompactionDecision, MaskDecision, SummariseDecision, select_next_stage
from waystation.context.policy import CompactionPolicy
from waystation.context.stages import mask_tool_results
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import MaskRecord, Transcript, build_user_message
from waystation.context.units import build_layout

FIXED = TokenEstimator(fixed_tokens=500)
POLICY = make_small_policy()
NOTHING_REREADABLE = frozenset[str]()


def rung(
    over: Transcript, *, measure: TokenEstimator = FIXED, policy: CompactionPolicy = POLICY, skip_summary: bool = False
) -> CompactionDecision:
    return select_next_stage(over, measure, policy, NOTHING_REREADABLE, skip_summary=skip_summary)


def test_old_results_are_masked_where_that_alone_is_enough() -> None:
    over = make_research_transcript(10)
    made = select_next_stage(over, FIXED, POLICY, REREADABLE)
    assert isinstance(made, MaskDecision)
    # c10 is in the newest unit; of the others the last three stay.
    assert made.record.tool_use_ids == ("c1", "c2", "c3", "c4", "c5", "c6")
    assert made.tokens_before == FIXED.request(build_model_view(over))
    assert made.tokens_after == FIXED.request(build_model_view(with_record(over, made.record)))
    assert made.tokens_after <= POLICY.target


def test_masking_is_left_out_where_it_does_not_reach_the_target() -> None:
    assert isinstance(
        select_next_stage(make_research_transcript(10, 5_000), FIXED, POLICY, REREADABLE), SummariseDecision
    )


def test_masking_is_left_out_where_it_saves_too_little() -> None:
    # Just over the target, with one result that could be masked.
    over = make_transcript(build_user_message("m1", make_filler_text(2_500)), *make_research_turns(5, 1_050))
    assert POLICY.target < FIXED.request(build_model_view(over)) < POLICY.target + 1_000
    assert not isinstance(select_next_stage(over, FIXED, POLICY, REREADABLE), MaskDecision)
    assert isinstance(select_next_stage(over, FIXED, POLICY.replace(window=10_000), REREADABLE), MaskDecision)


@pytest.mark.parametrize(
    ("tool", "result_tokens"), [("take_note", 1_500), (READ, 900)], ids=["not re-readable", "not large"]
)
def test_only_large_results_of_rereadable_tools_are_masked(tool: str, result_tokens: int) -> None:
    over = make_research_transcript(16, result_tokens, tool=tool)
    assert not isinstance(select_next_stage(over, FIXED, POLICY, REREADABLE), MaskDecision)


def test_results_that_the_model_has_not_read_yet_are_not_masked() -> None:
    parallel = [f"p{number}" for number in range(8)]
    over = make_transcript(
        build_user_message("m1", "Go."),
        make_call_message("m2", *parallel),
        make_result_message("m3", **dict.fromkeys(parallel, make_filler_text(1_500))),
    )
    assert not isinstance(select_next_stage(over, FIXED, POLICY, REREADABLE), MaskDecision)


def test_what_is_masked_already_is_not_masked_again() -> None:
    over = make_research_transcript(10)
    first = select_next_stage(over, FIXED, POLICY, REREADABLE)
    assert isinstance(first, MaskDecision)
    grown = with_record(over, first.record)
    grown = grown.replace(messages=(*grown.messages, *make_research_turns(5, start=11)))
    second = select_next_stage(grown, FIXED, POLICY, REREADABLE)
    assert isinstance(second, MaskDecision)
    assert not set(second.record.tool_use_ids) & set(first.record.tool_use_ids)


def test_a_placeholder_that_is_larger_than_its_result_or_masked_already_gains_nothing() -> None:
    short = make_research_transcript(4, 3)
    policy = POLICY.replace(min_masked_tokens=0, unmasked_results=0)
    assert mask_tool_results(short, build_layout(short), policy, REREADABLE) is None
    masked = with_record(make_research_transcript(4), MaskRecord(id="x", tool_use_ids=("c1", "c2")))
    again = mask_tool_results(masked, build_layout(masked), policy, REREADABLE)
    assert again is not None
    assert again.record.tool_use_ids == ("c3",)


# -------------------------------------------------------------------------------------------------------- summarise
