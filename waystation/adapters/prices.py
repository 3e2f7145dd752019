"""A team's own prices, from a TOML file: they replace the built-in ones of the models that they name.

Prices as LiteLLM publishes them, and as they are written into such a file.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import ROUND_CEILING, Decimal
from pathlib import Path

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, ValidationInfo, field_validator

from waystation.domain.errors import BadInput
from waystation.domain.models import PRICES, SEARCHES, LongPrompts, Price, Rates, plain_name
from waystation.domain.value import Value, malformed

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


_COSTS = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cache_write": "cache_creation_input_token_cost",
    "cache_read": "cache_read_input_token_cost",
}
"""Names of our rates in LiteLLM's table, there in USD per token."""
_SEARCH_COSTS = "search_context_cost_per_query"
_PUBLISHED: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
_MILLION, _THOUSAND = 1_000_000, 1_000
_LEAST_RATE = Decimal("0.000001")


def litellm_prices(path: Path, models: Iterable[str], source: str) -> tuple[Price, ...]:
    """Prices of these models in LiteLLM's table; a model that has none there, for input and for output, is left out.

    Where the table does not say what the cache costs, that is as dear as other input; where it says so for short
    prompts alone, it is dearer for long ones as input is. Of several lengths from which prompts are dearer, the
    shortest counts, with the highest rates. Raises BadInput.
    """
    try:
        table = _PUBLISHED.validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"the price file {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise BadInput(f"the price file {path} is not JSON with a table of models, as LiteLLM publishes it") from error
    plain = {plain_name(name): entry for name, entry in table.items()} | table
    found = ((model, plain.get(model, plain.get(plain_name(model)))) for model in dict.fromkeys(models))
    prices = (_litellm_price(model, entry, source) for model, entry in found if isinstance(entry, dict))
    return tuple({price.model: price for price in prices if price is not None}.values())


def _litellm_price(model: str, entry: Mapping[str, JsonValue], source: str) -> Price | None:
    base = _known(entry)
    if "input" not in base or not base.get("output"):
        return None
    searches = entry.get(_SEARCH_COSTS)
    costs = searches.values() if isinstance(searches, dict) else ()
    return Price(
        model=plain_name(model),
        rates=_completed(base),
        long_prompts=_long_prompts(entry, base),
        searches=max((rate for cost in costs if (rate := _times(cost, _THOUSAND))), default=SEARCHES),
        source=source,
    )


def _known(entry: Mapping[str, JsonValue], above: str = "") -> dict[str, Decimal]:
    rates = {kind: _times(entry.get(f"{name}{above}"), _MILLION) for kind, name in _COSTS.items()}
    return {kind: rate for kind, rate in rates.items() if rate is not None}


def _completed(rates: Mapping[str, Decimal]) -> Rates:
    return Rates.model_validate({"cache_write": rates["input"], "cache_read": rates["input"], **rates})


def _long_prompts(entry: Mapping[str, JsonValue], base: Mapping[str, Decimal]) -> LongPrompts | None:
    lengths = [name.partition("_above_")[2].removesuffix("k_tokens") for name in entry if name.endswith("k_tokens")]
    thousands = {
        length for length in lengths if length.isascii() and length.isdecimal() and 0 < int(length[:6]) < 100_000
    }
    longer = [_completed(_dearer(base, _known(entry, f"_above_{length}k_tokens"))) for length in thousands]
    if not longer:
        return None
    dearest = {kind: max(getattr(rates, kind) for rates in longer) for kind in _COSTS}
    return LongPrompts(over=min(map(int, thousands)) * _THOUSAND, rates=Rates.model_validate(dearest))


def _dearer(base: Mapping[str, Decimal], known: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Rates of long prompts: what is not known of the cache rises as input does, rounded up to a millionth."""
    rates = {**base, **known}
    for kind in ("cache_write", "cache_read"):
        if kind in base and kind not in known and base["input"]:
            risen = base[kind] * rates["input"] / base["input"]
            rates[kind] = risen.quantize(_LEAST_RATE, ROUND_CEILING).normalize()
    return rates


def _times(cost: JsonValue, count: int) -> Decimal | None:
    """Exact, as the number is written; None where it is no price."""
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    price = Decimal(str(cost))
    return (price * count).normalize() if price.is_finite() and price >= 0 else None


def price_file(prices: Iterable[Price]) -> str:
    """The prices as a file that `WAYSTATION_PRICES` may name."""
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


def _rates_text(rates: Rates) -> str:
    return "{ " + ", ".join(f"{kind} = {getattr(rates, kind):f}" for kind in _COSTS) + " }"
