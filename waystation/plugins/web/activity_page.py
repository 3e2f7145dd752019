"""Data of the page with a task's activity: the timeline of a time range with its zoom links, and pages of events.

Every link of the page holds the whole filter, so that it shows the same after a reload and to other people.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, NamedTuple
from urllib.parse import urlencode

from waystation.plugins.web.diagrams import (
    LEFT,
    RIGHT,
    TimeAxis,
    Timeline,
    build_time_axis,
    build_timeline,
    format_time_offset,
)
from waystation.store.events import EventKind
from waystation.tasks.activity import ActivityFilter, ActivityView
from waystation.tasks.details import format_time_span
from waystation.tasks.events import TaskEvent

EVENTS_A_PAGE = 200
MAX_REFERENCE_CHARACTERS = 16
MIN_RANGE = timedelta(seconds=1)
"""The shortest time range that a zoom link leads to."""
TIMELINE_ID = "timeline"
EVENT_WORDS: Mapping[EventKind, str] = MappingProxyType(
    {
        "submitted": "task submitted",
        "admitted": "task admitted",
        "planned": "plan stored",
        "taken": "taken over by an attempt",
        "called": "model called",
        "throttled": "waited for the rate limit",
        "replied": "model replied",
        "given": "results or messages received",
        "charged": "charge booked",
        "compacted": "context compacted",
        "edited": "context edited",
        "rewound": "context rewound",
        "left": "leg ended",
        "noted": "note stored",
        "delivered": "result delivered",
        "asked": "person asked",
        "answered": "person answered",
        "messaged": "message sent",
        "updated": "documents updated",
        "refused": "message refused",
        "resolved": "placeholders resolved",
        "ended": "task ended",
        "reopened": "task reopened",
        "forgotten": "task forgotten",
    }
)
"""Words for each kind of event."""
ZoomAction = Literal["in", "out", "earlier", "later", "whole", "work"]
ZOOM_KEYS: Mapping[ZoomAction, tuple[str, str]] = MappingProxyType(
    {
        "in": ("Zoom in", "+"),
        "out": ("Zoom out", "-"),
        "earlier": ("Earlier", "Shift+ArrowLeft"),
        "later": ("Later", "Shift+ArrowRight"),
        "whole": ("Whole task", "0"),
        "work": ("Work only", "w"),
    }
)
"""Words and key of each zoom link. The keys work while the timeline has the focus."""


class ZoomLink(NamedTuple):
    """A link to another time range. `address` is empty if it would change nothing."""

    action: ZoomAction
    words: str
    key: str
    address: str


class ZoomSegment(NamedTuple):
    """A part of the axis between two ticks, which links to its time range."""

    x: float
    width: float
    words: str
    address: str


class EventRow(NamedTuple):
    """An event in the list."""

    event: TaskEvent
    words: str
    offset: str
    """Time since the task's first event."""
    address: str
    """Its own address, which opens the list where it is."""
    about: str
    """What it is about, without the ids of its task and agent, and shortened."""
    message: str
    """ID of the message or compaction that it is about; empty if there is none."""


class ActivityPageView(NamedTuple):
    """A task's activity as its page shows it."""

    lanes: Timeline | None
    first: datetime | None
    """The time range of the timeline; None without a timeline."""
    last: datetime | None
    range_words: str
    """The time range in words; empty if it is the whole task."""
    zooms: tuple[ZoomLink, ...]
    segments: tuple[ZoomSegment, ...]
    agents: tuple[str, ...]
    """All agents that have events."""
    kinds: tuple[EventKind, ...]
    """All kinds of its events."""
    rows: tuple[EventRow, ...]
    """One page of the matching events, the newest first."""
    newer: str
    """Addresses of the pages before and after; empty if there is none."""
    older: str
    activity: ActivityView


