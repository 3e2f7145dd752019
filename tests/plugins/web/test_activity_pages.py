"""The page with a task's activity, and the same over the HTTP API."""

import html
import re
from datetime import timedelta
from pathlib import Path

import pytest

from tests.attacks.test_attacks_web_pages import NO_SERVER
from tests.plugins.web.test_plan_pages import open_stub_site
from tests.plugins.web.test_timeline_pictures import WORK, happened
from tests.support.busy_task import AGENT, OTHER_AGENT, store_busy_task
from tests.support.store_values import NOON
from waystation.config.settings import Settings
from waystation.plugins.web.activity_page import (
    EVENTS_A_PAGE,
    ActivityPageView,
    ActivitySelection,
    build_activity_page_view,
    build_event_row,
    build_work_address,
    find_work,
    format_duration,
)
from waystation.plugins.web.diagrams import LEFT, RIGHT, WIDTH, TimeAxis, build_timeline, format_time_offset
from waystation.store.events import EventKind
from waystation.tasks.activity import ActivityFilter, build_activity_view
from waystation.tasks.events import TaskEvent


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def show(events: list[TaskEvent], wanted: ActivityFilter | None = None, **place: int) -> ActivityPageView:
    wanted = wanted or ActivityFilter()
    activity = build_activity_view(events, {}, (), wanted)
    return build_activity_page_view(ActivitySelection("task-1", wanted, **place), events, activity, None)


def addresses(shown: ActivityPageView) -> dict[str, str]:
    return {one.action: html.unescape(one.address).replace("%3A", ":") for one in shown.zooms}


def test_zooming_halves_doubles_and_moves_the_range_and_ends_with_the_whole_task() -> None:
    first = WORK[0].at
    whole = show(WORK)
    assert (whole.range_words, [name for name, to in addresses(whole).items() if to]) == ("", ["in"])
    assert addresses(whole)["in"] == (
        "/tasks/task-1/activity?since=2026-11-21T12:00:20%2B00:00&until=2026-11-21T12:01:00%2B00:00#timeline"
    )
    part = show(WORK, ActivityFilter(since=first + seconds(20), until=first + seconds(60), agents=frozenset({"a"})))
    assert part.lanes is not None
    found = addresses(show(WORK, ActivityFilter(since=first + seconds(20), until=first + seconds(60))))
    assert found["out"] == "/tasks/task-1/activity#timeline", "beyond both ends it is the whole task"
    assert found["whole"] == "/tasks/task-1/activity#timeline"
    assert "until=2026-11-21T12:00:40" in found["earlier"]
    assert "since" not in found["earlier"]
    assert "since=2026-11-21T12:00:40" in found["later"]
    assert "agent=a" in addresses(part)["in"], "a link keeps the rest of the filter"
    assert addresses(show(WORK, ActivityFilter(since=first, until=first + seconds(1.5))))["in"] == ""
    near = ActivityFilter(since=first + seconds(20.000001), until=first + seconds(60))
    assert "since" not in addresses(show(WORK, near))["earlier"]


def test_a_range_is_said_by_the_time_since_the_start_and_its_axis_leads_into_its_parts() -> None:
    events = [happened(1, "taken"), happened(100, "left")]
    shown = show(events, ActivityFilter(since=events[0].at + seconds(150), until=events[0].at + seconds(450)))
    assert shown.range_words == "2 min 30 s to 7 min 30 s"
    assert [one.words for one in shown.segments] == [
        "Zoom to 2 min 30 s to 3 min",
        "Zoom to 3 min to 4 min",
        "Zoom to 4 min to 5 min",
        "Zoom to 5 min to 6 min",
        "Zoom to 6 min to 7 min",
        "Zoom to 7 min to 7 min 30 s",
    ]
    assert (shown.segments[0].x, round(shown.segments[-1].x + shown.segments[-1].width)) == (LEFT, RIGHT)


