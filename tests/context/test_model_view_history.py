"""Pins, rewinds and restores: what of a conversation counts after each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.conversations import (
    REREADABLE,
    further_messages,
    make_filler_text,
    make_research_turns,
    make_small_policy,
    make_text_message,
    make_transcript,
)
from waystation.context.audit import build_transcript_view
from waystation.context.history import (
    build_model_view,
    build_restore_record,
    build_rewind_record,
    get_effective_transcript,
    get_pinned_message_ids,
    with_record,
)
from waystation.context.message_rules import find_violations
from waystation.context.pipeline import MaskDecision, SummariseDecision, TruncateDecision, select_next_stage
from waystation.context.summary import build_summary_message
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import (
    MaskRecord,
    Message,
    PinRecord,
    SummaryRecord,
    Transcript,
    TruncationRecord,
    build_user_message,
)
from waystation.context.units import build_pin_record, build_unpin_record
from waystation.kernel.errors import BadInput

CONTRACT = build_user_message("m1", "Find out what changed. Never guess.")
POLICY = make_small_policy(8_000)
MEASURE = TokenEstimator(fixed_tokens=200)
SAID, SAID_MORE = build_summary_message("inner", "Read."), build_summary_message("outer", "Read more.")


def new_id(over: Transcript) -> str:
    return f"by-a-person-{len(over.records) + 1}"


def said(over: Transcript, *added: Message) -> Transcript:
    for message in added:
        over = over.with_message(message.replace(id=over.next_message_id))
    return over


def compacted(over: Transcript, *, skip_summary: bool = False) -> Transcript:
    match select_next_stage(over, MEASURE, POLICY, REREADABLE, skip_summary=skip_summary):
        case MaskDecision() | TruncateDecision() as rung:
            return with_record(over, rung.record)
        case SummariseDecision() as rung:
            message = build_summary_message(rung.compaction_id, "What happened.")
            record = SummaryRecord(id=rung.compaction_id, strategy="window", covered=rung.covered_ids, summary=message)
            return with_record(over, record)
        case _:
            return over


def grown(over: Transcript, turns: int = 8) -> Transcript:
    first = over.turn_count + 1
    return said(over, *make_research_turns(turns, 900, tool="take_note", start=first))


def test_rewinding_before_a_compaction_gives_the_conversation_back_as_it_was() -> None:
    """D1."""
    before = grown(make_transcript(CONTRACT))
    after = grown(compacted(before), 1)
    assert build_model_view(after) != build_model_view(before)
    last = before.messages[-1].id
    assert build_model_view(
        with_record(after, build_rewind_record(after, last, new_id(after), keep=True))
    ) == build_model_view(before)


def test_a_rewind_undoes_only_what_came_after_its_target() -> None:
    """D2."""
    first = compacted(grown(make_transcript(CONTRACT)))
    second = compacted(grown(first), skip_summary=True)
    third = compacted(grown(second))
    assert len(third.compactions) == 3
    back = with_record(third, build_rewind_record(third, second.messages[-1].id, new_id(third), keep=True))
    assert get_effective_transcript(back).compactions == first.compactions
    assert build_model_view(back) == build_model_view(
        Transcript(run_id="r", messages=second.messages, records=first.records)
    )


def test_a_rewind_before_a_message_drops_it_and_one_to_it_keeps_it() -> None:
    over = grown(make_transcript(CONTRACT), 2)
    assert (
        get_effective_transcript(with_record(over, build_rewind_record(over, "m3", new_id(over), keep=True))).messages
        == over.messages[:3]
    )
    assert (
        get_effective_transcript(with_record(over, build_rewind_record(over, "m3", new_id(over), keep=False))).messages
        == over.messages[:2]
    )


def test_the_conversation_goes_on_after_a_rewind_with_new_ids_and_more_turns() -> None:
    over = grown(make_transcript(CONTRACT), 3)
    back = with_record(over, build_rewind_record(over, "m3", new_id(over), keep=True))
    on = said(back, make_text_message("", "Another way."))
    assert [message.id for message in get_effective_transcript(on).messages] == ["m1", "m2", "m3", "m8"]
    assert on.turn_count == over.turn_count + 1
    further = with_record(on, build_rewind_record(on, "m2", new_id(on), keep=True))
    assert [message.id for message in get_effective_transcript(further).messages] == ["m1", "m2"]


def test_what_was_rewound_away_cannot_be_rewound_to() -> None:
    over = grown(make_transcript(CONTRACT), 3)
    back = with_record(over, build_rewind_record(over, "m3", new_id(over), keep=True))
    with pytest.raises(BadInput, match="there is no message 'm5' in this conversation; its messages are: m1 to m3"):
        build_rewind_record(back, "m5", new_id(back), keep=True)


def test_a_rewind_past_a_restore_brings_the_compaction_back() -> None:
    first = compacted(grown(make_transcript(CONTRACT)))
    on = grown(first, 1)
    restored = with_record(on, build_restore_record(on, first.compactions[0].id, new_id(on)))
    assert get_effective_transcript(restored).compactions == ()
    on = grown(restored, 1)
    back = with_record(on, build_rewind_record(on, first.messages[-1].id, new_id(on), keep=True))
    assert get_effective_transcript(back).compactions == ()
    kept = with_record(on, build_rewind_record(on, restored.messages[-1].id, new_id(on), keep=True))
    assert get_effective_transcript(kept).compactions == first.compactions


def test_one_compaction_is_restored_by_the_beginning_of_its_id() -> None:
    before = grown(make_transcript(CONTRACT))
    after = compacted(before)
    (record,) = after.compactions
    assert build_model_view(
        with_record(after, build_restore_record(after, record.id[:6], new_id(after)))
    ) == build_model_view(before)


def test_a_mask_is_restored_without_what_was_compacted_later() -> None:
    before = said(make_transcript(CONTRACT), *make_research_turns(10, 1_200))
    masked = with_record(before, MaskRecord(id="mask", tool_use_ids=("c1", "c2")))
    later = with_record(
        masked, TruncationRecord(id="cut", covered=("m6", "m7"), marker=build_user_message("t-cut", "[hidden]"))
    )
    restored = with_record(later, build_restore_record(later, "mask", new_id(later)))
    assert [record.id for record in get_effective_transcript(restored).compactions] == ["cut"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("zz", "no compaction has an id that begins with 'zz'"), ("", "no compaction"), ("inner", "undo outer first")],
)
def test_what_cannot_be_restored_is_said(name: str, words: str) -> None:
    over = grown(make_transcript(CONTRACT), 3)
    inner = SummaryRecord(
        id="inner", strategy="window", covered=("m2", "m3"), summary=build_summary_message("inner", "Read.")
    )
    outer = SummaryRecord(
        id="outer",
        strategy="window",
        covered=("s-inner", "m4", "m5"),
        summary=build_summary_message("outer", "Read more."),
    )
    over = with_record(with_record(over, inner), outer)
    with pytest.raises(BadInput, match=words):
        build_restore_record(over, name, new_id(over))


def test_what_is_compacted_again_after_a_restore_has_another_id() -> None:
    after = compacted(grown(make_transcript(CONTRACT)))
    (record,) = after.compactions
    again = compacted(with_record(after, build_restore_record(after, record.id, new_id(after))))
    assert len({done.id for done in again.compactions}) == 2
    assert build_model_view(again) == tuple(
        message.replace(id=again.compactions[1].id.join(["s-", ""])) if message.id == f"s-{record.id}"
        else message
        for message in build_model_view(after)
    )  # fmt: skip


def test_a_pinned_message_is_byte_identical_after_any_number_of_compactions() -> None:
    """I6."""
    over = grown(make_transcript(CONTRACT), 2)
    over = said(
        over, build_user_message("", "Note that the bridge carries four tonnes."), *make_research_turns(1, 100, start=9)
    )
    over = with_record(over, build_pin_record(over, "m6", POLICY, MEASURE, new_id(over)))
    pinned = over.messages[5]
    for number in range(5):
        over = compacted(grown(over), skip_summary=number % 2 == 1)
        assert pinned in build_model_view(over)
    assert len(over.compactions) == 5


def test_a_call_of_whose_results_one_is_pinned_stays_with_them() -> None:
    over = grown(make_transcript(CONTRACT), 8)
    over = compacted(with_record(over, build_pin_record(over, "m5", POLICY, MEASURE, new_id(over))))
    assert {"m4", "m5"} <= {message.id for message in build_model_view(over)}


@pytest.mark.parametrize("name", ["m4", "m5"])
def test_a_pin_brings_back_what_is_hidden_however_deep_and_the_call_with_its_results(name: str) -> None:
    over = grown(make_transcript(CONTRACT), 4)
    inner = SummaryRecord(id="inner", strategy="window", covered=("m2", "m3", "m4", "m5"), summary=SAID)
    outer = SummaryRecord(id="outer", strategy="window", covered=("s-inner", "m6", "m7"), summary=SAID_MORE)
    over = with_record(with_record(over, inner), outer)
    assert name not in {message.id for message in build_model_view(over)}
    pinned = with_record(over, build_pin_record(over, name, POLICY, MEASURE, new_id(over)))
    assert [message for message in build_model_view(pinned) if message.id in {"m4", "m5"}] == list(pinned.messages[3:5])
    assert SAID_MORE in build_model_view(pinned)
    assert {one.id for one in build_transcript_view(pinned).messages if one.hidden_by} == {"m2", "m3", "m6", "m7"}
    assert find_violations(build_model_view(pinned)) == ()
    later = compacted(grown(pinned, 6))
    assert len(later.compactions) > len(pinned.compactions)
    assert [message for message in build_model_view(later) if message.id in {"m4", "m5"}] == list(pinned.messages[3:5])
    assert build_model_view(with_record(pinned, build_unpin_record(pinned, name, new_id(pinned)))) == build_model_view(
        over
    )


def test_a_pin_of_all_that_a_summary_stands_for_leaves_nothing_of_the_summary() -> None:
    before = grown(make_transcript(CONTRACT), 3)
    over = with_record(before, SummaryRecord(id="inner", strategy="window", covered=("m2", "m3"), summary=SAID))
    assert build_model_view(
        with_record(over, build_pin_record(over, "m2", POLICY, MEASURE, new_id(over)))
    ) == build_model_view(before)


def test_a_pin_brings_a_masked_result_back() -> None:
    before = grown(make_transcript(CONTRACT), 3)
    (call,) = before.messages[1].tool_uses
    masked = with_record(before, MaskRecord(id="mask", tool_use_ids=(call.id,)))
    assert build_model_view(masked) != build_model_view(before)
    pinned = with_record(masked, build_pin_record(masked, "m3", POLICY, MEASURE, new_id(masked)))
    assert build_model_view(pinned) == build_model_view(before)
    assert not any(message.masked_by for message in build_transcript_view(pinned).messages)


def test_a_hidden_message_that_is_too_large_for_a_pin_names_what_is_to_be_restored_in_order() -> None:
    over = said(
        make_transcript(CONTRACT),
        make_text_message("", make_filler_text(3_000)),
        build_user_message("", "And?"),
        make_text_message("", "Later."),
    )
    inner = SummaryRecord(id="inner", strategy="window", covered=("m2",), summary=SAID)
    outer = SummaryRecord(id="outer", strategy="window", covered=("s-inner", "m3"), summary=SAID_MORE)
    over = with_record(with_record(over, inner), outer)
    with pytest.raises(BadInput, match=r"hidden. To show .* with `--compaction outer`, then with `--compaction inner`"):
        build_pin_record(over, "m2", POLICY, MEASURE, new_id(over))


def test_pins_over_their_cap_are_refused_by_name() -> None:
    over = said(
        make_transcript(CONTRACT),
        make_text_message("", make_filler_text(1_000)),
        build_user_message("", "And?"),
        make_text_message("", make_filler_text(900)),
    )
    over = with_record(over, build_pin_record(over, "m2", POLICY, MEASURE, new_id(over)))
    with pytest.raises(
        BadInput, match=r"m4 has \d+ tokens. All pinned messages together may have 1,600 tokens.*Pinned now: m2 \("
    ):
        build_pin_record(over, "m4", POLICY, MEASURE, new_id(over))


def test_a_pin_is_taken_back_and_needs_to_be_there() -> None:
    over = grown(make_transcript(CONTRACT), 2)
    pinned = with_record(over, build_pin_record(over, "m3", POLICY, MEASURE, new_id(over)))
    with pytest.raises(BadInput, match="pinned already"):
        build_pin_record(pinned, "m3", POLICY, MEASURE, new_id(pinned))
    freed = with_record(pinned, build_unpin_record(pinned, "m3", new_id(pinned)))
    assert get_pinned_message_ids(freed) == frozenset()
    with pytest.raises(BadInput, match="m3 is not pinned"):
        build_unpin_record(freed, "m3", new_id(freed))
    with pytest.raises(BadInput, match="no message 'm99'"):
        build_pin_record(freed, "m99", POLICY, MEASURE, new_id(freed))


def test_a_rewind_keeps_the_pins_of_the_messages_that_stay() -> None:
    over = said(make_transcript(CONTRACT), *make_research_turns(4, 100))
    for name in ("m3", "m7"):
        over = with_record(over, build_pin_record(over, name, POLICY, MEASURE, new_id(over)))
    assert get_pinned_message_ids(with_record(over, build_rewind_record(over, "m5", new_id(over), keep=True))) == {"m3"}
    freed = with_record(over, build_unpin_record(over, "m3", new_id(over)))
    assert (
        get_pinned_message_ids(with_record(freed, build_rewind_record(freed, "m5", new_id(freed), keep=True)))
        == frozenset()
    )


Step = tuple[Message, ...] | bool | tuple[str, int]
"""Messages that are said, a compaction (without a summariser or with one), or what a person does."""

steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        further_messages(first=0),
        st.booleans(),
        st.tuples(st.sampled_from(["to", "before", "restore", "pin"]), st.integers(0, 40)),
    ),
    min_size=3,
    max_size=12,
)


def stepped(over: Transcript, step: Step, number: int) -> Transcript:
    """The transcript after one more event; as it was where the event is refused."""
    if isinstance(step, bool):
        return compacted(over, skip_summary=step)
    match step:
        case (str(kind), int(choice)):
            try:
                return by_a_person(over, kind, choice)
            except BadInput:
                return over
        case _:
            return said(over, *(_renamed(message, number) for message in step))


def by_a_person(over: Transcript, kind: str, choice: int) -> Transcript:
    now = get_effective_transcript(over)
    names = [message.id for message in now.messages[1:]] or ["m1"]
    records = [record.id for record in now.compactions] or [""]
    match kind:
        case "restore":
            return with_record(over, build_restore_record(over, records[choice % len(records)], new_id(over)))
        case "pin":
            return with_record(over, build_pin_record(over, names[choice % len(names)], POLICY, MEASURE, new_id(over)))
        case _:
            return with_record(
                over, build_rewind_record(over, names[choice % len(names)], new_id(over), keep=kind == "to")
            )


@given(steps)
def test_any_sequence_of_saying_compacting_rewinding_restoring_and_pinning_leaves_a_legal_view(
    steps: list[Step],
) -> None:
    over = make_transcript(CONTRACT)
    for number, step in enumerate(steps):
        before, over = over, stepped(over, step, number)
        sent = build_model_view(over)
        now = get_effective_transcript(over)
        there = {message.id for message in now.messages}
        assert find_violations(sent, pending_allowed=True) == ()
        assert Transcript.model_validate_json(over.model_dump_json()) == over
        assert get_effective_transcript(now) == now
        for record in now.records:
            if isinstance(record, PinRecord):
                assert record.message_id in there
        by_id = {message.id: message for message in sent}
        for message in now.messages:
            if message.id in get_pinned_message_ids(over) and message.text:
                assert by_id[message.id].text == message.text
        if isinstance(step, bool):
            assert MEASURE.request(sent) <= MEASURE.request(build_model_view(before))


def _renamed(message: Message, step: int) -> Message:
    raw = message.model_dump_json().replace('"id":"', f'"id":"{step}.').replace('_use_id":"', f'_use_id":"{step}.')
    return Message.model_validate_json(raw)
