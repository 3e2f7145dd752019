"""Charts of spending: the used share of a budget, a task's spending over time against its limit, and the spending of
all tasks by day.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from typing import Literal, NamedTuple

from waystation.kernel.amount import Amount, Limit, format_amount, format_tokens_short, format_usd, format_used_amount
from waystation.plugins.web.diagrams import LEFT, WIDTH, TimeAxis, format_polyline_points
from waystation.tasks.progress import SpendingGrouping, SpendingLine, SpendingReport, TaskCharges, group_spending
from waystation.tasks.view import StepView, TaskBudgetView, TaskView

CURVE_HEIGHT, CURVE_TOP = 108, 22
"""Baseline and maximum of a curve, in the timeline's units; text is above."""


class BudgetBar(NamedTuple):
    """Spent and reserved share of a limit, in percent."""

    spent: float
    reserved: float
    words: str
    reserved_words: str
    """What is reserved, as an amount; empty if nothing is."""


def build_budget_bar(budget: TaskBudgetView | StepView) -> BudgetBar:
    """Build the bar for the unit that is closer to its limit."""
    held = budget.reserved if isinstance(budget, TaskBudgetView) else Amount()
    parts = [
        (spent / limit, reserved / limit)
        for spent, reserved, limit in (
            (budget.spent.tokens, held.tokens, budget.limit.tokens),
            (budget.spent.micro_usd, held.micro_usd, budget.limit.micro_usd),
        )
        if limit
    ]
    spent, reserved = max(parts, default=(0.0, 0.0))
    spent = min(spent, 1.0)
    words = format_used_amount(budget.spent, budget.limit)
    kept = "" if held.is_zero else format_amount(held)
    return BudgetBar(round(100 * spent, 2), round(100 * min(reserved, 1.0 - spent), 2), words, kept)


class SpendingChart(NamedTuple):
    """A task's spending over time, in one unit."""

    name: str
    """Name of the unit."""
    width: int
    height: int
    left: int
    spent: str
    """Points of a line: certain spending of all agents."""
    possibly: str
    """Points around what may have been charged beyond that; empty if nothing may."""
    limit: str
    """Points of a line: the task's limit, with every increase at its time; empty without one."""
    limit_y: float
    """Height of the current limit."""
    limit_words: str
    words: str


class _Unit(NamedTuple):
    """A unit of amounts: tokens, or micro-USD."""

    name: Literal["tokens", "dollars"]

    def of(self, amount: Amount) -> int:
        return amount.tokens if self.name == "tokens" else amount.micro_usd

    def amount(self, count: int) -> Amount:
        return Amount(tokens=count) if self.name == "tokens" else Amount(micro_usd=count)

    def limit(self, limit: Limit) -> Limit:
        return Limit(tokens=limit.tokens) if self.name == "tokens" else Limit(micro_usd=limit.micro_usd)

    def short(self, count: int) -> str:
        return format_tokens_short(count) if self.name == "tokens" else format_usd(count)


class _Rise(NamedTuple):
    """An increase at a time."""

    at: datetime
    by: int


def build_spending_charts(payments: TaskCharges, view: TaskView, axis: TimeAxis) -> tuple[SpendingChart, ...]:
    """Build a chart for tokens, and one for dollars if they were spent or are limited; none before the first charge."""
    drawn = (_curve(payments, view, axis, unit) for unit in (_Unit("tokens"), _Unit("dollars")))
    return tuple(curve for curve in drawn if curve is not None)


def _curve(payments: TaskCharges, view: TaskView, axis: TimeAxis, unit: _Unit) -> SpendingChart | None:
    certain = [_Rise(one.charge.at, unit.of(one.charge.amount)) for one in payments.paid]
    unsure = [_Rise(one.intent.at, unit.of(one.intent.worst_case)) for one in payments.unanswered]
    paid, beyond = (sum(one.by for one in rises) for rises in (certain, unsure))
    if not paid + beyond:
        return None
    allowed = unit.limit(view.budget.limit)
    most = allowed.tokens or allowed.micro_usd or 0
    heights = _Heights(max(paid + beyond, most))
    raises = [
        _Rise(one.answered_at or axis.first, unit.of(one.granted))
        for one in view.approvals
        if one.decision == "approved"
    ]
    first = most - sum(one.by for one in raises)
    words = format_used_amount(unit.amount(paid), allowed)
    return SpendingChart(
        name=unit.name,
        width=WIDTH,
        height=CURVE_HEIGHT + 2,
        left=LEFT,
        spent=format_polyline_points(heights.steps(0, certain, axis)),
        possibly=heights.between(certain, [*certain, *unsure], axis) if beyond else "",
        limit=format_polyline_points(heights.steps(*((first, raises) if first >= 0 else (most, ())), axis))
        if most
        else "",
        limit_y=heights.y(most),
        limit_words=unit.short(most),
        words=f"{words}; at most {format_amount(unit.amount(beyond))} more may have been billed" if beyond else words,
    )


class _Heights(NamedTuple):
    """Converts amounts, up to the greatest of them, into heights."""

    greatest: int

    def y(self, amount: int) -> float:
        return round(CURVE_HEIGHT - (CURVE_HEIGHT - CURVE_TOP) * amount / self.greatest, 1)

    def steps(self, begin: int, rises: Iterable[_Rise], axis: TimeAxis) -> list[tuple[float, float]]:
        """Return a step line that rises at these times, over the whole axis."""
        level, points = begin, [(float(LEFT), self.y(begin))]
        for at, by in sorted(rises):
            x, before = axis.to_x(at), level
            level += by
            points += [(x, self.y(before)), (x, self.y(level))]
        return [*points, (axis.to_x(axis.last), self.y(level))]

    def between(self, lower: Iterable[_Rise], upper: Iterable[_Rise], axis: TimeAxis) -> str:
        """Return the points around the area between two such lines."""
        back = format_polyline_points(self.steps(0, lower, axis)).split()
        return " ".join([format_polyline_points(self.steps(0, upper, axis)), *reversed(back)])


