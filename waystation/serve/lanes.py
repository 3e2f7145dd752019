"""A task as a picture over time: a lane for each agent with its legs, calls, compactions and pauses; and what it spent.

Made of events alone, by the server: marks are links, and nothing of it is code.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from waystation.domain.events import TaskEvent

WIDTH, LEFT, ROW, TOP = 960, 150, 30, 22
"""Of the picture, in its own units: the whole, room for names, a lane, room for the moments above."""
THINNEST = 3.0
"""So wide a stretch is at least, however short it was."""
CURVE_HEIGHT = 90
MOST_CALLS = 400
"""A lane with more calls shows its legs and compactions alone: marks under a unit apart cannot be told."""
MarkKind = Literal["leg", "call", "waiting", "compacted", "rewound", "pause"]


class Mark(NamedTuple):
    """A stretch, or a moment, in a lane. `message` is where its link leads; empty: it has none."""

    kind: MarkKind
    x: float
    width: float
    title: str
    message: str = ""


class AgentLane(NamedTuple):
    """One agent."""

    agent: str
    y: int
    marks: tuple[Mark, ...]
    context: str
    """Points of a line: how full the context was, by call; empty under two calls."""


class Tick(NamedTuple):
    """A moment over the lanes."""

    x: float
    words: str


class Timeline(NamedTuple):
    """The whole picture."""

    width: int
    height: int
    left: int
    lanes: tuple[AgentLane, ...]
    ticks: tuple[Tick, ...]
    spent: str
    """Points of a line: tokens spent by all, over time."""
    spent_words: str


class _Clock(NamedTuple):
    first: datetime
    last: datetime

    def at(self, moment: datetime) -> float:
        whole = (self.last - self.first).total_seconds() or 1.0
        return round(LEFT + (WIDTH - LEFT - 10) * (moment - self.first).total_seconds() / whole, 1)


def timeline(events: Sequence[TaskEvent], now: datetime | None) -> Timeline | None:
    """The picture of a task's events; `now` while it is not over. None where no agent has begun."""
    of_agents = [one for one in events if one.agent]
    if not of_agents:
        return None
    clock = _Clock(events[0].at, max([events[-1].at, *([now] if now else [])]))
    by_agent: defaultdict[str, list[TaskEvent]] = defaultdict(list)
    for one in of_agents:
        by_agent[one.agent].append(one)
    fullest = max([one.context for one in of_agents]) or 1
    lanes = tuple(
        AgentLane(agent, TOP + row * ROW, _marks(own, clock, now), _context(own, clock, TOP + row * ROW, fullest))
        for row, (agent, own) in enumerate(by_agent.items())
    )
    points, words = _spent(events, clock)
    return Timeline(WIDTH, TOP + len(lanes) * ROW + 6, LEFT, lanes, _ticks(clock), points, words)


def _marks(events: Sequence[TaskEvent], clock: _Clock, now: datetime | None) -> tuple[Mark, ...]:
    found = [*_stretches(events, clock, now), *_calls(events, clock)]
    for one in events:
        if one.kind in {"compacted", "rewound"}:
            kind: MarkKind = "rewound" if one.kind == "rewound" else "compacted"
            found.append(Mark(kind, clock.at(one.at), THINNEST, f"{one.detail}, {one.reference}", f"c-{one.reference}"))
    return tuple(found)


def _stretches(events: Sequence[TaskEvent], clock: _Clock, now: datetime | None) -> list[Mark]:
    """Legs from the attempt that took the agent over to their end, and pauses from a request to its answer."""
    found: list[Mark] = []
    began: datetime | None = None
    asked: datetime | None = None
    for one in events:
        match one.kind:
            case "taken":
                began = began or one.at
            case "left" if began is not None:
                found.append(_stretch("leg", began, one.at, clock, f"leg {one.reference}: {one.detail}"))
                began = None
            case "asked":
                asked = asked or one.at
            case "answered" if asked is not None:
                found.append(_stretch("pause", asked, one.at, clock, f"waited for a person: {one.detail}"))
                asked = None
            case _:
                pass
    if began is not None:
        # Planning and reviews are no legs: they end with what they paid for.
        done = events[-1].kind in {"charged", "replied"} and all(one.kind != "left" for one in events)
        found.append(
            _stretch("leg", began, events[-1].at if done or now is None else now, clock, "at work, without a leg's end")
        )
    if asked is not None and now is not None:
        found.append(_stretch("pause", asked, now, clock, "waits for a person"))
    return found


def _calls(events: Sequence[TaskEvent], clock: _Clock) -> list[Mark]:
    """From each call to its reply; one that was never answered is told apart."""
    if sum(one.kind == "called" for one in events) > MOST_CALLS:
        return []
    found: list[Mark] = []
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


def _stretch(kind: MarkKind, first: datetime, last: datetime, clock: _Clock, title: str, message: str = "") -> Mark:
    x = clock.at(first)
    return Mark(kind, x, max(THINNEST, round(clock.at(last) - x, 1)), title, message)


def _context(events: Sequence[TaskEvent], clock: _Clock, y: int, fullest: int) -> str:
    calls = [one for one in events if one.context]
    if len(calls) < 2:
        return ""
    return " ".join(f"{clock.at(one.at)},{y + ROW - 4 - (ROW - 8) * one.context / fullest:.1f}" for one in calls)


def _spent(events: Sequence[TaskEvent], clock: _Clock) -> tuple[str, str]:
    whole = sum(one.tokens for one in events)
    if not whole:
        return "", ""
    points, spent = [f"{LEFT},{CURVE_HEIGHT}"], 0
    for one in events:
        if one.tokens:
            before, spent = spent, spent + one.tokens
            x = clock.at(one.at)
            points += [f"{x},{_height(before, whole)}", f"{x},{_height(spent, whole)}"]
    points.append(f"{WIDTH - 10},{_height(spent, whole)}")
    return " ".join(points), f"{whole:,} tokens, cached ones included"


def _height(spent: int, whole: int) -> float:
    return round(CURVE_HEIGHT - (CURVE_HEIGHT - 14) * spent / whole, 1)


def _ticks(clock: _Clock) -> tuple[Tick, ...]:
    whole = clock.last - clock.first
    return tuple(
        Tick(clock.at(clock.first + whole * part / 4), _after((whole * part / 4).total_seconds())) for part in range(5)
    )


def _after(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
