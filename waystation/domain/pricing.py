"""What model calls cost: a dated table of list prices, and the arithmetic on it."""

from datetime import date
from decimal import ROUND_CEILING, Decimal

from waystation.domain.budget import Usage
from waystation.domain.models import plain_name
from waystation.domain.value import Value

PRICE_SOURCE = "the provider's published list prices, read in October 2026"


class Rates(Value):
    """USD per million tokens, which is also millionths of a dollar per token."""

    input: Decimal
    output: Decimal
    cache_write: Decimal
    """For the life of five minutes, the only one that is asked for."""
    cache_read: Decimal

    @property
    def highest(self) -> Decimal:
        """The most that any token can cost."""
        return max(self.input, self.output, self.cache_write, self.cache_read)

    def cost(self, usage: Usage) -> Decimal:
        """Millionths of a dollar, exact."""
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
    since: date = date.min
    """First day on which it holds."""

    def rates_for(self, prompt: int) -> Rates:
        """The rates of a call with a prompt of so many tokens."""
        if self.long_prompts is not None and prompt > self.long_prompts.over:
            return self.long_prompts.rates
        return self.rates

    @property
    def highest(self) -> Decimal:
        """The most that any token of any call can cost."""
        if self.long_prompts is None:
            return self.rates.highest
        return max(self.rates.highest, self.long_prompts.rates.highest)


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


def price_of(model: str, at: date) -> Price | None:
    """The price of a model on a day; None where the table has none, and then nothing may guess one."""
    held = [price for price in PRICES if price.model == plain_name(model) and price.since <= at]
    return max(held, key=lambda price: price.since, default=None)


def cost_micro_usd(model: str, usage: Usage, at: date) -> int | None:
    """Millionths of a dollar for one call, rounded up; None where the model has no known price.

    Usage of several calls must be priced call by call: the length of each prompt decides its rates.
    """
    price = price_of(model, at)
    if price is None:
        return None
    return int(price.rates_for(usage.prompt).cost(usage).to_integral_value(rounding=ROUND_CEILING))


def highest_rate(model: str, at: date) -> Decimal | None:
    """The most that one token can cost, in USD per million tokens; None where the model has no known price.

    A cap in millionths of a dollar, divided by it and rounded down, is a number of tokens that cannot pass the cap.
    """
    price = price_of(model, at)
    return None if price is None else price.highest


def dollars(micro_usd: int) -> str:
    """Millionths of a dollar as dollars."""
    return f"${micro_usd / 1_000_000:.4f}"