def test_a_part_of_the_timeline_shows_what_is_in_it_and_more_of_its_calls_separately() -> None:
    many = [happened(1, "taken"), happened(2, "taken", "writing")]
    for turn in range(400):
        many += [
            happened(3 * turn + 2, "called", reference=f"turn-{turn}"),
            happened(3 * turn + 4, "replied", reference=f"m{turn}", tokens=10, context=turn + 1),
        ]
    whole = build_timeline(many, None)
    axis = TimeAxis(many[0].at + seconds(3_000), many[0].at + seconds(3_600))
    part = build_timeline(many, None, axis, {"research-1"})
    assert whole is not None
    assert part is not None
    assert ([one.agent for one in whole.lanes], [one.agent for one in part.lanes]) == (
        ["research-1", "writing"],
        ["research-1"],
    )
    titles = [one.title for one in whole.lanes[0].marks if one.kind == "call"]
    assert titles[0].startswith("5 calls")
    calls = [one for one in part.lanes[0].marks if one.kind == "call"]
    assert [one.title for one in calls[:2]] == ["turn-100: 10 tokens", "turn-101: 10 tokens"]
    assert len(calls) == 20
    for mark in part.lanes[0].marks:
        assert LEFT <= mark.x <= RIGHT
        assert mark.x + mark.width <= WIDTH
    points = [float(point.split(",")[0]) for point in part.lanes[0].context.split()]
    assert points
    assert min(points) >= LEFT


@pytest.mark.parametrize(
    ("at", "precision", "words"),
    [
        (90, 1, "90 s"),
        (150, 30, "2 min 30 s"),
        (36_010, 10, "10 h 10 s"),
        (0.5, 0.5, "0.5 s"),
        (7_200, 3_600, "2 h"),
        (7_260, 60, "2 h 1 min"),
    ],
)
def test_times_since_the_start_are_as_precise_as_needed(at: float, precision: float, words: str) -> None:
    assert format_time_offset(at, precision) == words


def test_an_event_is_on_the_page_that_its_link_opens_and_pages_lead_to_each_other() -> None:
    kinds: tuple[EventKind, ...] = ("noted", "given")
    events = [happened(number, kinds[number % 2]) for number in range(1, 2 * EVENTS_A_PAGE + 11)]
    first = show(events)
    assert (len(first.rows), first.rows[0].event.number) == (EVENTS_A_PAGE, len(events))
    assert first.newer == ""
    assert f"first={EVENTS_A_PAGE}" in first.older
    assert [one.event.number for one in show(events, event=3).rows][-3:] == [3, 2, 1]
    assert show(events, event=3).older == ""
    assert show(events, event=len(events)).newer == ""
    assert first.rows[0].address.endswith(f"?event={len(events)}#event-{len(events)}")
    assert {row.event.kind for row in show(events, ActivityFilter(kinds=frozenset({"given"}))).rows} == {"given"}


def test_durations_are_short() -> None:
    assert [format_duration(one) for one in (0.04, 12.34, 75, 4_000)] == ["0.0 s", "12.3 s", "1m", "1h 6m"]


async def test_the_page_shows_tools_compactions_and_events_and_escapes_what_models_wrote(settings: Settings) -> None:
    task = await store_busy_task(settings)
    async with open_stub_site(settings) as (asking, _):
        page = await asking.get(f"/tasks/{task}/activity")
        on_task = await asking.get(f"/tasks/{task}")
        one = await asking.get(f"/tasks/{task}/activity", params={"agent": OTHER_AGENT, "kind": ""})
        event = await asking.get(f"/tasks/{task}/activity", params={"event": 5})
        gone = await asking.get(f"/tasks/{task}/activity", params={"event": 5_000})
    assert page.status_code == 200, page.text
    rows = {re.sub("<[^>]+>", "|", row) for row in re.findall(r"<tr><td>.*?</tr>", page.text, re.DOTALL)}
    assert "||read_document||2||0||0||7.0 s||" in rows
    assert "||&lt;i&gt;made up&lt;/i&gt;||1||1||0||4.0 s||" in rows
    assert "||search_documents||1||0||1||||" in rows
    assert "<i>made up" not in page.text
    assert any("5 → 4" in row and row.rstrip("|").endswith("1") for row in rows), "messages, and one is pinned"
    assert f'href="/tasks/{task}/agents/{AGENT}#c-summary-1"' in page.text
    assert f'href="/tasks/{task}/agents/{AGENT}#m2"' in page.text
    assert f'href="/tasks/{task}/activity"' in on_task.text
    assert "No tool call matches." in one.text
    assert f"<option selected>{OTHER_AGENT}</option>" in one.text
    assert f'data-page="/tasks/{task}/activity?agent={OTHER_AGENT}&amp;kind="' in one.text
    assert 'id="event-5" class="chosen" aria-current="true"' in event.text
    assert "No event 5000 is shown here" in gone.text


