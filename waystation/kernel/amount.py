"""Amounts of budget: tokens and money side by side, and limits in either or both."""

import re
from decimal import Decimal

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

UNLIMITED = "unlimited"
"""Written in the place of an amount, where there may be none."""
LIMIT_FORMAT_HINT = "tokens like 600k, 1.5M or 600_000, dollars like $2.00, or both like 600k+$2.00"
"""How people write amounts."""
_WHOLE = r"(?:[1-9]\d{0,2}(?:[,_]\d{3}){1,20}|\d{1,60})"
"""A comma where others write a point must not multiply an amount: $2,50 is no $250, and $0,500 no $500."""
_TOKENS = compile_bounded(rf"({_WHOLE})()|({_WHOLE}(?:\.\d{{1,60}})?)\s*([kKmM])", re.ASCII)
"""A fraction needs its unit: 2.00 is more likely dollars without their sign than two tokens."""
_NO_SEPARATORS = str.maketrans("", "", "_,")
_DOLLARS = compile_bounded(rf"\$\s*({_WHOLE}(?:\.\d{{1,6}})?)", re.ASCII)
_SHOWN = 100
"""Characters of what was written that an error repeats."""
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}


class Amount(Value):
    """What is spent, held, asked for or granted, in both units at once. Never negative."""

    tokens: int = 0
    """Fresh tokens."""
    micro_usd: int = 0
    """Millionths of a dollar."""

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(tokens=self.tokens + other.tokens, micro_usd=self.micro_usd + other.micro_usd)

    def subtract_clamped(self, other: "Amount") -> "Amount":
        """The rest after `other` is taken off, at least nothing of each unit."""
        return Amount(tokens=max(0, self.tokens - other.tokens), micro_usd=max(0, self.micro_usd - other.micro_usd))

    def min_with(self, most: "Amount") -> "Amount":
        """The smaller of both, in each unit."""
        return Amount(tokens=min(self.tokens, most.tokens), micro_usd=min(self.micro_usd, most.micro_usd))

    def max_with(self, least: "Amount") -> "Amount":
        """The larger of both, in each unit."""
        return Amount(tokens=max(self.tokens, least.tokens), micro_usd=max(self.micro_usd, least.micro_usd))

    @property
    def usd(self) -> float:
        """The money in dollars, for people and for signals; it is not part of the value."""
        return self.micro_usd / 1_000_000

    @property
    def is_zero(self) -> bool:
        """Whether it is zero in both units."""
        return self.tokens == 0 and self.micro_usd == 0


