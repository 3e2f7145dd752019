"""What model calls cost: a dated table of list prices, and the arithmetic on it."""

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import ROUND_CEILING, Decimal

from pydantic import Field

from waystation.domain.allowance import WorstRates
from waystation.domain.budget import Usage
from waystation.domain.models import plain_name
from waystation.domain.value import Value

PRICE_SOURCE = "the provider's published list prices, read in October 2026"
SEARCHES = Decimal(10)
"""USD per thousand searches of the web, whatever the model that makes them."""


class Rates(Value):
    """USD per million tokens, which is also millionths of a dollar per token."""

    input: Decimal = Field(ge=0)
    output: Decimal = Field(gt=0)
    cache_write: Decimal = Field(ge=0)
    """For the life of five minutes, the only one that is asked for."""
    cache_read: Decimal = Field(ge=0)

    @property
    def worst(self) -> WorstRates:
        """The most that a token of the request, and one of the reply, can cost."""
        return WorstRates(input=max(self.input, self.cache_write, self.cache_read), output=self.output)

    def cost(self, usage: Usage) -> Decimal:
        """Millionths of a dollar for the tokens, exact."""
        return (
            usage.input * self.input
            + usage.output * self.output
            + usage.cache_write * self.cache_write
            + usage.cache_read * self.cache_read
        )


class LongPrompts(Value):
    """Other rates for the whole of a call whose prompt is long."""

    over: int
    """Tokens of the prompt, cached or not, above which these rates hold."""
    rates: Rates


class Price(Value):
    """A model's list price from a day on."""

    model: str
    rates: Rates
    long_prompts: LongPrompts | None = None
    searches: Decimal = Field(default=SEARCHES, ge=0)
    """USD per thousand searches of the web that the provider makes in calls of the model."""
    since: date = date.min
    """First day on which it holds."""
    source: str = PRICE_SOURCE

    def cost(self, usage: Usage) -> Decimal:
        """Millionths of a dollar for one call, exact."""
        return self.rates_for(usage.prompt).cost(usage) + self.cost_of_searches(usage.searches)

    def cost_of_searches(self, count: int) -> Decimal:
        """Millionths of a dollar, exact."""
        return count * self.searches * 1_000

    def rates_for(self, prompt: int) -> Rates:
        """The rates of a call with a prompt of so many tokens."""
        if self.long_prompts is not None and prompt > self.long_prompts.over:
            return self.long_prompts.rates
        return self.rates

    def worst_for(self, input_bound: int) -> WorstRates:
        """The most that tokens of a call can cost whose prompt has at most `input_bound` tokens."""
        worst, longer = self.rates.worst, self.rates_for(input_bound).worst
        return WorstRates(input=max(worst.input, longer.input), output=max(worst.output, longer.output))


def _rates(given: str, output: str, cache_write: str, cache_read: str) -> Rates:
    return Rates(
        input=Decimal(given), output=Decimal(output), cache_write=Decimal(cache_write), cache_read=Decimal(cache_read)
    )


_OLDER_OPUS = _rates("5", "25", "6.25", "0.50")

PRICES: tuple[Price, ...] = (
    Price(model="claude-opus-5-5", rates=_rates("4", "20", "5", "0.20")),
    Price(model="claude-sonnet-5-5", rates=_rates("2", "10", "2.50", "0.20")),
    Price(model="claude-sonnet-5-5", rates=_rates("2", "10", "2.50", "0.10"), since=date(2026, 10, 7)),
    Price(
        model="claude-haiku-5-5",
        rates=_rates("0.10", "0.50", "0.125", "0.01"),
        long_prompts=LongPrompts(over=100_000, rates=_rates("0.50", "2.50", "0.625", "0.05")),
    ),
    Price(model="claude-opus-5", rates=_OLDER_OPUS),
    Price(model="claude-opus-4-8", rates=_OLDER_OPUS),
    Price(model="claude-opus-4-7", rates=_OLDER_OPUS),
    Price(model="claude-opus-4-6", rates=_OLDER_OPUS),
    Price(model="claude-opus-4-5", rates=_OLDER_OPUS),
    Price(model="claude-haiku-4-5", rates=_rates("1", "5", "1.25", "0.10")),
)


def prices_of(models: Iterable[str], prices: Sequence[Price]) -> tuple[Price, ...]:
    """All prices that the models have, had or will have: what a task takes along."""
    names = {plain_name(model) for model in models}
    return tuple(price for price in prices if price.model in names)


def price_of(model: str, at: date, prices: Sequence[Price]) -> Price | None:
    """The price of a model on a day; None where there is none, and then nothing may guess one."""
    held = [price for price in prices if price.model == plain_name(model) and price.since <= at]
    return max(held, key=lambda price: price.since, default=None)


def cost_micro_usd(model: str, usage: Usage, at: date, prices: Sequence[Price]) -> int | None:
    """Millionths of a dollar for one call, rounded up; None where the model has no known price.

    Usage of several calls must be priced call by call: the length of each prompt decides its rates.
    """
    price = price_of(model, at, prices)
    if price is None:
        return None
    return int(price.cost(usage).to_integral_value(rounding=ROUND_CEILING))


def worst_rates(model: str, input_bound: int, at: date, prices: Sequence[Price]) -> WorstRates | None:
    """The most that the tokens of one call can cost; None where the model has no known price."""
    price = price_of(model, at, prices)
    return None if price is None else price.worst_for(input_bound)