async def test_the_same_over_http(settings: Settings) -> None:
    task = await store_busy_task(settings)
    path = f"/v1/tasks/{task}/activity"
    async with open_stub_site(settings) as (asking, _):
        whole = (await asking.get(path)).json()
        part = (await asking.get(path, params={"kind": ["replied", "given"], "first": 1, "count": 2})).json()
        late = (await asking.get(path, params={"since": (NOON + seconds(20)).isoformat()})).json()
        wrong = await asking.get(path, params={"kind": "never"})
        unknown = await asking.get("/v1/tasks/task-0000000000000000/activity")
    assert {one["tool"]: one["median_seconds"] for one in whole["tools"]} == {
        "read_document": 7.0,
        "<i>made up</i>": 4.0,
        "search_documents": None,
    }
    (compaction,) = whole["compactions"]
    assert (compaction["messages_before"], compaction["messages_after"], compaction["pinned"]) == (5, 4, 1)
    assert (part["event_count"], [one["reference"] for one in part["events"]]) == (7, ["m2", "m3"])
    assert {one["tool"]: one["calls"] for one in late["tools"]} == {"read_document": 1, "search_documents": 1}
    assert (wrong.status_code, unknown.status_code) == (422, 404)


def test_the_work_is_the_busiest_range_between_long_waits_for_a_person() -> None:
    answered = happened(100, "answered", reference="e1", detail="approved")
    later = [happened(101, "called", reference="turn-3"), happened(102, "replied", reference="m6")]
    ended = [*WORK, answered, *later]
    assert find_work(ended, None) == TimeAxis(WORK[0].at, WORK[-1].at)
    busier = [*ended, *(happened(number, "noted", reference=f"note-{number}") for number in range(103, 120))]
    assert find_work(busier, None) == TimeAxis(answered.at, busier[-1].at)
    until = "until=2026-11-21T12:01:20%2B00:00#timeline"
    assert addresses(show(ended))["work"] == f"/tasks/task-1/activity?{until}"
    assert build_work_address("task-1", ended, None).replace("%3A", ":").endswith(f"&{until}")


def test_without_a_long_wait_and_while_another_agent_calls_its_model_nothing_is_idle() -> None:
    assert find_work(WORK, None) is None
    assert find_work(WORK, WORK[-1].at + seconds(5)) is None
    assert find_work(WORK, WORK[-1].at + seconds(500)) == TimeAxis(WORK[0].at, WORK[-1].at), "it still waits"
    calling = [*WORK[:-1], happened(9, "called", "research-2", reference="turn-1"), WORK[-1].replace(number=10)]
    assert find_work([*calling, happened(100, "replied", "research-2", reference="m2")], None) is None
    assert build_work_address("task-1", (), None) == ""


def test_what_an_event_is_about_is_named_without_the_ids_of_its_task_and_agent() -> None:
    note = happened(1, "noted", reference="task-1/research-1/note-3")
    assert build_event_row(note, NOON).about == "note-3"
    assert build_event_row(note.replace(reference="a" * 40), NOON).about == f"{'a' * 16}…"
