"""What compaction records do to a view."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.conversations import (
    arbitrary_messages,
    make_call_message,
    make_filler_text,
    make_research_transcript,
    make_research_turns,
    make_result_message,
    make_text_message,
    make_transcript,
)
from waystation.context.history import build_model_view, with_record
from waystation.context.message_rules import find_violations
from waystation.context.summary import build_summary_message
from waystation.context.transcript import (
    MaskRecord,
    Message,
    Record,
    SummaryRecord,
    Text,
    Thinking,
    Transcript,
    TruncationRecord,
    build_user_message,
)


def summarised(record_id: str, *covered: str) -> SummaryRecord:
    summary = build_summary_message(record_id, f"summary {record_id}")
    return SummaryRecord(id=record_id, strategy="window", covered=covered, summary=summary)


def truncated(record_id: str, *covered: str) -> TruncationRecord:
    return TruncationRecord(id=record_id, covered=covered, marker=build_user_message(f"t-{record_id}", "[hidden]"))


def ids(over: Transcript) -> list[str]:
    return [message.id for message in build_model_view(over)]


def test_a_record_is_appended_as_one_commit() -> None:
    before = make_research_transcript(2)
    after = with_record(before, truncated("x", "m2", "m3"))
    assert after.version == before.version + 1
    assert after.messages == before.messages
    placed = truncated("x", "m2", "m3").replace(after=len(before.messages))
    assert after.records == (placed,)


def test_a_summary_stands_at_the_place_of_the_first_message_it_covers() -> None:
    compacted = with_record(make_research_transcript(4), summarised("x", "m4", "m5", "m6", "m7"))
    assert ids(compacted) == ["m1", "m2", "m3", "s-x", "m8", "m9"]


def test_what_is_said_between_covered_messages_stays_after_the_summary() -> None:
    history = make_transcript(
        build_user_message("m1", "Go."),
        *make_research_turns(1),
        build_user_message("m4", "Do not stop."),
        *make_research_turns(1, start=3),
        make_text_message("m8", "Done."),
    )
    assert ids(with_record(history, summarised("x", "m2", "m3", "m6", "m7"))) == ["m1", "s-x", "m4", "m8"]


def test_a_later_record_may_cover_earlier_summaries_and_markers() -> None:
    compacted = with_record(make_research_transcript(5), summarised("x", "m2", "m3"))
    compacted = with_record(compacted, truncated("y", "m4", "m5"))
    assert ids(compacted) == ["m1", "s-x", "t-y", "m6", "m7", "m8", "m9", "m10", "m11"]
    assert ids(with_record(compacted, summarised("z", "s-x", "t-y", "m6", "m7"))) == [
        "m1", "s-z", "m8", "m9", "m10", "m11",
    ]  # fmt: skip


def test_a_record_of_which_nothing_is_visible_changes_nothing() -> None:
    compacted = with_record(make_research_transcript(3), summarised("x", "m2", "m3"))
    assert build_model_view(with_record(compacted, truncated("y", "m2", "m3"))) == build_model_view(compacted)


def test_messages_that_arrive_meanwhile_are_the_tail() -> None:
    before = with_record(make_research_transcript(2), summarised("x", "m2", "m3"))
    after = before.replace(messages=(*before.messages, build_user_message("m6", "And this?")))
    assert ids(after) == ["m1", "s-x", "m4", "m5", "m6"]


def test_a_masked_result_names_its_tool_its_size_and_how_to_get_it_back() -> None:
    history = make_transcript(
        build_user_message("m1", "Go."),
        make_call_message("m2", "a", "b"),
        make_result_message("m3", a=make_filler_text(1_000), b=make_filler_text(1_000)),
    )
    masked = build_model_view(with_record(history, MaskRecord(id="x", tool_use_ids=("a",))))
    first, second = masked[2].tool_results
    assert first.content == (
        "[Old result of read_document, 4,000 characters, not shown. Repeat the call to read it again.]"
    )
    assert second.content == make_filler_text(1_000)
    assert masked[:2] == history.messages[:2]


def test_masking_twice_changes_nothing() -> None:
    once = with_record(make_research_transcript(3), MaskRecord(id="x", tool_use_ids=("c1", "c2")))
    assert build_model_view(with_record(once, MaskRecord(id="y", tool_use_ids=("c2",)))) == build_model_view(once)


def test_a_result_that_a_placeholder_would_make_larger_is_shown() -> None:
    history = make_transcript(
        build_user_message("m1", "Go."), make_call_message("m2", "a"), make_result_message("m3", a="yes")
    )
    assert build_model_view(with_record(history, MaskRecord(id="x", tool_use_ids=("a",)))) == history.messages


def test_a_record_that_parts_a_call_from_its_result_leaves_a_legal_view() -> None:
    for part in ("m2", "m3"):
        compacted = with_record(make_research_transcript(2), truncated("x", part))
        assert find_violations(build_model_view(compacted)) == ()


def test_covering_the_first_of_two_equal_call_ids_does_not_bring_the_second_back() -> None:
    again = (make_call_message("m4", "c1"), make_result_message("m5", c1="second"))
    history = make_transcript(*make_research_transcript(1).messages, *again)
    assert ids(with_record(history, truncated("x", "m2", "m3"))) == ["m1", "t-x"]


@given(
    arbitrary_messages(),
    st.lists(st.tuples(st.sampled_from("smt"), st.sets(st.integers(1, 14), min_size=1)), max_size=4),
)
def test_the_view_of_any_history_under_any_records_is_legal_and_reasoning_in_it_is_untouched(
    messages: tuple[Message, ...], drawn: list[tuple[str, set[int]]]
) -> None:
    over = make_transcript(*messages)
    for number, (kind, places) in enumerate(drawn):
        covered = tuple(f"m{place}" for place in sorted(places))
        record: Record = MaskRecord(id=str(number), tool_use_ids=tuple(f"c{place}" for place in places))
        if kind != "m":
            record = (summarised if kind == "s" else truncated)(str(number), *covered)
        over = with_record(over, record)
    shown = build_model_view(over)
    assert find_violations(shown, pending_allowed=True) == ()
    said = [block for message in messages for block in message.blocks if isinstance(block, Text | Thinking)]
    stand_ins = {"s-", "t-", "op"}
    for message in shown:
        if message.id[:2] not in stand_ins:
            assert all(block in said for block in message.blocks if isinstance(block, Text | Thinking))
