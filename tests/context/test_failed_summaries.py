"""The memory of failed summaries: read off the transcript, and a bound on how many are asked for."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.conversations import make_filler_text, make_text_message, make_transcript
from waystation.context.history import build_model_view, with_record
from waystation.context.pipeline import GROWTH_PERCENT, MAX_FAILED_SUMMARIES, get_summary_skip_reason
from waystation.context.summary import build_summary_message
from waystation.context.tokens import estimate_message, estimate_messages
from waystation.context.transcript import (
    RewindRecord,
    SummaryFailureRecord,
    SummaryRecord,
    Transcript,
    build_user_message,
)

MIDDLE = 8_000


def failed(log: Transcript, middle_tokens: int = MIDDLE) -> Transcript:
    name = f"c{len(log.records)}-failed"
    return with_record(log, SummaryFailureRecord(id=name, middle_tokens=middle_tokens))


def summarised(log: Transcript) -> Transcript:
    name = f"c{len(log.records)}"
    covered = tuple(message.id for message in log.messages[1:])
    made = SummaryRecord(
        id=name, strategy="window", covered=covered, summary=build_summary_message(name, "Done so far.")
    )
    return with_record(log, made)


def said(log: Transcript, tokens: int) -> Transcript:
    return log.with_message(make_text_message(log.next_message_id, make_filler_text(tokens)))


BEGUN = said(make_transcript(build_user_message("m1", "Find out.")), MIDDLE)


def test_nothing_stands_in_the_way_of_a_first_summary() -> None:
    assert get_summary_skip_reason(BEGUN) is None


def test_after_a_failure_the_conversation_has_to_grow_by_a_quarter_of_what_could_not_be_summarised() -> None:
    log = failed(BEGUN)
    assert get_summary_skip_reason(log) == (
        "No summary was requested, because the last attempt failed. The next attempt follows when the conversation has "
        "grown by another 2,000 tokens."
    )
    log = said(log, MIDDLE * GROWTH_PERCENT // 100 - 100)
    assert get_summary_skip_reason(log) is not None
    assert get_summary_skip_reason(said(log, 200)) is None


def test_a_failure_changes_nothing_of_the_view() -> None:
    assert build_model_view(failed(BEGUN)) == build_model_view(BEGUN)


def test_after_three_failures_in_a_row_only_a_person_may_ask() -> None:
    log = BEGUN
    for _ in range(MAX_FAILED_SUMMARIES):
        assert get_summary_skip_reason(log) is None
        log = said(failed(log), MIDDLE)
    assert (
        get_summary_skip_reason(log)
        == "No summary was requested, because the last 3 attempts failed. `waystation compact` requests a summary."
    )
    assert get_summary_skip_reason(said(log, 20 * MIDDLE)) is not None
    assert get_summary_skip_reason(said(summarised(log), MIDDLE)) is None


def test_what_is_rewound_takes_its_failures_with_it() -> None:
    log = failed(said(BEGUN, 100))
    assert get_summary_skip_reason(with_record(log, RewindRecord(id="w1", message_id="m2"))) is None


def test_what_was_rewound_is_no_growth() -> None:
    log = said(failed(BEGUN), MIDDLE)
    back = with_record(log, RewindRecord(id="w1", message_id="m3", keeps_message=False))
    assert get_summary_skip_reason(log) is None
    assert get_summary_skip_reason(back) is not None


@given(
    steps=st.lists(st.tuples(st.sampled_from([20, 300, 1_500, 6_000]), st.booleans() | st.just(False)), max_size=25),
    middle=st.integers(1, 2 * MIDDLE),
)
def test_the_calls_of_any_sequence_are_bounded(steps: list[tuple[int, bool]], middle: int) -> None:
    """At every step the context is full, and the summariser, where it is asked, answers well or not."""
    log, good, in_a_row, last_failure = BEGUN, 0, 0, None
    for tokens, works in steps:
        log = said(log, tokens)
        if get_summary_skip_reason(log) is not None:
            continue
        if last_failure is not None:
            assert estimate_messages(log.messages[last_failure:]) >= middle * GROWTH_PERCENT // 100
        log = summarised(log) if works else failed(log, middle)
        good += works
        in_a_row = 0 if works else in_a_row + 1
        last_failure = None if works else len(log.messages)
        assert in_a_row <= MAX_FAILED_SUMMARIES
    bad = len(log.records) - good
    assert bad <= MAX_FAILED_SUMMARIES * (good + 1)
    everything = sum(map(estimate_message, log.messages))
    assert (bad - good - 1) * (middle * GROWTH_PERCENT // 100) <= everything
