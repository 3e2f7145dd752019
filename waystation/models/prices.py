"""Loads the valid prices: the provider's list prices from the package genai-prices, and a team's own from a TOML file,
which replace those of the models that it names.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from waystation.kernel.errors import BadInput
from waystation.kernel.value import Value, extract_validation_faults
from waystation.models.profiles import SEARCHES, LongPromptTier, Price, TokenRates, strip_snapshot_date

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

EXAMPLE = (
    'price = [{ model = "claude-opus-5-5", '
    "rates = { input = 3.6, output = 18, cache_write = 4.5, cache_read = 0.18 } }]"
)
"""On one line, as error messages are; docs/how-to/see-what-tasks-cost.md has a longer one."""
LIKE = f"it should look like {EXAMPLE}, in USD per million tokens"


class _TypedRates(TokenRates):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("output")
    @classmethod
    def _not_forgotten(cls, output: Decimal, read: ValidationInfo) -> Decimal:
        """Check that output is not free if input is not. A local model may be completely free."""
        if not output and read.data.get("input"):
            raise ValueError("it must be more than 0 if the input rate is more than 0")
        return output


class _TypedLongPrompts(Value):
    over: int = Field(gt=0)
    rates: _TypedRates


class _TypedPrice(Value):
    model: str = Field(min_length=1)
    rates: _TypedRates
    long_prompts: _TypedLongPrompts | None = None
    searches: Decimal = Field(default=SEARCHES, ge=0)
    since: date = date.min
    source: str = "own price file"


class _PriceFile(Value):
    price: tuple[_TypedPrice, ...] = Field(min_length=1)


def load_prices(path: Path | None, *, published: bool = True) -> tuple[Price, ...]:
    """Load the prices of the file and, if `published`, list prices of the models that it does not name.

    Raises:
        BadInput: the file cannot be used; the message names the file, the entry and the field.
    """
    listed = load_published_prices() if published else ()
    if path is None:
        return listed
    try:
        own = _PriceFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).price
    except OSError as error:
        raise BadInput(f"the price file {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"the price file {path} is not TOML: {error}; {LIKE}") from error
    except ValidationError as error:
        faults = "; ".join(f"{_place(fault.place)}: {fault.words}" for fault in extract_validation_faults(error))
        raise BadInput(f"the price file {path} cannot be used: {faults}; {LIKE}") from error
    entries = [(strip_snapshot_date(price.model), price.since) for price in own]
    if twice := sorted({model for model, since in entries if entries.count((model, since)) > 1}):
        raise BadInput(f"the price file {path} has two prices of {', '.join(twice)} for the same day: remove one")
    named = {strip_snapshot_date(price.model) for price in own}
    plain = tuple(
        Price.model_validate({**price.model_dump(), "model": strip_snapshot_date(price.model)}) for price in own
    )
    return (*(price for price in listed if price.model not in named), *plain)


def _place(place: tuple[int | str, ...]) -> str:
    """Return the field and its entry, counted from 1."""
    match place:
        case (_, int() as entry, *field):
            return f"{'.'.join(map(str, field))} of price {entry + 1}" if field else f"price {entry + 1}"
        case _:
            return ".".join(map(str, place))


_PROVIDER = "anthropic"
_KINDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_write": "cache_write_mtok",
    "cache_read": "cache_read_mtok",
}
"""Names in genai-prices of our rates, in USD per million tokens as well."""


@cache
def load_published_prices() -> tuple[Price, ...]:
    """Return the list prices of the provider's own models, by each of their names."""
    # Its table is a module that takes a second to import, so only users of a provider load it.
    from genai_prices.data import providers  # noqa: PLC0415

    models = next(provider.models for provider in providers if provider.id == _PROVIDER)
    prices = (
        price
        for model in models
        for since, held in _dated(model)
        for name in _names(model)
        if (price := _price(name, since, held)) is not None
    )
    return tuple({(price.model, price.since): price for price in prices}.values())


def _names(model: "ModelInfo") -> Iterator[str]:
    """Yield names without snapshot dates, as `strip_snapshot_date` returns them."""
    from genai_prices.types import ClauseEquals, ClauseOr  # noqa: PLC0415

    yield strip_snapshot_date(model.id.removesuffix("-latest"))
    for clause in model.match.or_ if isinstance(model.match, ClauseOr) else [model.match]:
        if isinstance(clause, ClauseEquals):
            yield strip_snapshot_date(clause.equals)


def _dated(model: "ModelInfo") -> "Iterator[tuple[date, ModelPrice]]":
    """Yield the prices of a model, each with its first day. A price that only applies at some hours is left out."""
    from genai_prices.types import ModelPrice, StartDateConstraint  # noqa: PLC0415

    if isinstance(model.prices, ModelPrice):
        yield date.min, model.prices
        return
    for dated in model.prices:
        if dated.constraint is None:
            yield date.min, dated.prices
        elif isinstance(dated.constraint, StartDateConstraint):
            yield dated.constraint.start_date, dated.prices


def _price(model: str, since: date, held: "ModelPrice") -> Price | None:
    """Return the price; None if there is no price for input or for output.

    If there are several tiers of prompt length, the shortest one counts, with the highest rates.
    """
    of_kinds = {kind: getattr(held, name) for kind, name in _KINDS.items()}
    if of_kinds["input"] is None or of_kinds["output"] is None:
        return None
    starts = [tier.start for price in of_kinds.values() for tier in getattr(price, "tiers", ())]
    longer = LongPromptTier(over=min(starts), rates=_rates(of_kinds, _dearest)) if starts else None
    searches = SEARCHES if held.web_searches_kcount is None else _base(held.web_searches_kcount)
    rates = _rates(of_kinds, _base)
    return Price(model=model, rates=rates, long_prompts=longer, searches=searches, since=since)


def _rates(
    of_kinds: "Mapping[str, Decimal | TieredPrices | None]", at: "Callable[[Decimal | TieredPrices], Decimal]"
) -> TokenRates:
    """Build the rates. A missing cache price is that of other input."""
    known = {kind: at(price) for kind, price in of_kinds.items() if price is not None}
    return TokenRates.model_validate({"cache_write": known["input"], "cache_read": known["input"], **known})


def _base(price: "Decimal | TieredPrices") -> Decimal:
    return price if isinstance(price, Decimal) else price.base


def _dearest(price: "Decimal | TieredPrices") -> Decimal:
    return price if isinstance(price, Decimal) else max(price.base, *(tier.price for tier in price.tiers))
