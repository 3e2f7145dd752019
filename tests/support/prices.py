"""Prices for tests: as published in October 2026, so that expected costs do not change."""

import json
from collections.abc import Iterable
from datetime import date
from decimal import Decimal

from waystation.models.profiles import LongPromptTier, Price, TokenRates


def _rates(given: str, output: str, cache_write: str, cache_read: str) -> TokenRates:
    return TokenRates(
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
        long_prompts=LongPromptTier(over=100_000, rates=_rates("0.50", "2.50", "0.625", "0.05")),
    ),
    Price(model="claude-opus-5", rates=_OLDER_OPUS),
    Price(model="claude-opus-4-8", rates=_OLDER_OPUS),
    Price(model="claude-opus-4-7", rates=_OLDER_OPUS),
    Price(model="claude-opus-4-6", rates=_OLDER_OPUS),
    Price(model="claude-opus-4-5", rates=_OLDER_OPUS),
    Price(model="claude-haiku-4-5", rates=_rates("1", "5", "1.25", "0.10")),
)


def render_price_file(prices: Iterable[Price]) -> str:
    """Render the prices as a file for `WAYSTATION_PRICES`."""
    return "\n".join(_entry(price) for price in prices)


def _entry(price: Price) -> str:
    lines = ["[[price]]", f"model = {json.dumps(price.model)}", f"source = {json.dumps(price.source)}"]
    if price.since != date.min:
        lines.append(f"since = {price.since.isoformat()}")
    lines += [f"rates = {_rates_text(price.rates)}", f"searches = {price.searches:f}"]
    if price.long_prompts is not None:
        lines.append(
            f"long_prompts = {{ over = {price.long_prompts.over}, rates = {_rates_text(price.long_prompts.rates)} }}"
        )
    return "\n".join(lines) + "\n"


def _rates_text(rates: TokenRates) -> str:
    return "{ " + ", ".join(f"{kind} = {amount:f}" for kind, amount in rates) + " }"
