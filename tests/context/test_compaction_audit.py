"""What a summary kept of the messages that it hides: judged by table, and a property over any summary at all."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.conversations import make_text_message, make_transcript
from waystation.context.audit import (
    CONSTRAINTS,
    DECISIONS,
    CompactionAudit,
    RedactedConversation,
    SearchableText,
    build_compaction_audits,
)
from waystation.context.history import build_model_view, get_effective_transcript, get_replacement, with_record
from waystation.context.summary import build_summary_message, render_ledger
from waystation.context.transcript import (
    MaskRecord,
    Record,
    RestoreRecord,
    SummaryRecord,
    Transcript,
    TruncationRecord,
    build_user_message,
)
from waystation.memory.passage_builder import render_message

CONTRACT = build_user_message("m1", "Find out what changed.")
MIDDLE = (
    make_text_message("m2", "The log /srv/export/step7.py says E4711, and 38.5 % are missing."),
    build_user_message("m3", "Do not touch main. Look at https://ci.example/run/7 first."),
    make_text_message("m4", "Commit 3f2a91bc did it."),
)
END = (build_user_message("m5", "And then?"), make_text_message("m6", "Step /srv/export/step8.py was next."))
LOG = make_transcript(CONTRACT, *MIDDLE, *END)


def summarised(text: str, record_id: str = "a", covered: Sequence[str] = ("m2", "m3", "m4")) -> SummaryRecord:
    message = build_summary_message(record_id, text)
    return SummaryRecord(id=record_id, strategy="window", covered=tuple(covered), summary=message)


def redaction_of(log: Transcript) -> RedactedConversation:
    """With nothing private in it."""
    left = [get_replacement(record) for record in log.compactions if not isinstance(record, MaskRecord)]
    heard = [message for message in (*log.messages, *left) if message.role == "user"]
    return RedactedConversation(
        texts={message.id: render_message(message, {}) for message in log.messages},
        user_messages={message.id: message for message in heard},
        view={message.id: render_message(message, {}) for message in build_model_view(log)},
    )


def audited(*records: Record, over: Transcript = LOG) -> tuple[CompactionAudit, ...]:
    for record in records:
        over = with_record(over, record)
    return build_compaction_audits(over, redaction_of(over))


def places(audit: CompactionAudit) -> dict[tuple[str, str], str | None]:
    return {(item.kind, item.text): item.kept for item in audit.items}


@pytest.mark.parametrize(
    ("kind", "text", "summary", "kept"),
    [
        ("codes", "E4711", "It failed with E4711.", "summary"),
        ("codes", "E4711", f"It failed.\n\n{render_ledger(['codes: E4711 | E4712'])}", "ledger"),
        ("codes", "E4711", "It failed.", None),
        ("codes", "E4711", "It failed with E47110.", None),
        ("paths", "/srv/export/step7.py", "It was in /srv/export/step7.py.", "summary"),
        ("paths", "/srv/export/step7.py", "It was in /srv/export.", None),
        ("URLs", "https://ci.example/run/7", "See https://ci.example/run/7.", "summary"),
        ("ids", "3f2a91bc", "Commit 3f2a91bc.", "summary"),
        ("ids", "3f2a91bc", "A commit.", None),
        ("figures", "38.5 %", "38.5 % are missing.", "summary"),
        (CONSTRAINTS, "Do not touch main.", "They said: “do not touch main”, and waited.", "summary"),
        (CONSTRAINTS, "Do not touch main.", f"Work.\n\n{render_ledger(['user: Do not touch main.'])}", "ledger"),
        (CONSTRAINTS, "Do not touch main.", "They would like main to be left as it is.", None),
    ],
)
def test_what_hidden_messages_had_is_kept_where_it_stands_as_a_whole(
    kind: str, text: str, summary: str, kept: str | None
) -> None:
    (audit,) = audited(summarised(summary))
    assert places(audit)[kind, text] == kept


def test_what_stands_elsewhere_in_the_view_is_kept() -> None:
    log = make_transcript(CONTRACT, *MIDDLE, *END, build_user_message("m7", "E4711 again?"))
    (audit,) = audited(summarised("It failed."), over=log)
    assert places(audit)["codes", "E4711"] == "elsewhere"


def test_what_only_visible_messages_have_is_not_judged() -> None:
    (audit,) = audited(summarised("It failed."))
    assert ("paths", "/srv/export/step8.py") not in places(audit)
    assert audit.hidden == ("m2", "m3", "m4")


def test_a_later_summary_is_judged_by_the_originals_and_by_the_decisions_of_the_earlier_one() -> None:
    first = summarised("Decisions:\n- Export to the archive first\n- Skip the index")
    second = summarised("They skip the index.", "b", ("s-a", "m5", "m6"))
    (audit,) = audited(first, second)
    assert (audit.id, audit.earlier, audit.hidden) == ("b", ("a",), ("m2", "m3", "m4", "m5", "m6"))
    judged = places(audit)
    assert judged["codes", "E4711"] is None
    assert judged[DECISIONS, "Export to the archive first"] is None
    assert judged[DECISIONS, "Skip the index"] == "summary"


def test_only_what_stands_in_the_view_is_judged() -> None:
    assert audited(summarised("It failed."), RestoreRecord(id="u1", record_id="a")) == ()
    assert audited(MaskRecord(id="a", tool_use_ids=("c1",))) == ()


def test_a_marker_is_judged_as_a_summary_is() -> None:
    marker = build_user_message(
        "t-a", f"[3 earlier messages are hidden here]\n{render_ledger(['user: Do not touch main.'])}"
    )
    (audit,) = audited(TruncationRecord(id="a", covered=("m2", "m3", "m4"), marker=marker))
    assert (audit.type, audit.strategy) == ("truncated", None)
    assert places(audit)[CONSTRAINTS, "Do not touch main."] == "ledger"
    assert places(audit)["codes", "E4711"] is None


def test_what_memory_gave_back_is_marked_and_nothing_else() -> None:
    (audit,) = audited(summarised("It failed."))
    found = frozenset(item for item in audit.lost if item.text == "E4711")
    assert [item.text for item in audit.with_recalled(found).items if item.recallable] == ["E4711"]


_NAMES = ("E4711", "E47", "/srv/export/step7.py", "/srv/export", "3f2a91bc", "38.5 %", "38", "https://ci.example/run/7")
_WORDS = ("Do not touch main.", "Do not", "touch main", "\n", "<ledger>\n", "\n</ledger>", "user: ")
_PIECES = st.lists(st.sampled_from([*_NAMES, *_WORDS]))


@given(pieces=_PIECES)
def test_nothing_that_counts_as_kept_is_missing_from_the_view(pieces: list[str]) -> None:
    log = with_record(LOG, summarised(" ".join(pieces)))
    (audit,) = build_compaction_audits(log, redaction_of(log))
    seen = "\n".join(message.text for message in build_model_view(get_effective_transcript(log)))
    for item in audit.items:
        if item.kept is not None:
            assert SearchableText(seen).contains_value(item.kind, item.text)
            assert item.text in seen or item.kind == CONSTRAINTS