DAYS_HEIGHT, DAYS_LEFT, DAYS_FOOT = 220, 84, 24
"""Chart of days: total height, space for amounts at the left, space for dates below."""
MAX_COLOURED_GROUPS = 6
"""Number of groups with a colour of their own; the others share one."""
MAX_DATE_LABELS, MAX_AXIS_STEPS = 8, 4


class SpentGroup(NamedTuple):
    """A task, session, role or model, with its spending.

    `colour`: a number up to `MAX_COLOURED_GROUPS`, which all groups without a colour of their own share.
    """

    name: str
    label: str
    spent: SpendingLine
    colour: int
    first_title: str = ""
    """Of a session: the title of its first task in these days."""


class BarSegment(NamedTuple):
    """A segment of a day's bar."""

    colour: int
    y: float
    height: float
    title: str


class DayBar(NamedTuple):
    """The spending of one day; `label` is its date if it is shown."""

    day: date
    x: float
    width: float
    stacks: tuple[BarSegment, ...]
    spent: SpendingLine
    label: str


class DailySpendingChart(NamedTuple):
    """The whole chart, in dollars if any price is known, else in fresh tokens."""

    width: int
    height: int
    left: int
    foot: int
    """Baseline of the bars."""
    bars: tuple[DayBar, ...]
    steps: tuple[tuple[float, str], ...]
    """Heights of the grid lines, with their amounts."""
    groups: tuple[SpentGroup, ...]
    """The most expensive first."""


class _Scale(NamedTuple):
    """The scale of amounts: dollars, or fresh tokens."""

    in_dollars: bool
    step: int
    steps: int

    def size(self, line: SpendingLine) -> int:
        return line.cost_micro_usd if self.in_dollars else line.usage.fresh

    def words(self, amount: int) -> str:
        return format_usd(amount) if self.in_dollars else f"{amount:,} tokens"

    def y(self, amount: int) -> float:
        foot = DAYS_HEIGHT - DAYS_FOOT
        return round(foot - (foot - 14) * amount / (self.step * self.steps), 1)


def build_daily_spending_chart(spending: SpendingReport, by: SpendingGrouping) -> DailySpendingChart:
    """Build a bar for each day; an empty one if nothing was spent."""
    by_day: defaultdict[date, list[SpendingLine]] = defaultdict(list)
    for line in spending.lines:
        by_day[line.day].append(line)
    scale = _scale(spending, by_day.values())
    whole = group_spending(spending.lines, by)
    dearest = sorted(whole, key=lambda name: (-scale.size(whole[name]), -whole[name].usage.total, name))
    # The lines are in the order of their days.
    first = {line.session: spending.titles.get(line.task_id, "") for line in reversed(spending.lines)}
    groups = {
        name: SpentGroup(
            name,
            spending.titles.get(name) or name,
            whole[name],
            min(place, MAX_COLOURED_GROUPS),
            first.get(name, "") if by == "session" else "",
        )
        for place, name in enumerate(dearest)
    }
    days = spending.days.dates
    each, dated = (WIDTH - DAYS_LEFT) / len(days), -(-len(days) // MAX_DATE_LABELS)
    bars = tuple(
        DayBar(
            day=day,
            x=round(DAYS_LEFT + place * each, 1),
            width=round(each * 5 / 6, 1),
            stacks=_stacks(day, group_spending(by_day[day], by), groups, scale),
            spent=_sum(by_day[day], day),
            label=f"{day:%d %b}" if place % dated == 0 else "",
        )
        for place, day in enumerate(days)
    )
    amounts = [number * scale.step for number in range(scale.steps + 1)]
    # A label that is too long for the space at the left would lose its first digits.
    steps = tuple(
        (scale.y(one), format_usd(one) if scale.in_dollars else f"{format_tokens_short(one)} tokens") for one in amounts
    )
    return DailySpendingChart(
        WIDTH, DAYS_HEIGHT, DAYS_LEFT, DAYS_HEIGHT - DAYS_FOOT, bars, steps, tuple(groups.values())
    )


def _scale(spending: SpendingReport, by_day: Iterable[Sequence[SpendingLine]]) -> _Scale:
    """Choose steps of 1, 2 or 5 times a power of ten, so that the longest bar fits."""
    plain = _Scale(in_dollars=spending.total.cost_micro_usd > 0, step=1, steps=1)
    most = max([sum(map(plain.size, day)) for day in by_day], default=0)
    step = next(
        step for noughts in range(20) for one in (1, 2, 5) if (step := one * 10**noughts) * MAX_AXIS_STEPS >= most
    )
    return plain._replace(step=step, steps=max(1, -(-most // step)))


def _sum(lines: Iterable[SpendingLine], day: date) -> SpendingLine:
    return reduce(SpendingLine.__add__, lines, SpendingLine(day=day, task_id="", role="", model=""))


def _stacks(
    day: date, spent: Mapping[str, SpendingLine], groups: Mapping[str, SpentGroup], scale: _Scale
) -> tuple[BarSegment, ...]:
    """Stack a day's segments, the most expensive group of all days at the bottom."""
    found: list[BarSegment] = []
    under = 0
    for name in (name for name in groups if name in spent and scale.size(spent[name])):
        amount = scale.size(spent[name])
        y, below = scale.y(under + amount), scale.y(under)
        title = f"{day:%d %b}, {groups[name].label}: {scale.words(amount)}"
        found.append(BarSegment(groups[name].colour, y, round(below - y, 1), title))
        under += amount
    return tuple(found)
