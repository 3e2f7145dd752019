"""Which rung the ladder takes, and what it does then."""

from collections.abc import Sequence

import pytest

from tests.support.conversations import (
    make_call_message,
    make_filler_text,
    make_research_transcript,
    make_research_turns,
    make_result_message,
    make_small_policy,
    make_text_message,
    make_transcript,
)
from waystation.context.compaction import CompactionStatus
from waystation.context.history import build_model_view, with_record
from waystation.context.pipeline import (
    CannotFitDecision,
    CompactionDecision,
    NoopDecision,
    SummariseDecision,
    TruncateDecision,
    compute_summary_token_range,
    select_next_stage,
)
from waystation.context.policy import CompactionPolicy
from waystation.context.summary import LEDGER_SHARE, build_summary_message
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Message, SummaryRecord, Text, Transcript, build_user_message

FIXED = TokenEstimator(fixed_tokens=500)
POLICY = make_small_policy()
NOTHING_REREADABLE = frozenset[str]()


def rung(
    over: Transcript, *, measure: TokenEstimator = FIXED, policy: CompactionPolicy = POLICY, skip_summary: bool = False
) -> CompactionDecision:
    return select_next_stage(over, measure, policy, NOTHING_REREADABLE, skip_summary=skip_summary)


def summarised(over: Transcript, made: SummariseDecision, text: str = "What was found.") -> Transcript:
    message = build_summary_message(made.compaction_id, text)
    return with_record(
        over, SummaryRecord(id=made.compaction_id, strategy="window", covered=made.covered_ids, summary=message)
    )


@pytest.mark.parametrize(
    "over", [make_transcript(), make_transcript(build_user_message("m1", "Go.")), make_research_transcript(4)]
)
def test_a_context_under_the_target_is_left_alone(over: Transcript) -> None:
    before = FIXED.request(build_model_view(over))
    assert rung(over) == NoopDecision(tokens_before=before, status=CompactionStatus.NOOP)


def test_a_context_between_target_and_trigger_with_little_to_gain_is_left_alone() -> None:
    over = make_transcript(build_user_message("m1", make_filler_text(6_000)), *make_research_turns(2, 800))
    assert POLICY.target < FIXED.request(build_model_view(over)) < POLICY.trigger
    assert rung(over) == NoopDecision(
        tokens_before=FIXED.request(build_model_view(over)), status=CompactionStatus.NOOP_LITTLE_TO_GAIN
    )


# ------------------------------------------------------------------------------------------------------------- mask


def test_the_whole_middle_is_summarised_in_whole_units() -> None:
    over = make_research_transcript(12)
    made = rung(over)
    assert isinstance(made, SummariseDecision)
    # Half the target is 3,750 tokens: the contract, one turn of primers and one of recents.
    assert made.covered_ids == tuple(f"m{number}" for number in range(4, 24))
    assert made.middle == over.messages[3:23]
    assert made.tokens_before == FIXED.request(build_model_view(over))
    assert made.middle_tokens == sum(FIXED.request([message]) - FIXED.fixed_tokens for message in made.middle)


def test_after_a_summary_the_request_is_under_the_target_and_the_next_turn_does_not_compact_again() -> None:
    over = make_research_transcript(12)
    made = rung(over)
    assert isinstance(made, SummariseDecision)
    after = summarised(over, made, make_filler_text(made.summary_tokens[1]))
    assert FIXED.request(build_model_view(after)) <= POLICY.target
    assert isinstance(rung(after), NoopDecision)


def test_primers_and_recents_are_maxima_in_messages() -> None:
    over = make_research_transcript(40, 100)
    policy = make_small_policy().replace(trigger=4_000, target=3_500, recents=5)
    made = rung(over, policy=policy)
    assert isinstance(made, SummariseDecision)
    # Five recent messages are two whole turns; three primers are the contract and one turn.
    assert made.covered_ids == tuple(f"m{number}" for number in range(4, 78))


def test_parallel_calls_and_their_results_go_or_stay_together() -> None:
    wide = [
        make_call_message("m2", "a", "b", "c"),
        make_result_message("m3", a=make_filler_text(900)),
        make_result_message("m4", b=make_filler_text(900), c=make_filler_text(900)),
    ]
    over = make_transcript(build_user_message("m1", "Go."), *wide, *make_research_turns(10, start=3))
    made = rung(over)
    assert isinstance(made, SummariseDecision)
    assert {"m2", "m3"} <= set(made.covered_ids)


def test_the_users_latest_message_stays_wherever_it_is() -> None:
    turns = make_research_turns(12)
    over = make_transcript(
        build_user_message("m1", "Go."), *turns[:8], build_user_message("n1", "Do it by Friday."), *turns[8:]
    )
    made = rung(over)
    assert isinstance(made, SummariseDecision)
    assert "n1" not in made.covered_ids
    assert {"m8", "m12"} <= set(made.covered_ids)
    assert build_user_message("n1", "Do it by Friday.") in build_model_view(summarised(over, made))


