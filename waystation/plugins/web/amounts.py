"""Amounts that pages suggest: what to grant a request, and what earlier tasks have spent."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from waystation.budgets.budget import MIN_BUDGET_TOKENS
from waystation.kernel.amount import Amount, Limit, format_amount, format_tokens_short, format_usd, format_usd_short
from waystation.kernel.text import format_count
from waystation.tasks.details import round_amount
from waystation.tasks.view import DELIVERED_PHASES, ApprovalView, TaskView, to_micro_usd

MIN_EARLIER_TASKS = 2
"""Fewer earlier tasks say nothing about the next one."""


class AmountChoice(NamedTuple):
    """An amount that a person may grant by one click."""

    value: str
    """The amount as people write it; empty: what was asked for."""
    words: str


def build_amount_choices(request: ApprovalView) -> tuple[AmountChoice, ...]:
    """Return amounts to choose from: what was asked for; the minimum, if that is less and no negligible amount; what
    finishing may take, if that is more and the task's ceiling allows it.
    """
    choices = [AmountChoice("", f"{format_amount(request.requested)}, as requested")]
    smallest, is_less = request.needed, not request.requested.subtract_clamped(request.needed).is_zero
    if is_less and _is_acceptable(smallest):
        choices.append(AmountChoice(format_written_amount(smallest), f"{format_amount(smallest)}, the minimum"))
    forecast = request.forecast
    if forecast is not None:
        is_more = not forecast.needed_to_finish.subtract_clamped(request.requested).is_zero
        to_finish = round_amount(forecast.needed_to_finish)
        if is_more and forecast.grantable.can_cover(to_finish) and _is_acceptable(to_finish):
            choices.append(
                AmountChoice(format_written_amount(to_finish), f"about {format_amount(to_finish)}, to finish the task")
            )
    return tuple(choices)


def _is_acceptable(amount: Amount) -> bool:
    """Return whether the written amount is accepted: a small plain number is questioned for its unit."""
    return amount.tokens >= MIN_BUDGET_TOKENS or amount.micro_usd > 0


def format_written_amount(amount: Amount) -> str:
    """Format an amount as people write it in a form: `60000`, `$0.25` or `60000+$0.25`."""
    tokens = [f"{amount.tokens}"] if amount.tokens else []
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
