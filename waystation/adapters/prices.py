"""A team's own prices, from a TOML file: they replace the built-in ones of the models that they name."""

import tomllib
from datetime import date
from decimal import Decimal
from pathlib import Path

from pydantic import ConfigDict, Field, ValidationError

from waystation.domain.errors import BadInput
from waystation.domain.models import PRICES, SEARCHES, Price, Rates, plain_name
from waystation.domain.value import Input, malformed

EXAMPLE = (
    'price = [{ model = "claude-opus-5-5", '
    "rates = { input = 3.6, output = 18, cache_write = 4.5, cache_read = 0.18 } }]"
)
"""On one line, as complaints are; docs/budgets.md has a longer one."""
LIKE = f"it should look like {EXAMPLE}, in USD per million tokens"


class _TypedRates(Rates):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _TypedLongPrompts(Input):
    over: int = Field(gt=0)
    rates: _TypedRates


class _TypedPrice(Input):
    model: str = Field(min_length=1)
    rates: _TypedRates
    long_prompts: _TypedLongPrompts | None = None
    searches: Decimal = Field(default=SEARCHES, ge=0)
    since: date = date.min
    source: str = "own price file"


class _PriceFile(Input):
    price: tuple[_TypedPrice, ...] = Field(min_length=1)


def load_prices(path: Path | None) -> tuple[Price, ...]:
    """The prices that hold: those of the file, and the built-in ones of models that it does not name.

    Raises BadInput naming the file, the entry and the field that cannot be used.
    """
    if path is None:
        return PRICES
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
    return (*(price for price in PRICES if price.model not in named), *plain)


def _place(place: tuple[int | str, ...]) -> str:
    """The field, and in which entry: the first is 1."""
    match place:
        case (_, int() as entry, *field):
            return f"{'.'.join(map(str, field)) or 'all'} of price {entry + 1}"
        case _:
            return ".".join(map(str, place))
