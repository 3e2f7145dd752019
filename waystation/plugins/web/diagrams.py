"""Diagrams of a task: its plan, and a timeline with a lane for each agent with its legs, calls, compactions and pauses.

Drawn by the server as SVG without code; the timeline is built from events alone, and marks are links.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from waystation.planning.plan import PLANNING_ID, PlanVersion
from waystation.tasks.events import TaskEvent

WIDTH, LEFT, ROW, TOP = 960, 150, 30, 22
"""Timeline, in its own units: total width, space for names, height of a lane, space for times above."""
RIGHT = WIDTH - 10
"""Position of the axis's last time."""
MIN_SPAN_WIDTH = 3.0
"""Minimum width of a span, however short it was."""
MAX_CALL_MARKS = 80
"""Maximum marks of calls in a lane.

Beyond, consecutive calls share a mark: no one can point at marks of a few units.
"""
MAX_TICKS, DAY = 5, 86_400
TICK_UNITS = ((DAY, "d"), (3_600, "h"), (60, "min"), (1, "s"))
TICK_STEPS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(DAY * one for one in (1, 2, 5, 10, 20, 50, 100, 200)),
)
"""Seconds between two ticks above the lanes."""
MAX_TICK_COUNT = 120
"""From this number on, a time is also given in larger units."""
THINNED = 2.0
"""Minimum distance of a line's points, except its last one."""
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y = 190, 46, 50, 16
"""Diagram of the plan, in its own units."""
MAX_LABEL_CHARACTERS = 22
MarkKind = Literal["leg", "call", "waiting", "compacted", "rewound", "pause", "again"]


class PlanBox(NamedTuple):
    """A step in the diagram of the plan."""

    x: int
    y: int
    id: str
    label: str
    title: str
    state: str


class PlanEdge(NamedTuple):
    """An edge from a step to one that depends on it."""

    x1: int
    y1: int
    x2: int
    y2: int


class PlanDiagram(NamedTuple):
    """The plan as boxes, each to the right of those that it depends on."""

    width: int
    height: int
    boxes: tuple[PlanBox, ...]
    lines: tuple[PlanEdge, ...]


def build_plan_diagram(version: PlanVersion, states: dict[str, str]) -> PlanDiagram:
    """Lay out the steps of a plan. Plans have no cycles."""
    column: dict[str, int] = {}
    for _ in version.plan.steps:
        for step in version.plan.steps:
            column[step.id] = 1 + max((column.get(need, 0) for need in step.needs), default=-1)
    filled: dict[int, int] = {}
    boxes: dict[str, PlanBox] = {}
    for step in version.plan.steps:
        at = column[step.id]
        row = filled.get(at, 0)
        filled[at] = row + 1
        label = step.title if len(step.title) <= MAX_LABEL_CHARACTERS else f"{step.title[: MAX_LABEL_CHARACTERS - 1]}…"
        x, y = at * (BOX_WIDTH + GAP_X) + 2, row * (BOX_HEIGHT + GAP_Y) + 2
        boxes[step.id] = PlanBox(x, y, step.id, label, step.title, states.get(step.id, "waiting"))
    lines = tuple(_edge(boxes[need], boxes[step.id]) for step in version.plan.steps for need in step.needs)
    width = (max(filled, default=0) + 1) * (BOX_WIDTH + GAP_X) - GAP_X + 4
    height = max(filled.values(), default=1) * (BOX_HEIGHT + GAP_Y) - GAP_Y + 4
    return PlanDiagram(width, height, tuple(boxes.values()), lines)