class ActivitySelection(NamedTuple):
    """What a page of a task's activity shows: the filter, and the place in the list of events."""

    task_id: str
    activity_filter: ActivityFilter
    first: int = 0
    """Index of the first event on the page, from the newest."""
    event: int | None = None
    """Number of the event that the page has to show."""

    def build_page_address(self, first: int) -> str:
        """Build the address of the events from this index on, with the same filter."""
        wanted = self.activity_filter
        return self._build_address("events", wanted.since, wanted.until, first)

    def build_range_address(self, since: datetime | None, until: datetime | None) -> str:
        """Build the address of another time range, with the same agents and kinds; None: without an end."""
        return self._build_address(TIMELINE_ID, since, until, 0)

    def build_agent_address(self, agent: str) -> str:
        """Build the address of the activity of one agent only, in the same time range."""
        only = self._replace(activity_filter=self.activity_filter.replace(agents=frozenset({agent})))
        return only.build_range_address(self.activity_filter.since, self.activity_filter.until)

    def _build_address(self, anchor: str, since: datetime | None, until: datetime | None, first: int) -> str:
        fields: list[tuple[str, str]] = [
            *(("agent", agent) for agent in sorted(self.activity_filter.agents)),
            *(("kind", kind) for kind in sorted(self.activity_filter.kinds)),
        ]
        if since is not None:
            fields.append(("since", since.isoformat()))
        if until is not None:
            fields.append(("until", until.isoformat()))
        if first:
            fields.append(("first", str(first)))
        query = f"?{urlencode(fields)}" if fields else ""
        return f"/tasks/{self.task_id}/activity{query}#{anchor}"


def build_activity_page_view(
    selection: ActivitySelection, events: Sequence[TaskEvent], activity: ActivityView, now: datetime | None
) -> ActivityPageView:
    """Build the view of a page.

    Args:
        selection: What the page shows.
        events: All events of the task, in order.
        activity: The activity that the filter of the page matches.
        now: The current time while the task is not over; otherwise None.
    """
    wanted = selection.activity_filter
    shown = _build_axis(events, wanted, now) if events else None
    lanes = build_timeline(events, now, shown, wanted.agents) if events else None
    newest_first = activity.events[::-1]
    first = _find_first(newest_first, selection)
    return ActivityPageView(
        lanes=lanes,
        first=None if lanes is None else lanes.axis.first,
        last=None if lanes is None else lanes.axis.last,
        range_words=format_range(events, lanes.axis) if lanes is not None and (wanted.since or wanted.until) else "",
        zooms=build_zoom_links(selection, build_time_axis(events, now), lanes.axis, find_work(events, now))
        if lanes is not None
        else (),
        segments=build_zoom_segments(selection, events, lanes) if lanes is not None else (),
        agents=tuple(dict.fromkeys(one.agent for one in events if one.agent)),
        kinds=tuple(dict.fromkeys(one.kind for one in events)),
        rows=tuple(build_event_row(one, events[0].at) for one in newest_first[first : first + EVENTS_A_PAGE]),
        newer=selection.build_page_address(max(0, first - EVENTS_A_PAGE)) if first else "",
        older=selection.build_page_address(first + EVENTS_A_PAGE) if len(newest_first) > first + EVENTS_A_PAGE else "",
        activity=activity,
    )


def _build_axis(events: Sequence[TaskEvent], wanted: ActivityFilter, now: datetime | None) -> TimeAxis:
    whole = build_time_axis(events, now)
    first, last = wanted.since or whole.first, wanted.until or whole.last
    return TimeAxis(first, last if first < last else first + MIN_RANGE)


def _find_first(newest_first: Sequence[TaskEvent], selection: ActivitySelection) -> int:
    """Return the index of the first event on the page: with an event to show, of the page that has it."""
    found = next((index for index, one in enumerate(newest_first) if one.number == selection.event), None)
    return selection.first if found is None else found - found % EVENTS_A_PAGE


def build_event_row(event: TaskEvent, begin: datetime) -> EventRow:
    """Build the row of an event of a task whose first event was at `begin`."""
    message = ""
    if event.agent and event.kind in {"replied", "given"}:
        message = event.reference
    elif event.kind == "compacted":
        message = f"c-{event.reference}"
    address = f"/tasks/{event.task_id}/activity?event={event.number}#event-{event.number}"
    offset = format_time_offset(round((event.at - begin).total_seconds()), 1)
    about = event.reference.removeprefix(f"{event.task_id}/").removeprefix(f"{event.agent}/")
    if len(about) > MAX_REFERENCE_CHARACTERS:
        about = f"{about[:MAX_REFERENCE_CHARACTERS]}…"
    return EventRow(event, EVENT_WORDS[event.kind], offset, address, about, message)


MIN_IDLE_SHARE = 0.1
"""A wait for a person is long if it takes this share of a task's time."""


