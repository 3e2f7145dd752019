"""The prices that hold: the provider's list prices as the package genai-prices has them, and a team's own, from a TOML
file, which replace those of the models that it names.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from waystation.domain.errors import BadInput
from waystation.domain.models import SEARCHES, LongPrompts, Price, Rates, plain_name
from waystation.domain.value import Value, malformed

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

EXAMPLE = (
    'price = [{ model = "claude-opus-5-5", '
    "rates = { input = 3.6, output = 18, cache_write = 4.5, cache_read = 0.18 } }]"
)
"""On one line, as complaints are; docs/budgets.md has a longer one."""
LIKE = f"it should look like {EXAMPLE}, in USD per million tokens"


class _TypedRates(Rates):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("output")
    @classmethod
    def _not_forgotten(cls, output: Decimal, read: ValidationInfo) -> Decimal:
        """A model on one's own machine may cost nothing at all; one whose input costs something has dear output."""
        if not output and read.data.get("input"):
            raise ValueError("it should be more than 0 where input is")
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
    """The prices that hold: those of the file, and the published ones of models that it does not name, where any of
    these are wanted.

    Raises BadInput naming the file, the entry and the field that cannot be used.
    """
    listed = published_prices() if published else ()
    if path is None:
        return listed
    try:
        own = _PriceFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).price
    except OSError as error:
        raise BadInput(f"the price file {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"the price file {path} is not TOML: {error}; {LIKE}") from error
    except ValidationError as error:
        faults = "; ".join(f"{_place(fault.place)}: {fault.words}" for fault in malformed(error))
        raise BadInput(f"the price file {path} cannot be used: {faults}; {LIKE}") from error
    entries = [(plain_name(price.model), price.since) for price in own]
    if twice := sorted({model for model, since in entries if entries.count((model, since)) > 1}):
        raise BadInput(f"the price file {path} has two prices of {', '.join(twice)} for the same day: leave one")
    named = {plain_name(price.model) for price in own}
    plain = tuple(Price.model_validate({**price.model_dump(), "model": plain_name(price.model)}) for price in own)
    return (*(price for price in listed if price.model not in named), *plain)


def _place(place: tuple[int | str, ...]) -> str:
    """The field, and in which entry: the first is 1."""
    match place:
        case (_, int() as entry, *field):
            return f"{'.'.join(map(str, field)) or 'all'} of price {entry + 1}"
        case _:
            return ".".join(map(str, place))


_PROVIDER = "anthropic"
_KINDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_write": "cache_write_mtok",
    "cache_read": "cache_read_mtok",
}
"""What genai-prices calls our rates, USD per million tokens as well."""


@cache
def published_prices() -> tuple[Price, ...]:
    """List prices of the provider's own models, by each name that they have."""
    # Its table is a module that takes a second to import: only who pays a provider has to wait for it.
    from genai_prices.data import providers  # noqa: PLC0415

    models = next(provider.models for provider in providers if provider.id == _PROVIDER)
    prices = (price.replace(model=name) for model in models for price in _prices(model) for name in _names(model))
    return tuple({(price.model, price.since): price for price in prices}.values())


def _names(model: "ModelInfo") -> Iterator[str]:
    """Without the dates of snapshots, as `plain_name` gives them."""
    from genai_prices.types import ClauseEquals, ClauseOr  # noqa: PLC0415

    yield plain_name(model.id.removesuffix("-latest"))
    for clause in model.match.or_ if isinstance(model.match, ClauseOr) else [model.match]:
        if isinstance(clause, ClauseEquals):
            yield plain_name(clause.equals)


def _prices(model: "ModelInfo") -> Iterator[Price]:
    """One for each day from which others hold."""
    from genai_prices.types import ModelPrice, StartDateConstraint  # noqa: PLC0415

    if isinstance(model.prices, ModelPrice):
        yield from _price(model.prices)
        return
    for dated in model.prices:
        since = dated.constraint
        if since is None or isinstance(since, StartDateConstraint):
            yield from _price(dated.prices, since.start_date if since is not None else date.min)


def _price(prices: "ModelPrice", since: date = date.min) -> Iterator[Price]:
    """None where it does not say what the model reads and writes for. Of several lengths from which prompts are dearer,
    the shortest counts, with the highest rates.
    """
    of_kinds = {kind: getattr(prices, name) for kind, name in _KINDS.items()}
    if of_kinds["input"] is None or of_kinds["output"] is None:
        return
    tiers = [tier for price in of_kinds.values() for tier in getattr(price, "tiers", ())]
    searches = prices.web_searches_kcount
    yield Price(
        model="",
        rates=_rates(of_kinds, _base),
        long_prompts=LongPrompts(over=min(tier.start for tier in tiers), rates=_rates(of_kinds, _dearest))
        if tiers
        else None,
        searches=SEARCHES if searches is None else _base(searches),
        since=since,
    )


def _rates(
    of_kinds: "Mapping[str, Decimal | TieredPrices | None]", at: "Callable[[Decimal | TieredPrices], Decimal]"
) -> Rates:
    """Where it is not said what the cache costs, that is as dear as other input."""
    known = {kind: at(price) for kind, price in of_kinds.items() if price is not None}
    return Rates.model_validate({"cache_write": known["input"], "cache_read": known["input"], **known})


def _base(price: "Decimal | TieredPrices") -> Decimal:
    return price if isinstance(price, Decimal) else price.base


def _dearest(price: "Decimal | TieredPrices") -> Decimal:
    return price if isinstance(price, Decimal) else max(price.base, *(tier.price for tier in price.tiers))
