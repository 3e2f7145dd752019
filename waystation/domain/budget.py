"""What was used, and what happens when a budget is spent."""

from enum import StrEnum

from waystation.domain.amount import Amount
from waystation.domain.value import Value


class Usage(Value):
    """Tokens of model calls by kind, and searches of the web, as the provider reported them."""

    input: int = 0
    """Uncached input."""
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    searches: int = 0
    """Of the web, by the provider. They cost money, and no tokens beside those of the call that makes them."""

    @property
    def fresh(self) -> int:
        """What counts against a token budget: cache reads are shown and priced, but do not count."""
        return self.input + self.cache_write + self.output

    @property
    def prompt(self) -> int:
        """The whole request's length, cached or not."""
        return self.input + self.cache_write + self.cache_read

    @property
    def cached_share(self) -> float:
        """What of the prompt was read from the provider's cache, from 0 to 1; 0 where there was none."""
        return self.cache_read / self.prompt if self.prompt else 0.0

    @property
    def total(self) -> int:
        """All four kinds of tokens together."""
        return self.prompt + self.output

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            cache_write=self.cache_write + other.cache_write,
            cache_read=self.cache_read + other.cache_read,
            output=self.output + other.output,
            searches=self.searches + other.searches,
        )


class Mode(StrEnum):
    """What happens when an agent's budget, and what its parents have left, is spent."""

    HARD = "hard"
    """An agent that spent its share stops and delivers what there is, marked partial."""
    SOFT = "soft"
    """It slows down and goes on with what its task and its session have left; then it delivers what there is."""
    APPROVAL = "approval"
    """As soft; when that is spent, too, it pauses, holds no worker slot, and asks a person."""


class RunTotals(Value):
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


def summed(parts: tuple[RunTotals, ...]) -> RunTotals:
    """Totals added up. One unknown price makes the sum unknown: never a guess."""
    costs = [part.cost_micro_usd for part in parts]
    return RunTotals(
        usage=sum((part.usage for part in parts), Usage()),
        turns=sum(part.turns for part in parts),
        possibly_billed=sum(part.possibly_billed for part in parts),
        possibly_billed_micro_usd=sum(part.possibly_billed_micro_usd for part in parts),
        cost_micro_usd=None if None in costs else sum(cost or 0 for cost in costs),
    )