def find_work(events: Sequence[TaskEvent], now: datetime | None) -> TimeAxis | None:
    """Return the time range with the most events between long waits for a person; None without a long wait.

    `now`: the current time while the task is not over; otherwise None.
    """
    whole = build_time_axis(events, now)
    events = [one for one in events if one.at <= whole.last]
    long = (whole.last - whole.first) * MIN_IDLE_SHARE
    stretches, stretch = list[list[TaskEvent]](), [events[0]]
    asked, calling = 0, set[str]()
    for one, following in pairwise(events):
        asked += (one.kind == "asked") - (one.kind == "answered")
        if one.kind == "called":
            calling.add(one.agent)
        elif one.kind in {"replied", "charged", "left"}:
            calling.discard(one.agent)
        if asked > 0 and not calling and following.at - one.at >= long:
            stretches.append(stretch)
            stretch = []
        stretch.append(following)
    if not stretches and whole.last - events[-1].at < long:
        return None
    best = max((*stretches, stretch), key=len)
    return TimeAxis(best[0].at, max(best[-1].at, best[0].at + MIN_RANGE))


def build_work_address(task_id: str, events: Sequence[TaskEvent], now: datetime | None) -> str:
    """Build the address of the activity of a task without long waits for a person; empty if there were none."""
    work = find_work(events, now) if events else None
    selection = ActivitySelection(task_id, ActivityFilter())
    return "" if work is None else selection.build_range_address(work.first, work.last)


def build_zoom_links(
    selection: ActivitySelection, whole: TimeAxis, shown: TimeAxis, work: TimeAxis | None = None
) -> tuple[ZoomLink, ...]:
    """Build the links that change the time range: to its middle half, to twice as much, by half of it, to all, and to
    the work without long waits.
    """
    length = shown.last - shown.first
    half, quarter = length / 2, length / 4
    ranges: dict[ZoomAction, tuple[datetime, datetime] | None] = {
        "in": (shown.first + quarter, shown.last - quarter) if half >= MIN_RANGE else None,
        "out": (shown.first - half, shown.last + half),
        "earlier": (shown.first - half, shown.last - half) if shown.first > whole.first else None,
        "later": (shown.first + half, shown.last + half) if shown.last < whole.last else None,
        "whole": (whole.first, whole.last),
        "work": work and (work.first, work.last),
    }
    return tuple(
        ZoomLink(action, words, key, _build_range_address(selection, ranges[action], whole, shown))
        for action, (words, key) in ZOOM_KEYS.items()
    )


def _build_range_address(
    selection: ActivitySelection, wanted: tuple[datetime, datetime] | None, whole: TimeAxis, shown: TimeAxis
) -> str:
    """Return the address of a time range within the task; empty if it is the one that is shown."""
    if wanted is None:
        return ""
    first, last = max(wanted[0], whole.first), min(wanted[1], whole.last)
    # Halves of halves miss the ends by a few microseconds.
    near = (wanted[1] - wanted[0]) / 1_000
    first = whole.first if first - whole.first < near else first
    last = whole.last if whole.last - last < near else last
    if (first, last) == (shown.first, shown.last) or first >= last:
        return ""
    # Without its ends, the range of a running task grows with it.
    return selection.build_range_address(None if first == whole.first else first, None if last == whole.last else last)


def build_zoom_segments(
    selection: ActivitySelection, events: Sequence[TaskEvent], lanes: Timeline
) -> tuple[ZoomSegment, ...]:
    """Build the links of the parts of the axis between ticks."""
    ends = [lanes.axis.first, *(tick.at for tick in lanes.ticks), lanes.axis.last]
    return tuple(
        ZoomSegment(
            x=(x := lanes.axis.to_x(first)),
            width=round(lanes.axis.to_x(last) - x, 1),
            words=f"Zoom to {format_range(events, TimeAxis(first, last))}",
            address=selection.build_range_address(first, last),
        )
        for first, last in pairwise(ends)
        if last - first >= MIN_RANGE and (first, last) != (lanes.axis.first, lanes.axis.last)
    )


def format_range(events: Sequence[TaskEvent], axis: TimeAxis) -> str:
    """Format a time range by the time since the task's first event: `2 min to 3 min 30 s`."""
    begin, length = events[0].at, (axis.last - axis.first).total_seconds()
    precision = 1.0 if length >= 1 else 0.1
    first, last = (
        format_time_offset(round((at - begin).total_seconds() / precision) * precision, precision)
        for at in (axis.first, axis.last)
    )
    return f"{first} to {last}"


def format_duration(seconds: float) -> str:
    """Format a duration: tenths of a second below a minute, then `3m` or `1h 20m`."""
    return (
        f"{seconds:.1f} s"
        if seconds < timedelta(minutes=1).total_seconds()
        else format_time_span(timedelta(seconds=seconds))
    )


SELECTABLE = {"first": LEFT, "last": RIGHT}
"""Positions between which a time range can be selected with the mouse."""
