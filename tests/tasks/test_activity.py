"""Figures about what agents did, from events and transcripts."""

from datetime import timedelta

from tests.support.busy_task import make_calls, make_results
from tests.support.store_values import NOON
from waystation.context.compaction import CompactionStatus
from waystation.context.history import with_record
from waystation.context.transcript import (
    MaskRecord,
    Message,
    PinRecord,
    RestoreRecord,
    SummaryRecord,
    Transcript,
    build_user_message,
)
from waystation.store.events import EventKind
from waystation.tasks.activity import ActivityFilter, ToolCallTotals, build_activity_view
from waystation.tasks.events import TaskEvent
from waystation.tasks.view import AgentCompactionView

AGENT = "research-1"


def happened(seconds: float, kind: EventKind, reference: str = "", agent: str = AGENT) -> TaskEvent:
    at = NOON + timedelta(seconds=seconds)
    return TaskEvent(number=1 + int(seconds), task_id="task-1", at=at, kind=kind, agent=agent, reference=reference)


def make_transcript(*messages: Message) -> Transcript:
    return Transcript(run_id=f"task-1/{AGENT}", version=len(messages), messages=messages)


def make_outcome(compaction_id: str, status: CompactionStatus = CompactionStatus.COMPRESSED) -> AgentCompactionView:
    return AgentCompactionView(
        id=compaction_id,
        agent=AGENT,
        status=status,
        tokens_before=900,
        tokens_after=400,
        passages=0,
        passages_waiting=0,
        redactions=0,
    )


WORK = [
    happened(0, "submitted", agent=""),
    happened(1, "taken", "1"),
    happened(2, "replied", "m2"),
    happened(6, "given", "m3"),
    happened(7, "replied", "m4"),
    happened(9, "given", "m5"),
    happened(10, "replied", "m6"),
    happened(11, "left", "1"),
    happened(500, "taken", "2"),
    happened(501, "given", "m7"),
    happened(502, "replied", "m8"),
]
LOG = make_transcript(
    build_user_message("m1", "Read."),
    make_calls("m2", c1="read", c2="find"),
    make_results("m3", "c1", "c2", failed="c2"),
    make_calls("m4", c3="read"),
    make_results("m5", "c3"),
    make_calls("m6", c4="send"),
    make_results("m7", "c4"),
    make_calls("m8", c5="read"),
)


def totals(wanted: ActivityFilter | None = None) -> dict[str, ToolCallTotals]:
    found = build_activity_view(WORK, {AGENT: LOG}, (), wanted or ActivityFilter())
    return {one.tool: one for one in found.tools}


def test_calls_of_a_tool_are_counted_with_failures_and_the_median_of_their_times() -> None:
    found = totals()
    assert [*found] == ["read", "find", "send"]
    assert found["read"] == ToolCallTotals(tool="read", calls=3, failures=0, unanswered=1, median_seconds=3.0)
    # Calls of one reply have the same time.
    assert found["find"] == ToolCallTotals(tool="find", calls=1, failures=1, unanswered=0, median_seconds=4.0)


def test_the_time_in_which_a_person_decided_about_a_call_does_not_count() -> None:
    assert totals()["send"].median_seconds == 1.0


def test_calls_that_a_fork_copied_from_another_task_are_not_this_tasks() -> None:
    events = [one for one in WORK if one.reference != "m2"]
    found = build_activity_view(events, {AGENT: LOG}, (), ActivityFilter())
    assert {one.tool: one.calls for one in found.tools} == {"read": 2, "send": 1}


def test_agents_times_and_kinds_narrow_what_is_shown() -> None:
    late = ActivityFilter(since=NOON + timedelta(seconds=7), until=NOON + timedelta(seconds=9))
    assert {name: one.calls for name, one in totals(late).items()} == {"read": 1}
    assert totals(ActivityFilter(agents=frozenset({"writing"}))) == {}
    kinds = build_activity_view(WORK, {AGENT: LOG}, (), ActivityFilter(kinds=frozenset({"given"})))
    assert [one.reference for one in kinds.events] == ["m3", "m5", "m7"]
    assert (kinds.event_count, len(kinds.tools)) == (3, 3)
    whole = build_activity_view(WORK, {AGENT: LOG}, (), ActivityFilter(agents=frozenset({AGENT})))
    assert whole.event_count == len(WORK) - 1


def make_summary(record_id: str, *covered: str) -> SummaryRecord:
    return SummaryRecord(
        id=record_id, strategy="summarise", covered=covered, summary=build_user_message(f"s-{record_id}", "Short.")
    )


def test_a_compaction_says_what_it_kept_and_whether_it_was_undone() -> None:
    log = with_record(make_transcript(*LOG.messages[:5]), PinRecord(id="pin-1", message_id="m1"))
    log = with_record(log, make_summary("summary-1", "m2", "m3"))
    log = with_record(log, MaskRecord(id="mask-1", tool_use_ids=("c3",)))
    log = with_record(log, RestoreRecord(id="restore-1", record_id="summary-1"))
    committed = [happened(20, "compacted", "summary-1"), happened(30, "compacted", "mask-1")]
    listed = [make_outcome("summary-1"), make_outcome("", CompactionStatus.NOOP), make_outcome("")]
    summary, mask, *failed = build_activity_view(
        [*WORK, *committed], {AGENT: log}, listed, ActivityFilter()
    ).compactions
    assert (summary.messages_before, summary.messages_after) == (5, 4)
    assert (summary.tokens_before, summary.tokens_after, summary.pinned) == (900, 400, 1)
    assert (summary.strategy, summary.at, summary.undone) == ("summarise", NOON + timedelta(seconds=20), True)
    assert (mask.type, mask.messages_before, mask.messages_after, mask.undone) == ("masked", 4, 4, False)
    assert (mask.tokens_before, mask.status) == (None, None)
    # Attempts that committed nothing are listed, too: their outcomes have no id.
    assert [(one.type, one.status, one.messages_before) for one in failed] == [
        (None, CompactionStatus.NOOP, None),
        (None, CompactionStatus.COMPRESSED, None),
    ]
