"""The whole log, with what compactions did to each message and what became of the compactions."""

import json

import pytest

from tests.support.conversations import (
    make_call_message,
    make_research_turns,
    make_result_message,
    make_text_message,
    make_transcript,
)
from waystation.cli.render_context import format_transcript
from waystation.context.audit import AnnotatedTranscript, build_transcript_view
from waystation.context.history import with_record
from waystation.context.summary import build_summary_message
from waystation.context.transcript import (
    MaskRecord,
    PinRecord,
    Record,
    RestoreRecord,
    RewindRecord,
    SummaryRecord,
    Transcript,
    TruncationRecord,
    build_user_message,
)

A, B, MASK = "aaaaaaaaaa00", "bbbbbbbbbb00", "cccccccccc00"
LOG = make_transcript(
    build_user_message("m1", "Find out what changed."), *make_research_turns(6, 10), make_text_message("m14", "Done.")
)


def summarised(record_id: str, *covered: str) -> SummaryRecord:
    message = build_summary_message(record_id, f"What {record_id[0]} stands for.")
    return SummaryRecord(id=record_id, strategy="window", covered=covered, summary=message, added=("open items: 1",))


def marked(record_id: str, *covered: str) -> TruncationRecord:
    return TruncationRecord(
        id=record_id, covered=covered, marker=build_user_message(f"t-{record_id}", "[2 earlier messages]")
    )


def recorded(*records: Record, over: Transcript = LOG) -> Transcript:
    for record in records:
        over = with_record(over, record)
    return over


def hidden(log: AnnotatedTranscript) -> dict[str, str]:
    return {message.id: message.hidden_by for message in log.messages if message.hidden_by is not None}


FIRST, NESTED = summarised(A, "m2", "m3"), summarised(B, f"s-{A}", "m4", "m5")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((), {}),
        ((FIRST,), {"m2": A, "m3": A}),
        ((FIRST, NESTED), {"m2": A, "m3": A, "m4": B, "m5": B}),
        ((marked(A, "m2", "m3"), summarised(B, f"t-{A}", "m4", "m5")), {"m2": A, "m3": A, "m4": B, "m5": B}),
        ((MaskRecord(id=MASK, tool_use_ids=("c1",)),), {}),
    ],
)
def test_each_hidden_message_names_the_compaction_that_covers_it(
    records: tuple[Record, ...], expected: dict[str, str]
) -> None:
    assert hidden(build_transcript_view(recorded(*records))) == expected


def test_every_message_of_the_log_is_shown_in_order_whatever_hides_it() -> None:
    log = build_transcript_view(recorded(FIRST, NESTED))
    assert [message.id for message in log.messages] == [message.id for message in LOG.messages]
    assert [message.blocks for message in log.messages] == [message.blocks for message in LOG.messages]


def test_a_summary_that_is_covered_itself_says_by_what() -> None:
    first, second = build_transcript_view(recorded(FIRST, NESTED)).compactions
    assert (first.covered, first.originals, first.hidden_by) == (("m2", "m3"), ("m2", "m3"), B)
    assert (second.covered, second.hidden_by) == ((f"s-{A}", "m4", "m5"), None)
    assert second.originals == ("m2", "m3", "m4", "m5")


def test_masked_results_are_named_by_their_calls() -> None:
    both = (
        build_user_message("m1", "Go."),
        make_call_message("m2", "c1", "c2"),
        make_result_message("m3", c1="one", c2="two"),
        make_text_message("m4", "Done."),
    )
    log = build_transcript_view(recorded(MaskRecord(id=MASK, tool_use_ids=("c2",)), over=make_transcript(*both)))
    assert {message.id: message.masked_by for message in log.messages if message.masked_by} == {"m3": {"c2": MASK}}
    (mask,) = log.compactions
    assert (mask.covered, mask.replacement, mask.text, mask.strategy) == (("m3",), None, "", None)


def test_pins_are_marked() -> None:
    log = build_transcript_view(recorded(PinRecord(id="p1", message_id="m4")))
    assert [message.id for message in log.messages if message.pinned] == ["m4"]


def test_a_restored_compaction_hides_nothing_and_says_that_it_was_undone() -> None:
    log = build_transcript_view(recorded(FIRST, NESTED, RestoreRecord(id="u1", record_id=B)))
    assert hidden(log) == {"m2": A, "m3": A}
    assert [(one.undone, one.hidden_by) for one in log.compactions] == [(None, None), ("restored", None)]


def test_what_was_rewound_away_is_marked() -> None:
    log = build_transcript_view(recorded(FIRST, RewindRecord(id="w1", message_id="m5")))
    assert [message.id for message in log.messages if message.rewound] == [f"m{n}" for n in range(6, 15)]
    assert hidden(log) == {}
    assert [one.undone for one in log.compactions] == ["rewound"]


MARKS = [
    "task_message",
    "documents_update_number",
    "fallback_model",
    "refusal",
    "hidden_by",
    "masked_by",
    "pinned",
    "rewound",
]


def test_the_json_has_the_keys_that_are_promised() -> None:
    log = json.loads(build_transcript_view(recorded(FIRST)).model_dump_json())
    assert list(log) == ["run_id", "version", "messages", "compactions"]
    assert list(log["messages"][0]) == ["id", "role", "blocks", *MARKS]
    assert list(log["compactions"][0]) == [
        "id",
        "type",
        "strategy",
        "covered",
        "originals",
        "added",
        "removed",
        "replacement",
        "text",
        "hidden_by",
        "undone",
    ]


def test_the_text_has_summaries_at_their_place_the_outermost_first() -> None:
    log = build_transcript_view(
        recorded(FIRST, NESTED, MaskRecord(id=MASK, tool_use_ids=("c3",)), PinRecord(id="p1", message_id="m8"))
    )
    headings = [text.partition("\n")[0] for text in format_transcript(log)]
    assert headings[:9] == [
        "[m1] user",
        "── summary bbbbbbbb (window) stands for 4 messages: summary aaaaaaaa, m4, m5"
        " · the check of the summary added open items: 1",
        "── summary aaaaaaaa (window) stands for 2 messages: m2, m3 · hidden by summary bbbbbbbb"
        " · the check of the summary added open items: 1",
        "[m2] assistant · hidden by summary aaaaaaaa",
        "[m3] user · hidden by summary aaaaaaaa",
        "[m4] assistant · hidden by summary bbbbbbbb",
        "[m5] user · hidden by summary bbbbbbbb",
        "[m6] assistant",
        "── mask cccccccc hides tool results in 1 message: m7",
    ]
    assert headings[9:11] == ["[m7] user · result of call c3 masked by mask cccccccc", "[m8] assistant · pinned"]


def test_the_text_marks_what_was_undone() -> None:
    texts = list(
        format_transcript(build_transcript_view(recorded(marked(A, "m2", "m3"), RestoreRecord(id="u1", record_id=A))))
    )
    assert texts[1] == "── marker aaaaaaaa stands for 2 messages: m2, m3 · undone: restored\n  [2 earlier messages]\n"
