"""Budgets of sessions, tasks and agents in tokens, dollars or both: accounts, cost bounds, backpressure, warnings.

Accounts hold reservations for children. A child settles once: a repeated settlement has no effect, whatever is retried
or replayed.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from typing import NamedTuple

from waystation.kernel.amount import Amount, Limit, format_used_amount
from waystation.kernel.errors import InsufficientBudgetError
from waystation.kernel.usage import Usage, sum_usage
from waystation.kernel.value import Value

MIN_BUDGET_TOKENS, MAX_BUDGET_TOKENS = 2_000, 1_000_000_000
"""Minimum and maximum tokens of a task's or session's budget."""
MIN_BUDGET_MICRO_USD, MAX_BUDGET_MICRO_USD = 1_000, 1_000_000 * 1_000_000


class BudgetMode(StrEnum):
    """What an agent does when its budget is spent."""

    HARD = "hard"
    """An agent that spent its share stops and delivers what exists, marked partial."""
    SOFT = "soft"
    """It slows down and continues with what its task and session have left; then it delivers what exists."""
    APPROVAL = "approval"
    """As `soft`; when that is spent too, it pauses, holds no worker slot, and asks a person."""


class RunUsage(Value):
    """What one agent run has cost so far, read from the store: cumulative, so that counting it again is harmless."""

    usage: Usage = Usage()
    """All charges of the run: turns, summaries, planning."""
    turns: int = 0
    possibly_billed: int = 0
    """Worst case, in tokens, of calls whose reply was never committed (after a crash). Counted as spent."""
    possibly_billed_micro_usd: int = 0
    """The same in micro-USD; excludes calls of models without a known price."""
    last_prompt_tokens: int = 0
    """Prompt tokens of the newest turn, as the provider counted them; 0 before the first."""
    cost_micro_usd: int | None = 0
    """Cost in micro-USD; None if a model without a known price was used."""

    @property
    def spent(self) -> Amount:
        """What counts against the budget.

        Unpriced calls cost no dollars here: a limit in dollars admits only models with a price.
        """
        return Amount(
            tokens=self.usage.fresh + self.possibly_billed,
            micro_usd=(self.cost_micro_usd or 0) + self.possibly_billed_micro_usd,
        )


def sum_run_usage(parts: tuple[RunUsage, ...]) -> RunUsage:
    """Return the sum. One unknown price makes the sum unknown: it is never guessed."""
    costs = [part.cost_micro_usd for part in parts]
    return RunUsage(
        usage=sum_usage([part.usage for part in parts]),
        turns=sum(part.turns for part in parts),
        possibly_billed=sum(part.possibly_billed for part in parts),
        possibly_billed_micro_usd=sum(part.possibly_billed_micro_usd for part in parts),
        cost_micro_usd=None if None in costs else sum(cost or 0 for cost in costs),
    )


class WorstCaseRates(Value):
    """Maximum rates of a call's tokens, in micro-USD per token."""

    input: Decimal
    output: Decimal


