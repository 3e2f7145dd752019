"""Amounts that pages suggest: what to grant a request, and what earlier tasks have spent."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from waystation.budgets.budget import MIN_BUDGET_TOKENS
from waystation.kernel.amount import (
    Amount,
    Limit,
    format_amount,
    format_limit,
    format_tokens_short,
    format_usd,
    format_usd_short,
)
from waystation.kernel.text import format_count
from waystation.tasks.details import format_in_units_of, round_amount
from waystation.tasks.view import DELIVERED_PHASES, ApprovalView, PendingApproval, TaskView, to_micro_usd

MIN_EARLIER_TASKS = 2
"""Fewer earlier tasks say nothing about the next one."""


class AmountChoice(NamedTuple):
    """An amount that a person may grant by one click."""

    value: str
    """The amount as people write it; empty: what was asked for."""
    words: str
    is_suggested: bool = False
    """Whether it is chosen at first."""


def build_amount_choices(request: ApprovalView) -> tuple[AmountChoice, ...]:
    """Return amounts to choose from: what was asked for; the minimum, if that is less; what finishing may take, if that
    is more and the task's ceiling allows it. One of them is suggested: what finishes the task, if that is known.
    """
    choices, suggested = [AmountChoice("", f"{format_amount(request.requested)}, as requested")], 0
    smallest, is_less = request.needed, not request.requested.subtract_clamped(request.needed).is_zero
    if is_less and not smallest.is_zero:
        choices.append(AmountChoice(format_written_amount(smallest), f"{format_amount(smallest)}, the minimum"))
    forecast = request.forecast
    if forecast is not None:
        is_more = not forecast.needed_to_finish.subtract_clamped(request.requested).is_zero
        to_finish = round_amount(forecast.needed_to_finish)
        if is_more and forecast.grantable.can_cover(to_finish):
            suggested, words = len(choices), f"about {format_amount(to_finish)}, to finish the task"
            choices.append(AmountChoice(format_written_amount(to_finish), words))
    return tuple(one._replace(is_suggested=place == suggested) for place, one in enumerate(choices))


def describe_task_budget(one: PendingApproval) -> str:
    """Describe what holds the budget of a task that waits: its parts add up to the limit. Empty if it is not known."""
    asked, budget = one.approval, one.task_budget
    if budget is None or not asked.about_budget or asked.reason:
        return ""
    limit = Limit(
        tokens=None if asked.limit.tokens is None else budget.limit.tokens,
        micro_usd=None if asked.limit.micro_usd is None else budget.limit.micro_usd,
    )
    if limit.is_unlimited:
        return ""
    spent, own = budget.spent, asked.limit.remaining_after(asked.spent).amount
    later, steps = Amount(), 0
    if asked.forecast is not None:
        later = limit.restrict_to_limited_units(asked.forecast.reserved_for_later)
        steps = asked.forecast.steps_to_come
    others = limit.remaining_after(spent + own + later).amount
    parts = [f"{format_in_units_of(spent, limit)} spent"]
    parts += [f"{format_amount(later)} kept for {format_count(steps, 'later step')}"] if not later.is_zero else []
    parts += [f"{format_amount(others)} kept for other agents and reviews"] if not others.is_zero else []
    parts.append(f"{format_in_units_of(own, limit)} left for {asked.agent}")
    return f"{format_limit(limit)}: {', '.join(parts)}"


def describe_next_call(asked: ApprovalView) -> str:
    """Describe why the next call of the agent does not fit what it has left. Empty if its budget is not the cause."""
    if asked.needed.is_zero or asked.reason or not asked.about_budget:
        return ""
    lacking = Limit(tokens=asked.needed.tokens or None, micro_usd=asked.needed.micro_usd or None)
    left = lacking.restrict_to_limited_units(asked.limit.remaining_after(asked.spent).amount)
    return (
        f"may cost up to {format_amount(left + asked.needed)}, with its whole input and a short reply: "
        f"{format_amount(asked.needed)} more than {asked.agent} has left, so it is not made"
    )


def format_written_amount(amount: Amount) -> str:
    """Format an amount as people write it in a form: `60000`, `$0.25` or `60000+$0.25`; few tokens as `0.9k`, because a
    small plain number is questioned for its unit.
    """
    few = f"{amount.tokens / 1_000:.3f}".rstrip("0") + "k"
    tokens = [few if amount.tokens < MIN_BUDGET_TOKENS else f"{amount.tokens}"] if amount.tokens else []
    return "+".join([*tokens, *([format_usd(amount.micro_usd).replace(",", "")] if amount.micro_usd else [])])


def format_written_limit(limit: Limit) -> str:
    """Format a limit as people write it in a form; empty if there is none."""
    return format_written_amount(limit.amount) if not limit.is_unlimited else ""


def describe_earlier_spending(views: Sequence[TaskView]) -> str:
    """Describe what earlier finished tasks have spent, as a sentence; empty if there are too few."""
    finished = [one for one in views if one.phase in DELIVERED_PHASES and not one.budget.spent.is_zero]
    if len(finished) < MIN_EARLIER_TASKS:
        return ""
    tokens = sorted(one.budget.spent.tokens for one in finished)
    costs = sorted(cost for one in finished if (cost := to_micro_usd(one.cost_usd)))
    middle = format_tokens_short(round(median(tokens)))
    least, most = format_tokens_short(tokens[0]), format_tokens_short(tokens[-1])
    spent = f"{least} to {most} tokens each"
    if len(costs) == len(finished):
        spent = f"{spent} ({format_usd_short(costs[0])} to {format_usd_short(costs[-1])})"
    tasks = format_count(len(finished), "finished task")
    return f"Your last {tasks} spent {spent}, half of the tasks under {middle} tokens."
