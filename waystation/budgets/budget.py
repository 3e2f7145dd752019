"""Budgets: what was used, what a level holds for its children, and what happens when it is spent.

What was used, and what happens when a budget is spent.

Whether one more call fits under a limit, whatever the model does with it.

Backpressure: how long a model call waits when a budget is nearly spent, so that a person can look before it is.

An account of one budget level: what it may spend, what it spent, and what it holds for its children.

Session, task and agent each have one, in tokens, dollars or both. Children settle once: a repeated settlement has no
effect, whatever is retried or replayed.

Warnings that a budget is nearly spent: one for each level, and one more after each raise by a person.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from typing import NamedTuple

from waystation.kernel.amount import Amount, Limit, format_used_amount
from waystation.kernel.errors import InsufficientBudgetError
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value

LOWEST_BUDGET, HIGHEST_BUDGET = 2_000, 1_000_000_000
"""Tokens of a task or session."""
LOWEST_BUDGET_MICRO_USD, HIGHEST_BUDGET_MICRO_USD = 1_000, 1_000_000 * 1_000_000


class BudgetMode(StrEnum):
    """What happens when an agent's budget, and what its parents have left, is spent."""

    HARD = "hard"
    """An agent that spent its share stops and delivers what there is, marked partial."""
    SOFT = "soft"
    """It slows down and goes on with what its task and its session have left; then it delivers what there is."""
    APPROVAL = "approval"
    """As soft; when that is spent, too, it pauses, holds no worker slot, and asks a person."""


class RunUsage(Value):
    """What one agent run has cost so far, read from the store: cumulative, so that counting it again is harmless."""

    usage: Usage = Usage()
    """Every charge of the run: turns, summaries, planning."""
    turns: int = 0
    possibly_billed: int = 0
    """Worst case, in tokens, of calls whose reply was never committed (a crash in between). Counted as spent."""
    possibly_billed_micro_usd: int = 0
    """The same in millionths of a dollar; calls of models without a known price are not in it."""
    last_prompt: int = 0
    """Prompt tokens of the newest turn, as the provider counted them; 0 before the first."""
    cost_micro_usd: int | None = 0
    """Cost in millionths of a dollar; None where a model without a known price was used."""

    @property
    def spent(self) -> Amount:
        """What counts against the budget. What has no known price costs nothing here: a limit in dollars admits only
        models with a price.
        """
        return Amount(
            tokens=self.usage.fresh + self.possibly_billed,
            micro_usd=(self.cost_micro_usd or 0) + self.possibly_billed_micro_usd,
        )


def sum_run_usage(parts: tuple[RunUsage, ...]) -> RunUsage:
    """Totals added up. One unknown price makes the sum unknown: never a guess."""
    costs = [part.cost_micro_usd for part in parts]
    return RunUsage(
        usage=sum((part.usage for part in parts), Usage()),
        turns=sum(part.turns for part in parts),
        possibly_billed=sum(part.possibly_billed for part in parts),
        possibly_billed_micro_usd=sum(part.possibly_billed_micro_usd for part in parts),
        cost_micro_usd=None if None in costs else sum(cost or 0 for cost in costs),
    )


class WorstCaseRates(Value):
    """The most that a call's tokens can cost, in millionths of a dollar a token."""

    input: Decimal
    output: Decimal