def test_a_pending_call_is_never_summarised() -> None:
    over = make_transcript(
        *make_research_transcript(12).messages, make_call_message("m26", "x", thinking=make_filler_text(9_000))
    )
    made = rung(over)
    assert isinstance(made, SummariseDecision)
    assert "m26" not in made.covered_ids
    assert build_model_view(summarised(over, made))[-1] == over.messages[-1]


def test_the_newest_result_stays_also_where_it_is_over_half_the_target() -> None:
    over = make_transcript(*make_research_transcript(9).messages, *make_research_turns(1, 4_000, start=10))
    made = rung(over)
    assert isinstance(made, SummariseDecision)
    assert made.covered_ids[-1] == "m19"


def test_an_earlier_summary_goes_into_the_next_one() -> None:
    over = make_research_transcript(12)
    first = rung(over)
    assert isinstance(first, SummariseDecision)
    over = summarised(over, first, make_filler_text(1_000))
    over = over.replace(messages=(*over.messages, *make_research_turns(10, start=13)))
    second = rung(over)
    assert isinstance(second, SummariseDecision)
    assert second.covered_ids[0] == f"s-{first.compaction_id}"
    assert second.middle[0] == build_model_view(over)[3]
    shown = [message.id for message in build_model_view(summarised(over, second))]
    assert shown == ["m1", "m2", "m3", f"s-{second.compaction_id}", "m44", "m45"]


def test_an_earlier_summary_is_neither_a_primer_nor_recent() -> None:
    over = make_research_transcript(16)
    covered = tuple(f"m{number}" for number in range(2, 24))
    earlier = SummaryRecord(
        id="x", strategy="window", covered=covered, summary=build_summary_message("x", make_filler_text(200))
    )
    over = with_record(over, earlier)
    made = rung(over, policy=CompactionPolicy(window=10_000, trigger=7_500, target=6_000))
    assert isinstance(made, SummariseDecision)
    assert made.covered_ids[0] == "s-x"


def test_a_summary_is_not_made_of_a_summary_alone() -> None:
    over = make_research_transcript(12)
    made = rung(over)
    assert isinstance(made, SummariseDecision)
    over = summarised(over, made, make_filler_text(8_000))
    assert not isinstance(rung(over), SummariseDecision)


def test_where_a_summary_would_save_too_little_none_is_asked_for() -> None:
    over = make_transcript(
        build_user_message("m1", make_filler_text(9_000)),
        *make_research_turns(4, 1_200),
        build_user_message("m9", make_filler_text(1_000)),
    )
    policy = POLICY.replace(window=100_000)
    assert FIXED.request(build_model_view(over)) >= policy.trigger
    assert isinstance(rung(over), SummariseDecision)
    assert isinstance(rung(over, policy=policy), TruncateDecision)


@pytest.mark.parametrize(
    ("middle", "window", "length"),
    [
        (1_200, 20_000, (200, 400)),
        (3_000, 20_000, (400, 800)),
        (12_000, 20_000, (600, 1_200)),
        (150_000, 20_000, (1_000, 2_000)),
        (150_000, 100_000, (2_000, 4_000)),
        (60_000, 150_000, (3_000, 6_000)),
        (30_000, 150_000, (1_500, 3_000)),
        (900_000, 1_000_000, (3_000, 6_000)),
    ],
)
def test_the_length_asked_for_grows_with_the_middle_up_to_a_limit_by_the_window_and_is_never_over_a_third(
    middle: int, window: int, length: tuple[int, int]
) -> None:
    assert compute_summary_token_range(middle, window) == length


def test_in_a_window_of_150_000_tokens_a_summary_may_have_6_000() -> None:
    over = make_research_transcript(28, 5_000)
    made = rung(over, policy=make_small_policy(150_000))
    assert isinstance(made, SummariseDecision)
    assert made.summary_tokens == (3_000, 6_000)


def test_a_compactions_identity_derives_from_what_it_covers_and_from_its_policy() -> None:
    over = make_research_transcript(12)
    first, again = rung(over), rung(over)
    other = rung(over, policy=POLICY.replace(unmasked_results=4))
    elsewhere = rung(over.replace(run_id="task-1/step-2"))
    assert isinstance(first, SummariseDecision)
    assert isinstance(other, SummariseDecision)
    assert isinstance(elsewhere, SummariseDecision)
    assert first == again
    assert len({first.compaction_id, other.compaction_id, elsewhere.compaction_id}) == 3


def test_the_correction_counts_for_every_threshold() -> None:
    over = make_research_transcript(5)
    assert isinstance(rung(over, measure=TokenEstimator(fixed_tokens=500, token_ratio=0.8)), NoopDecision)
    corrected = rung(over, measure=TokenEstimator(fixed_tokens=500, token_ratio=2.0))
    assert isinstance(corrected, SummariseDecision)
    assert corrected.tokens_before == TokenEstimator(fixed_tokens=500, token_ratio=2.0).request(build_model_view(over))


# --------------------------------------------------------------------------------------------------------- truncate