class Limit(Value):
    """What may be spent at most. None in a unit: there is no limit in that unit, which is only ever written out."""

    tokens: int | None = None
    micro_usd: int | None = None

    @property
    def usd(self) -> float | None:
        """The limit in dollars; None where there is none in that unit."""
        return None if self.micro_usd is None else self.micro_usd / 1_000_000

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit in either unit."""
        return self.tokens is None and self.micro_usd is None

    def remaining_after(self, used: Amount) -> "Limit":
        """What is left, at least nothing."""
        return Limit(
            tokens=None if self.tokens is None else max(0, self.tokens - used.tokens),
            micro_usd=None if self.micro_usd is None else max(0, self.micro_usd - used.micro_usd),
        )

    def increase_by(self, by: Amount) -> "Limit":
        """A higher limit; where there is none, none is made."""
        return Limit(
            tokens=None if self.tokens is None else self.tokens + by.tokens,
            micro_usd=None if self.micro_usd is None else self.micro_usd + by.micro_usd,
        )

    def limits_units_of(self, other: "Limit") -> bool:
        """Whether it limits each unit that the other one limits."""
        return (self.tokens is not None or other.tokens is None) and (
            self.micro_usd is not None or other.micro_usd is None
        )

    def can_cover(self, amount: Amount) -> bool:
        """Whether the amount fits, in each limited unit."""
        return self.compute_excess(amount).is_zero

    def restrict_to_limited_units(self, amount: Amount) -> Amount:
        """As much of the amount as is in units that are limited."""
        return Amount(
            tokens=0 if self.tokens is None else amount.tokens,
            micro_usd=0 if self.micro_usd is None else amount.micro_usd,
        )

    def compute_excess(self, amount: Amount) -> Amount:
        """By how much the amount passes the limit, in each limited unit."""
        return Amount(
            tokens=0 if self.tokens is None else max(0, amount.tokens - self.tokens),
            micro_usd=0 if self.micro_usd is None else max(0, amount.micro_usd - self.micro_usd),
        )

    def compute_used_share(self, used: Amount) -> float:
        """The used share of the unit that is used most, from 0; 1 and more when nothing is left."""
        pairs = ((self.tokens, used.tokens), (self.micro_usd, used.micro_usd))
        return max((spent / limit if limit else 1.0 for limit, spent in pairs if limit is not None), default=0.0)

    def divide_by(self, of: int) -> "Limit":
        """One of so many equal parts, rounded down."""
        return Limit(
            tokens=None if self.tokens is None else self.tokens // of,
            micro_usd=None if self.micro_usd is None else self.micro_usd // of,
        )

    def compute_percent(self, percent: int) -> "Limit":
        """So many percent of it, rounded down; no limit where there is none."""
        return Limit(
            tokens=None if self.tokens is None else self.tokens * percent // 100,
            micro_usd=None if self.micro_usd is None else self.micro_usd * percent // 100,
        )

    @property
    def amount(self) -> Amount:
        """The limit as an amount: nothing of a unit that has no limit."""
        return Amount(tokens=self.tokens or 0, micro_usd=self.micro_usd or 0)


LARGEST_AMOUNT = Amount(tokens=1_000_000_000, micro_usd=1_000_000 * 1_000_000)
"""That people write at once."""


def format_usd(micro_usd: int) -> str:
    """Millionths of a dollar as dollars: whole cents where that is exact, else up to six places."""
    text = f"{micro_usd / 1_000_000:.6f}".rstrip("0")
    whole, _, places = text.partition(".")
    return f"${int(whole):,}.{places:0<2}"


def format_usd_short(micro_usd: int) -> str:
    """The same at a glance, rounded to whole cents; less than one is shown as it is."""
    return f"${micro_usd / 1_000_000:,.2f}" if micro_usd >= 10_000 else format_usd(micro_usd)


def format_tokens_short(tokens: int) -> str:
    """Tokens to read at a glance: 950, 41k, 1.2M."""
    for factor, unit in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= factor:
            return f"{tokens / factor:.1f}".removesuffix(".0") + unit
    return str(tokens)


def format_amount(amount: Amount) -> str:
    """As people read it: `1,200 tokens`, `$0.25`, or both."""
    parts = [f"{amount.tokens:,} tokens"] if amount.tokens or not amount.micro_usd else []
    return " and ".join([*parts, *([format_usd(amount.micro_usd)] if amount.micro_usd else [])])


def format_limit(limit: Limit) -> str:
    """As people read it: `600,000 tokens`, `$2.00`, both, or that there is none."""
    parts = [f"{limit.tokens:,} tokens"] if limit.tokens is not None else []
    parts += [format_usd(limit.micro_usd)] if limit.micro_usd is not None else []
    return " and ".join(parts) or "no limit"


def format_used_amount(spent: Amount, limit: Limit) -> str:
    """As people read it: `1,200 of 100,000 tokens`, `$0.10 of $0.50`, or both."""
    parts: list[str] = []
    if limit.tokens is not None or limit.is_unlimited:
        parts.append(
            f"{spent.tokens:,} of {limit.tokens:,} tokens" if limit.tokens is not None else format_amount(spent)
        )
    if limit.micro_usd is not None:
        parts.append(f"{format_usd(spent.micro_usd)} of {format_usd(limit.micro_usd)}")
    return " and ".join(parts)


def format_comma_hint(text: str) -> str:
    """How commas are read, to follow on what is wrong with a text that has some; else empty."""
    return "; a comma only separates thousands, as in $1,250.50: write decimals with a point" if "," in text else ""


def parse_token_amount(text: str) -> int:
    """A whole number of tokens as people write it: 600k, 1.5M, 600_000. Raises ValueError."""
    found = _TOKENS.fullmatch(text.strip())
    if found is not None:
        number, factor = Decimal((found[1] or found[3]).translate(_NO_SEPARATORS)), _FACTORS[(found[4] or "").lower()]
        if (tokens := number * factor) == int(tokens):
            return int(tokens)
    raise ValueError(f"{text!r} is no amount of tokens: write it like 600k, 1.5M or 600_000{format_comma_hint(text)}")


def parse_limit(text: str) -> Limit:
    """A limit as people write it: `600k`, `$2.00`, `600k+$2.00`. Raises ValueError."""
    units: dict[str, int] = {}
    for part in text.split("+"):
        money = _DOLLARS.fullmatch(part.strip())
        if money is None and ("$" in part or not part.strip()):
            raise ValueError(f"{text!r} is no amount: write {LIMIT_FORMAT_HINT}{format_comma_hint(text)}")
        unit = "tokens" if money is None else "micro_usd"
        if unit in units:
            raise ValueError(f"{text!r} names {'tokens' if money is None else 'dollars'} twice")
        units[unit] = (
            parse_token_amount(part) if money is None else int(Decimal(money[1].translate(_NO_SEPARATORS)) * 1_000_000)
        )
    return Limit(**units)


def parse_bounded_limit(text: str, least: Amount, most: Amount = LARGEST_AMOUNT) -> Limit:
    """Tokens, dollars or both, at least and at most so many of each. Raises ValueError: what may be written."""
    try:
        limit = parse_limit(text)
    except ValueError as error:
        raise ValueError(
            f"{LIMIT_FORMAT_HINT}; {text[:_SHOWN]!r} is no such amount{format_comma_hint(text)}"
        ) from error
    ranges = ((limit.tokens, least.tokens, most.tokens), (limit.micro_usd, least.micro_usd, most.micro_usd))
    if not all(given is None or lowest <= given <= highest for given, lowest, highest in ranges):
        raise ValueError(
            f"{least.tokens:,} to {most.tokens:,} tokens, {format_usd(least.micro_usd)} to "
            f"{format_usd(most.micro_usd)}, "
            f"or both; not {text[:_SHOWN]!r}"
        )
    return limit