class CallCostBound(Value):
    """What a call can cost at most, before the model is asked."""

    input_tokens: int
    """Certain upper bound of the request's input."""
    rates: WorstCaseRates | None
    """None: the model has no known price, and a limit in dollars then lets no call through."""

    def compute_worst_case(self, output: int) -> Amount:
        """What the call costs at most with a reply of so many tokens. Dollars of an unpriced model count nothing."""
        tokens = self.input_tokens + output
        if self.rates is None:
            return Amount(tokens=tokens)
        cost = self.input_tokens * self.rates.input + output * self.rates.output
        return Amount(tokens=tokens, micro_usd=int(cost.to_integral_value(rounding=ROUND_CEILING)))

    def compute_max_reply_tokens(self, left: Limit, max_output: int, floor: int) -> int | None:
        """The most tokens that a reply may have so that the whole call stays within `left`, in each unit.

        None: not even `floor` tokens of reply fit.
        """
        room = max_output
        if left.tokens is not None:
            room = min(room, left.tokens - self.input_tokens)
        if left.micro_usd is not None:
            room = min(room, self._reply_for(left.micro_usd, max_output))
        return room if room >= floor else None

    def compute_shortfall(self, left: Limit, floor: int) -> Amount:
        """By how much the smallest useful call passes what is left."""
        return left.compute_excess(self.compute_worst_case(floor))

    def _reply_for(self, micro_usd: int, max_output: int) -> int:
        if self.rates is None:
            return 0
        left = micro_usd - self.input_tokens * self.rates.input
        if not self.rates.output:  # models that cost nothing
            return max_output if left >= 0 else 0
        return max(0, int(left // self.rates.output))


WARN_SHARE = 0.80
"""Share of a budget from which on people are warned."""

_DELAYS = ((0.95, 1.5), (0.90, 0.75), (0.85, 0.3), (WARN_SHARE, 0.05))
"""From which used share on a call waits how many seconds."""


def compute_delay_seconds(used: float) -> float:
    """The wait before a call. `used`: the highest share used at any level, from 0."""
    return next((seconds for share, seconds in _DELAYS if used >= share), 0.0)


class BudgetAccount(Value):
    """One level's budget. Invariant, in each unit: spent + all reservations ≤ limit. Only `spend` and `settle` may
    break it, where more was spent than was held: that money is gone, and the ledger never hides it.
    """

    limit: Limit
    spent: Amount = Amount()
    reserved: dict[str, Amount] = {}
    """By child: what is held for it, until it settles."""

    @property
    def total_reserved(self) -> Amount:
        """What is held for all children together."""
        return sum(self.reserved.values(), Amount())

    @property
    def unreserved(self) -> Limit:
        """What may still be reserved or spent."""
        return self.limit.remaining_after(self.spent + self.total_reserved)

    def reserve(self, child: str, amount: Amount) -> "BudgetAccount":
        """Hold an amount for a child, on top of what it already holds.

        Raises:
            Overdrawn: more than is unreserved. Nothing changes then.
        """
        left = self.unreserved
        if not left.can_cover(amount):
            raise InsufficientBudgetError(child, amount, left)
        return self._holding(child, amount)

    def settle(self, child: str, spent: Amount) -> "BudgetAccount":
        """Turn a child's reservation into what it spent; the rest is unreserved again.

        A child without a reservation (settled before, or unknown) changes nothing.
        """
        if child not in self.reserved:
            return self
        rest = {name: held for name, held in self.reserved.items() if name != child}
        return BudgetAccount(limit=self.limit, spent=self.spent + spent, reserved=rest)

    def transfer(self, parent: str, child: str, amount: Amount) -> "BudgetAccount":
        """Part of what is held for one child becomes held for another: at most as much as there is."""
        carved = amount.min_with(self.reserved.get(parent, Amount()))
        kept = {**self.reserved, parent: self.reserved.get(parent, Amount()).subtract_clamped(carved)}
        return BudgetAccount(limit=self.limit, spent=self.spent, reserved=kept)._holding(child, carved)

    def release_to_parent(self, child: str, parent: str, spent: Amount) -> tuple["BudgetAccount", Amount]:
        """Settle a child whose reservation was carved from another's, which holds the rest again. Returns the account
        and that rest; nothing where the parent has settled, so that the rest is unreserved.
        """
        rest = self.reserved.get(child, Amount()).subtract_clamped(spent)
        settled = self.settle(child, spent)
        if parent not in settled.reserved or child not in self.reserved:
            return settled, Amount()
        return settled._holding(parent, rest), rest

    def undo_settlement(self, child: str, spent: Amount) -> "BudgetAccount":
        """Undo a settlement, because the child goes on: what it spent is held for it again, and settled later."""
        rest = BudgetAccount(limit=self.limit, spent=self.spent.subtract_clamped(spent), reserved=self.reserved)
        return rest._holding(child, spent)

    def charge(self, amount: Amount) -> "BudgetAccount":
        """Book what this level spent itself (planning)."""
        return BudgetAccount(limit=self.limit, spent=self.spent + amount, reserved=self.reserved)

    def grant(self, amount: Amount) -> "BudgetAccount":
        """New money from a person: raises the limit. Without a limit there is nothing to raise."""
        return BudgetAccount(limit=self.limit.increase_by(amount), spent=self.spent, reserved=self.reserved)

    def grant_to(self, child: str, amount: Amount) -> "BudgetAccount":
        """New money for a child: limit and reservation grow together, also where more is booked than the limit."""
        return self.grant(amount)._holding(child, amount)

    def reserve_available(self, child: str, wanted: Amount) -> tuple["BudgetAccount", Amount]:
        """Hold up to `wanted` more for a child: as much as is unreserved. Returns the account and the amount.

        An account without a limit gives nothing here: "no limit was set" is not a permission to spend without one.
        """
        drawn = wanted.min_with(self.unreserved.amount)
        return (self if drawn.is_zero else self.reserve(child, drawn)), drawn

    def _holding(self, child: str, amount: Amount) -> "BudgetAccount":
        reserved = {**self.reserved, child: self.reserved.get(child, Amount()) + amount}
        return BudgetAccount(limit=self.limit, spent=self.spent, reserved=reserved)


class BudgetLevel(NamedTuple):
    """One budget, as it is when somebody looks."""

    name: str
    """As a sentence begins with it."""
    used: Amount
    limit: Limit
    raises: int = 0
    """How often people have raised it."""
    verb: str = "spent"


def collect_budget_warnings(
    warned: Mapping[str, int], levels: Iterable[BudgetLevel]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The notes that are due, and by level how many raises it had when its newest note was due."""
    known, notes = dict(warned), list[str]()
    for level in levels:
        share = level.limit.compute_used_share(level.used)
        if share >= WARN_SHARE and known.get(level.name, -1) < level.raises:
            known[level.name] = level.raises
            used = format_used_amount(level.used, level.limit)
            notes.append(f"{level.name} has {level.verb} {int(share * 100)} % of its budget: {used}.")
    return known, tuple(notes)