def _edge(first: PlanBox, then: PlanBox) -> PlanEdge:
    return PlanEdge(first.x + BOX_WIDTH, first.y + BOX_HEIGHT // 2, then.x, then.y + BOX_HEIGHT // 2)


class TimelineSpan(NamedTuple):
    """A span, or a moment, in a lane. `message` is the target of its link; empty: none."""

    kind: MarkKind
    x: float
    width: float
    title: str
    message: str = ""


class AgentTimeline(NamedTuple):
    """The lane of one agent."""

    agent: str
    y: int
    marks: tuple[TimelineSpan, ...]
    context: str
    """Points of a line: how full the context was at each call; empty with fewer than two calls."""


class AxisTick(NamedTuple):
    """A time above the lanes."""

    x: float
    at: datetime
    words: str
    """Time since the task's first event."""


class Timeline(NamedTuple):
    """The whole timeline."""

    width: int
    height: int
    left: int
    lanes: tuple[AgentTimeline, ...]
    ticks: tuple[AxisTick, ...]
    axis: "TimeAxis"


class TimeAxis(NamedTuple):
    """Maps a task's times to positions in its lanes and charts."""

    first: datetime
    last: datetime

    def to_x(self, moment: datetime) -> float:
        """Return the horizontal position of a time, also of one outside of the axis."""
        whole = (self.last - self.first).total_seconds() or 1.0
        return round(LEFT + (RIGHT - LEFT) * (moment - self.first).total_seconds() / whole, 1)


def build_time_axis(events: Sequence[TaskEvent], now: datetime | None) -> TimeAxis:
    """Build the axis from a task's first event to its end, or to `now` while it is not over."""
    if now is None and any(one.kind == "ended" for one in events):
        # What people did with it later, such as forgetting it or a message that came too late, is not drawn.
        worked = [one.at for one in events if one.kind == "ended" or (one.agent and one.kind != "refused")]
        return TimeAxis(events[0].at, max(worked))
    return TimeAxis(events[0].at, max([events[-1].at, *([now] if now else [])]))


def build_timeline(
    events: Sequence[TaskEvent],
    now: datetime | None,
    axis: TimeAxis | None = None,
    agents: Collection[str] = (),
) -> Timeline | None:
    """Build the timeline of a task's events, or a part of it. None if no agent has begun.

    Args:
        events: All events of the task, in order.
        now: The current time while the task is not over; otherwise None.
        axis: The time range to draw. None: from the first event to the task's end, or to `now`.
        agents: The agents to draw. Empty: all of them.
    """
    of_agents = [one for one in events if one.agent]
    if not of_agents:
        return None
    clock = axis or build_time_axis(events, now)
    by_agent: defaultdict[str, list[TaskEvent]] = defaultdict(list)
    for one in events:
        agent = one.agent or (PLANNING_ID if one.kind == "planned" and PLANNING_ID in by_agent else "")
        if agent:
            by_agent[agent].append(one)
    fullest = max([one.context for one in of_agents]) or 1
    drawn = {agent: own for agent, own in by_agent.items() if not agents or agent in agents}
    lanes = tuple(
        AgentTimeline(agent, TOP + row * ROW, _marks(own, clock, now), _context(own, clock, TOP + row * ROW, fullest))
        for row, (agent, own) in enumerate(drawn.items())
    )
    return Timeline(WIDTH, TOP + len(lanes) * ROW + 6, LEFT, lanes, _ticks(clock, events[0].at), clock)


def _marks(events: Sequence[TaskEvent], clock: TimeAxis, now: datetime | None) -> tuple[TimelineSpan, ...]:
    moments = [
        TimelineSpan(
            "rewound" if one.kind == "rewound" else "compacted",
            clock.to_x(one.at),
            MIN_SPAN_WIDTH,
            f"{one.detail}, {one.reference}",
            f"c-{one.reference}" if one.kind == "compacted" else "",
        )
        for one in events
        if one.kind in {"compacted", "rewound"}
    ]
    long = _clip([*_legs(events, clock, now), *_pauses(events, clock, now)])
    # Calls are merged after they are clipped: a shorter time range shows more of them separately.
    return (*long, *_together(_clip(_calls(events, clock))), *_clip(moments))


def _clip(spans: Iterable[TimelineSpan]) -> list[TimelineSpan]:
    """Return the parts of spans that are within the lanes."""
    found: list[TimelineSpan] = []
    for one in spans:
        first, last = max(one.x, float(LEFT)), min(one.x + one.width, RIGHT + MIN_SPAN_WIDTH)
        if one.x <= RIGHT and first < last:
            found.append(one._replace(x=first, width=round(last - first, 1)))
    return found


def _legs(events: Sequence[TaskEvent], clock: TimeAxis, now: datetime | None) -> list[TimelineSpan]:
    """Return spans from the attempt that claimed the agent to the leg's end."""
    found: list[TimelineSpan] = []
    began: datetime | None = None
    passed_on = False
    for one in events:
        match one.kind:
            case "taken":
                if began is not None and not passed_on:
                    # The previous attempt was killed, or lost its worker.
                    found.append(
                        TimelineSpan(
                            "again", clock.to_x(one.at), MIN_SPAN_WIDTH, f"taken over by attempt {one.reference}"
                        )
                    )
                began, passed_on = began or one.at, False
            case "compacted" | "edited" | "rewound":
                # An activity that ran between two legs had claimed the agent.
                passed_on = True
            case "left" | "planned" if began is not None:
                words = f"leg {one.reference}: {one.detail}" if one.kind == "left" else "planning"
                found.append(_stretch("leg", began, one.at, clock, words))
                began = None
            case _:
                pass
    if began is not None:
        # Planning and reviews are not legs: they end with their last charge.
        done = events[-1].kind in {"charged", "replied"} and all(one.kind != "left" for one in events)
        last = events[-1].at if done or now is None else now
        found.append(_stretch("leg", began, last, clock, "leg without an end yet"))
    return found


def _pauses(events: Sequence[TaskEvent], clock: TimeAxis, now: datetime | None) -> list[TimelineSpan]:
    """Return spans from the first open request of the agent to the answer after which none is open."""
    found: list[TimelineSpan] = []
    asked: datetime | None = None
    pending = 0
    for one in events:
        if one.kind == "asked":
            asked, pending = asked or one.at, pending + 1
        elif one.kind == "answered" and asked is not None:
            pending -= 1
            if not pending:
                found.append(_stretch("pause", asked, one.at, clock, f"waited for a person: {one.detail}"))
                asked = None
    if asked is not None and now is not None:
        found.append(_stretch("pause", asked, now, clock, "waits for a person"))
    return found


def _calls(events: Sequence[TaskEvent], clock: TimeAxis) -> list[TimelineSpan]:
    """Return spans from each call to its reply; one that was never answered is marked."""
    found: list[TimelineSpan] = []
    called: TaskEvent | None = None
    for one in events:
        if one.kind == "called":
            if called is not None:
                found.append(_stretch("waiting", called.at, called.at, clock, f"{called.reference}: no answer"))
            called = one
        elif one.kind in {"replied", "charged"} and called is not None:
            told = f"{called.reference}: {one.tokens:,} tokens"
            message = one.reference if one.kind == "replied" else ""
            found.append(_stretch("call", called.at, one.at, clock, told, message))
            called = None
    if called is not None:
        found.append(_stretch("waiting", called.at, called.at, clock, f"{called.reference}: no answer yet"))
    return found


def _together(calls: Sequence[TimelineSpan]) -> list[TimelineSpan]:
    """Merge answered calls into at most this number of marks, each linked to its first call."""
    answered = [one for one in calls if one.kind == "call"]
    size = -(-len(answered) // MAX_CALL_MARKS)
    if size <= 1:
        return [*calls]
    found = [one for one in calls if one.kind != "call"]
    for place in range(0, len(answered), size):
        part = answered[place : place + size]
        first, last = part[0], part[-1]
        width = round(last.x + last.width - first.x, 1)
        found.append(first._replace(width=width, title=_name_range(part)))
    return found


def _name_range(part: Sequence[TimelineSpan]) -> str:
    """Name the first and the last of several answered calls, each with its tokens in parentheses."""
    (first, _, tokens), (last, _, more) = (one.title.rpartition(": ") for one in (part[0], part[-1]))
    return f"{len(part)} calls, from {first} ({tokens}) to {last} ({more})"


def _stretch(
    kind: MarkKind, first: datetime, last: datetime, clock: TimeAxis, title: str, message: str = ""
) -> TimelineSpan:
    x = clock.to_x(first)
    return TimelineSpan(kind, x, max(MIN_SPAN_WIDTH, round(clock.to_x(last) - x, 1)), title, message)


def _context(events: Sequence[TaskEvent], clock: TimeAxis, y: int, fullest: int) -> str:
    calls = [one for one in events if one.context and clock.first <= one.at <= clock.last]
    if len(calls) < 2:
        return ""
    return format_polyline_points(
        (clock.to_x(one.at), y + ROW - 4 - (ROW - 8) * one.context / fullest) for one in calls
    )


def format_polyline_points(points: Iterable[tuple[float, float]]) -> str:
    """Format the points of a line, without those too close to the previous one; the last is kept."""
    found: list[tuple[float, float]] = []
    for x, y in points:
        if len(found) > 1 and x - found[-2][0] < THINNED:
            found[-1] = (x, y)
        else:
            found.append((x, y))
    return " ".join(f"{x:g},{round(y, 1):g}" for x, y in found)


def _ticks(clock: TimeAxis, begin: datetime) -> tuple[AxisTick, ...]:
    """Return ticks at round times since `begin`: a time that is only rounded in its label would be at the wrong
    place.
    """
    whole, offset = (clock.last - clock.first).total_seconds(), (clock.first - begin).total_seconds()
    step = next((one for one in TICK_STEPS if one * MAX_TICKS >= whole), whole)
    each = [step * number for number in range(math.ceil(offset / step), 1 + int((offset + whole) / step))]
    moments = [(begin + timedelta(seconds=at), at) for at in each]
    return tuple(AxisTick(clock.to_x(at), at, format_time_offset(seconds, step)) for at, seconds in moments)


def format_time_offset(seconds: float, precision: float) -> str:
    """Format the time since the task's first event, as precisely as needed: `1 h 2 min 30 s`; `2 h`."""
    size, unit = next(one for one in TICK_UNITS if one[0] <= max(precision, 1))
    if seconds / size < MAX_TICK_COUNT or size == DAY:
        return f"{seconds / size:.4g} {unit}"
    words: list[str] = []
    left = seconds
    for larger, name in TICK_UNITS:
        if larger < size:
            break
        count = left / larger if larger == size else left // larger
        left -= larger * (left // larger)
        if count:
            words.append(f"{count:.4g} {name}")
    return " ".join(words)
