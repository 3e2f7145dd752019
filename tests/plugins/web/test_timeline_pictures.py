"""A task over time, as its page draws it."""

from datetime import UTC, datetime, timedelta

import pytest

from waystation.plugins.web.activity_page import find_work
from waystation.plugins.web.diagrams import (
    LEFT,
    MAX_CALL_MARKS,
    MIN_SPAN_WIDTH,
    WIDTH,
    TimelineSpan,
    build_time_axis,
    build_timeline,
    format_polyline_points,
)
from waystation.store.events import EventKind
from waystation.tasks.events import TaskEvent

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def happened(number: int, kind: EventKind, agent: str = "research-1", **more: object) -> TaskEvent:
    at = NOON + timedelta(seconds=10 * (number - 1))
    told = {"number": number, "kind": kind, "agent": agent, "task_id": "task-1", "at": at, **more}
    return TaskEvent.model_validate(told)


WORK = [
    happened(1, "submitted", ""),
    happened(2, "taken", reference="1"),
    happened(3, "called", reference="turn-1"),
    happened(4, "replied", reference="m2", tokens=100, context=80),
    happened(5, "called", reference="turn-2"),
    happened(6, "replied", reference="m4", tokens=200, context=160),
    happened(7, "compacted", reference="summary-1", detail="summarised"),
    happened(8, "left", reference="1", detail="allowance_spent"),
    happened(9, "asked", reference="e1", detail="pending"),
]


def marks(events: list[TaskEvent], now: datetime | None = None) -> dict[str, list[TimelineSpan]]:
    drawn = build_timeline(events, now)
    assert drawn is not None
    found: dict[str, list[TimelineSpan]] = {}
    for one in drawn.lanes[0].marks:
        found.setdefault(one.kind, []).append(one)
    return found


def test_an_agent_has_a_lane_in_which_replies_and_compactions_open_their_messages() -> None:
    drawn = marks(WORK, NOON + timedelta(seconds=100))
    assert [(one.title, one.message) for one in drawn["call"]] == [
        ("turn-1: 100 tokens", "m2"),
        ("turn-2: 200 tokens", "m4"),
    ]
    assert [one.message for one in drawn["compacted"]] == ["c-summary-1"]
    assert [one.title for one in drawn["leg"]] == ["leg 1: allowance_spent"]
    assert [one.title for one in drawn["pause"]] == ["waits for a person"]


def test_of_two_open_requests_the_pause_ends_with_the_second_answer() -> None:
    two = (
        happened(9, "asked", reference="e1", detail="pending"),
        happened(9, "asked", reference="e2", detail="pending"),
    )
    first = happened(11, "answered", reference="e3", detail="approved")
    second = happened(15, "answered", reference="e4", detail="denied")
    end = NOON + timedelta(seconds=200)
    (pause,) = marks([*WORK[:8], *two, first, second], end)["pause"]
    (waiting,) = marks([*WORK[:8], *two, first], end)["pause"]
    (one,) = marks([*WORK[:8], two[0], second], end)["pause"]
    assert (pause.x, pause.width) == (one.x, one.width)
    assert waiting.width > pause.width


def test_a_pause_ends_with_its_answer_and_an_unanswered_call_is_told_apart() -> None:
    drawn = marks([*WORK, happened(10, "answered", detail="approved"), happened(11, "called", reference="turn-3")])
    assert [one.title for one in drawn["pause"]] == ["waited for a person: approved"]
    assert [one.title for one in drawn["waiting"]] == ["turn-3: no answer yet"]


def test_an_attempt_that_was_killed_is_told_apart_from_one_that_made_room() -> None:
    again = happened(5, "taken", reference="2")
    assert [one.title for one in marks([*WORK[:4], again])["again"]] == ["taken over by attempt 2"]
    assert "again" not in marks([*WORK[:7], happened(8, "taken", reference="2"), happened(9, "left", reference="2")])


def test_planning_ends_with_what_it_paid_for() -> None:
    planned = [happened(1, "taken", "plan"), happened(2, "called", "plan"), happened(3, "charged", "plan", tokens=5)]
    (leg,) = marks([*planned, happened(9, "ended", "")], NOON + timedelta(hours=1))["leg"]
    assert leg.width <= max(MIN_SPAN_WIDTH, WIDTH / 100)