class CallCostBound(Value):
    """Maximum cost of a call, known before the model is called."""

    input_tokens: int
    """Certain upper bound of the request's input."""
    rates: WorstCaseRates | None
    """None: the model has no known price, and a limit in dollars then admits no call."""

    def compute_worst_case(self, output: int) -> Amount:
        """Return the maximum cost with a reply of `output` tokens. An unpriced model costs no dollars."""
        tokens = self.input_tokens + output
        if self.rates is None:
            return Amount(tokens=tokens)
        cost = self.input_tokens * self.rates.input + output * self.rates.output
        return Amount(tokens=tokens, micro_usd=int(cost.to_integral_value(rounding=ROUND_CEILING)))

    def compute_max_reply_tokens(self, remaining: Limit, max_output: int, floor: int) -> int | None:
        """Return the maximum reply tokens so that the whole call stays within `remaining`, in each unit.

        Returns:
            None if not even `floor` tokens of reply fit.
        """
        room = max_output
        if remaining.tokens is not None:
            room = min(room, remaining.tokens - self.input_tokens)
        if remaining.micro_usd is not None:
            room = min(room, self._reply_for(remaining.micro_usd, max_output))
        return room if room >= floor else None

    def compute_shortfall(self, remaining: Limit, floor: int) -> Amount:
        """Return by how much the smallest useful call exceeds what is left."""
        return remaining.compute_excess(self.compute_worst_case(floor))

    def _reply_for(self, micro_usd: int, max_output: int) -> int:
        if self.rates is None:
            return 0
        left = micro_usd - self.input_tokens * self.rates.input
        if not self.rates.output:  # free models
            return max_output if left >= 0 else 0
        return max(0, int(left // self.rates.output))


WARN_SHARE = 0.80
"""Share of a budget above which people are warned (0 to 1)."""

_DELAYS = ((0.95, 1.5), (0.90, 0.75), (0.85, 0.3), (WARN_SHARE, 0.05))
"""Used share, and the delay of a call in seconds from that share on."""


def compute_delay_seconds(used: float) -> float:
    """Return the delay before a call in seconds. `used`: the highest share used at any level, from 0."""
    return next((seconds for share, seconds in _DELAYS if used >= share), 0.0)


class BudgetAccount(Value):
    """Budget of one level. Invariant, in each unit: spent + all reservations ≤ limit.

    Only `charge` and `settle` may break it, if more was spent than was reserved: that amount is gone, and the ledger
    never hides it.
    """

    limit: Limit
    spent: Amount = Amount()
    reserved: dict[str, Amount] = {}
    """Reservations by child, held until the child settles."""

    @property
    def total_reserved(self) -> Amount:
        """Total of all reservations."""
        held = self.reserved.values()
        return Amount(tokens=sum(one.tokens for one in held), micro_usd=sum(one.micro_usd for one in held))

    @property
    def unreserved(self) -> Limit:
        """What may still be reserved or spent."""
        return self.limit.remaining_after(self.spent + self.total_reserved)

    def reserve(self, child: str, amount: Amount) -> "BudgetAccount":
        """Reserve an amount for a child, on top of what it already holds.

        Raises:
            InsufficientBudgetError: More than is unreserved. Nothing changes then.
        """
        left = self.unreserved
        if not left.can_cover(amount):
            raise InsufficientBudgetError(child, amount, left)
        return self._holding(child, amount)

    def settle(self, child: str, spent: Amount) -> "BudgetAccount":
        """Replace a child's reservation by what it spent; the rest becomes unreserved.

        A child without a reservation (already settled, or unknown) changes nothing.
        """
        if child not in self.reserved:
            return self
        rest = {name: held for name, held in self.reserved.items() if name != child}
        return BudgetAccount(limit=self.limit, spent=self.spent + spent, reserved=rest)

    def transfer(self, parent: str, child: str, amount: Amount) -> "BudgetAccount":
        """Move part of one child's reservation to another: at most what it holds."""
        carved = amount.min_with(self.reserved.get(parent, Amount()))
        kept = {**self.reserved, parent: self.reserved.get(parent, Amount()).subtract_clamped(carved)}
        return BudgetAccount(limit=self.limit, spent=self.spent, reserved=kept)._holding(child, carved)

    def release_to_parent(self, child: str, parent: str, spent: Amount) -> tuple["BudgetAccount", Amount]:
        """Settle a child whose reservation came from another's, which gets the rest back.

        Returns:
            The account and that rest; zero if the parent has settled, so that the rest becomes unreserved.
        """
        rest = self.reserved.get(child, Amount()).subtract_clamped(spent)
        settled = self.settle(child, spent)
        if parent not in settled.reserved or child not in self.reserved:
            return settled, Amount()
        return settled._holding(parent, rest), rest

    def undo_settlement(self, child: str, spent: Amount) -> "BudgetAccount":
        """Undo a settlement because the child continues: what it spent is reserved for it again, and settled later."""
        rest = BudgetAccount(limit=self.limit, spent=self.spent.subtract_clamped(spent), reserved=self.reserved)
        return rest._holding(child, spent)

    def charge(self, amount: Amount) -> "BudgetAccount":
        """Book what this level itself spent (planning)."""
        return BudgetAccount(limit=self.limit, spent=self.spent + amount, reserved=self.reserved)

    def grant(self, amount: Amount) -> "BudgetAccount":
        """Raise the limit by a person's grant. An unlimited budget stays unlimited."""
        return BudgetAccount(limit=self.limit.increase_by(amount), spent=self.spent, reserved=self.reserved)

    def grant_to(self, child: str, amount: Amount) -> "BudgetAccount":
        """Grant budget to a child: limit and reservation grow together, even if more is booked than the limit."""
        return self.grant(amount)._holding(child, amount)

    def reserve_available(self, child: str, amount: Amount) -> tuple["BudgetAccount", Amount]:
        """Reserve up to `amount` more for a child: as much as is unreserved.

        An account without a limit gives nothing here: having no limit is no permission to spend without one.

        Returns:
            The account and the amount reserved.
        """
        drawn = amount.min_with(self.unreserved.amount)
        return (self if drawn.is_zero else self.reserve(child, drawn)), drawn

    def _holding(self, child: str, amount: Amount) -> "BudgetAccount":
        reserved = {**self.reserved, child: self.reserved.get(child, Amount()) + amount}
        return BudgetAccount(limit=self.limit, spent=self.spent, reserved=reserved)


class BudgetLevel(NamedTuple):
    """One budget level at the time of the check."""

    name: str
    """Name, as at the start of a sentence."""
    used: Amount
    limit: Limit
    times_raised: int = 0
    """How often people have raised it."""
    verb: str = "spent"


class BudgetWarning(Value):
    """A warning that most of a level's budget is used, with the numbers at that time."""

    text: str
    limit: Limit
    """The level's limit at that time: under another one, the text is out of date."""


def collect_budget_warnings(
    warned: Mapping[str, int], levels: Iterable[BudgetLevel]
) -> tuple[dict[str, int], dict[str, BudgetWarning]]:
    """Return the levels already warned about, with their number of raises at that time, and the new warnings by level.

    A level is warned about once, and once more after each raise by a person.
    """
    known, new = dict(warned), dict[str, BudgetWarning]()
    for level in levels:
        share = level.limit.compute_used_share(level.used)
        if share >= WARN_SHARE and known.get(level.name, -1) < level.times_raised:
            known[level.name] = level.times_raised
            used = format_used_amount(level.used, level.limit)
            text = f"{level.name} has {level.verb} {int(share * 100)} % of its budget: {used}."
            new[level.name] = BudgetWarning(text=text, limit=level.limit)
    return known, new