def test_without_a_summariser_the_oldest_half_is_hidden_behind_a_true_marker() -> None:
    over = make_research_transcript(12)
    made = rung(over, skip_summary=True)
    assert isinstance(made, TruncateDecision)
    assert made.record.covered == tuple(f"m{number}" for number in range(2, 14))
    after = with_record(over, made.record)
    assert [message.id for message in build_model_view(after)][:3] == ["m1", f"t-{made.record.id}", "m14"]
    assert made.tokens_after == FIXED.request(build_model_view(after)) < made.tokens_before
    assert made.record.marker.text.startswith(
        "[12 earlier messages are hidden here to save space: m2, m3, m4 … m11, m12, m13. "
    )


def test_truncation_hides_more_than_half_where_the_context_would_still_be_full() -> None:
    over = make_transcript(
        build_user_message("m1", "Go."), *make_research_turns(4, 100), *make_research_turns(4, 4_500, start=5)
    )
    made = rung(over, skip_summary=True)
    assert isinstance(made, TruncateDecision)
    assert made.tokens_after < POLICY.trigger
    assert "m11" in made.record.covered


def test_truncation_after_a_compaction_counts_what_the_summary_stood_for() -> None:
    over = make_research_transcript(12)
    first = rung(over)
    assert isinstance(first, SummariseDecision)
    over = summarised(over, first, make_filler_text(1_000))
    over = over.replace(messages=(*over.messages, *make_research_turns(10, start=13)))
    second = rung(over, skip_summary=True)
    assert isinstance(second, TruncateDecision)
    assert f"s-{first.compaction_id}" in second.record.covered
    after = with_record(over, second.record)
    still = {message.id for message in build_model_view(after)}
    hidden = [message.id for message in over.messages if message.id not in still]
    assert second.record.marker.text.startswith(f"[{len(hidden)} earlier messages ")
    assert FIXED.request(build_model_view(after)) < FIXED.request(build_model_view(over))


def test_a_marker_of_few_messages_names_them_all() -> None:
    over = make_transcript(build_user_message("m1", "Go."), *make_research_turns(2, 8_000))
    made = rung(over, skip_summary=True)
    assert isinstance(made, TruncateDecision)
    assert "[2 earlier messages are hidden here to save space: m2, m3. " in made.record.marker.text


# ------------------------------------------------------------------------------------------------------- cannot fit


@pytest.mark.parametrize(
    ("messages", "fixed", "parts"),
    [
        ((), 16_000, (16_000, 0, 0, 0)),
        ((build_user_message("m1", "Go."),), 16_000, (16_000, 7, 0, 0)),
        (
            (build_user_message("m1", make_filler_text(15_000)), make_text_message("m2", make_filler_text(500))),
            100,
            (100, 15_005, 0, 0),
        ),
        (
            (
                build_user_message("m1", make_filler_text(6_000)),
                *make_research_turns(2),
                build_user_message("m6", make_filler_text(9_000)),
                make_call_message("m7", "x"),
            ),
            100,
            (100, 6_005, 9_005, 16),
        ),
    ],
)
def test_what_cannot_be_made_smaller_is_named_with_its_size(
    messages: Sequence[Message], fixed: int, parts: tuple[int, int, int, int]
) -> None:
    over = make_transcript(*messages)
    for skip_summary in (False, True):
        unfit = rung(over, measure=TokenEstimator(fixed_tokens=fixed), skip_summary=skip_summary)
        assert isinstance(unfit, CannotFitDecision)
        assert (unfit.fixed_tokens, unfit.brief_tokens, unfit.latest_message_tokens, unfit.pending_call_tokens) == parts
        assert unfit.min_tokens >= unfit.limit == POLICY.trigger


@pytest.mark.parametrize("words", range(850, 1_010, 10))
def test_a_rung_that_would_leave_the_context_full_is_not_taken(words: int) -> None:
    policy, measure = make_small_policy(4_000), TokenEstimator(fixed_tokens=200, token_ratio=2.0)
    remark = Text(text="Also look at the appendix.")
    over = make_transcript(
        build_user_message("m1", "Find out what changed."),
        *(make_text_message(f"m{number}", make_filler_text(100)) for number in range(2, 7)),
        make_call_message("m7", "c1"),
        make_result_message("m8", remark, c1="word " * words),
    )
    made = rung(over, policy=policy, measure=measure)
    if isinstance(made, SummariseDecision):
        longest = "word " * int(made.summary_tokens[1] * (1 / measure.token_ratio + 1 / LEDGER_SHARE) * 4 / 5)
        assert measure.request(build_model_view(summarised(over, made, longest))) < policy.trigger
    cut = rung(over, policy=policy, measure=measure, skip_summary=True)
    if isinstance(cut, TruncateDecision):
        assert measure.request(build_model_view(with_record(over, cut.record))) == cut.tokens_after < policy.trigger
    kinds = (
        (SummariseDecision, TruncateDecision)
        if words < 910
        else (TruncateDecision, TruncateDecision)
        if words < 965
        else (CannotFitDecision, CannotFitDecision)
    )
    assert (type(made), type(cut)) == kinds