def test_a_line_shows_how_full_the_context_was_at_each_call() -> None:
    drawn = build_timeline(WORK, None)
    assert drawn is not None
    assert len(drawn.lanes[0].context.split()) == 2


def test_a_task_of_which_no_agent_has_begun_has_no_picture() -> None:
    assert build_timeline([happened(1, "submitted", "")], NOON) is None


def test_everything_at_one_moment_can_be_drawn() -> None:
    assert marks([WORK[1]])["leg"][0].width == MIN_SPAN_WIDTH


def test_of_many_calls_neighbours_are_one_mark_that_leads_to_the_first() -> None:
    many = [happened(1, "taken")]
    for turn in range(2 * MAX_CALL_MARKS):
        many += [
            happened(3 * turn + 2, "called", reference=f"turn-{turn}"),
            happened(3 * turn + 4, "replied", reference=f"m{turn}", tokens=10, context=turn + 1),
        ]
    drawn = marks([*many, happened(6 * MAX_CALL_MARKS + 2, "called", reference="turn-x")])
    assert len(drawn["call"]) == MAX_CALL_MARKS
    assert [one.message for one in drawn["call"]] == [f"m{turn}" for turn in range(0, 2 * MAX_CALL_MARKS, 2)]
    assert drawn["call"][1].title == "2 calls, from turn-2 (10 tokens) to turn-3 (10 tokens)"
    assert [one.title for one in drawn["waiting"]] == ["turn-x: no answer yet"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, ["0 s"]),
        (1.2, ["0 s", "0.5 s", "1 s"]),
        (9, ["0 s", "2 s", "4 s", "6 s", "8 s"]),
        (280, ["0 min", "1 min", "2 min", "3 min", "4 min"]),
        (3_600 * 9, ["0 h", "2 h", "4 h", "6 h", "8 h"]),
        (86_400 * 45, ["0 d", "10 d", "20 d", "30 d", "40 d"]),
        (86_400 * 9_999, ["0 d", "9999 d"]),
    ],
)
def test_moments_over_the_lanes_are_round_and_stand_where_they_are(seconds: float, words: list[str]) -> None:
    drawn = build_timeline(WORK[1:2], WORK[1].at + timedelta(seconds=seconds))
    assert drawn is not None
    assert [tick.words for tick in drawn.ticks] == words
    assert drawn.ticks[0].x == LEFT
    assert all(tick.x <= WIDTH for tick in drawn.ticks)


def test_planning_that_called_no_model_is_over_once_there_is_a_plan() -> None:
    events = [happened(1, "taken", "plan", reference="1"), happened(2, "given", "plan"), happened(3, "planned", "")]
    (planning,) = marks(events, NOON + timedelta(hours=1))["leg"]
    assert (planning.title, planning.width) == ("planning", pytest.approx((WIDTH - LEFT - 10) * 20 / 3_600, abs=0.1))


def test_a_line_of_many_points_has_no_two_in_one_place_and_keeps_its_last() -> None:
    points = format_polyline_points((number / 10, 90 - number / 100) for number in range(5_000)).split()
    assert len(points) < WIDTH
    assert (points[0], points[-1]) == ("0,90", "499.9,40")


def test_the_picture_of_a_task_ends_where_the_task_ended_whatever_people_did_with_it_later() -> None:
    ran = [happened(1, "taken"), happened(2, "called"), happened(3, "charged"), happened(4, "ended", "")]
    later = [happened(600, "refused"), happened(601, "messaged", ""), happened(900, "forgotten", "")]
    assert build_time_axis([*ran, *later], None) == build_time_axis(ran, None)
    assert build_time_axis(ran, None).last == ran[-1].at
    again = [*ran, happened(500, "reopened", ""), happened(510, "taken"), happened(520, "left")]
    assert build_time_axis(again, None).last == again[-1].at
    waited = [*ran[:3], happened(4, "asked"), happened(300, "answered"), happened(310, "left"), happened(311, "ended")]
    work = find_work([*waited, *later], None)
    assert work is not None
    assert work.last <= waited[-1].at
