"""Budget amounts in tokens and micro-USD, limits in either or both units, and how people write and read them."""

import re
from decimal import Decimal

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

UNLIMITED = "unlimited"
"""Written instead of an amount if there is no limit."""
LIMIT_FORMAT_HINT = "tokens like 600k, 1.5M or 600_000, dollars like $2.00, or both like 600k+$2.00"
"""How people write amounts; repeated in error messages."""
_WHOLE = r"(?:[1-9]\d{0,2}(?:[,_]\d{3}){1,20}|\d{1,60})"
"""Whole number with optional thousands separators. A decimal comma must not multiply an amount: `$2,50` is not $250."""
_TOKENS = compile_bounded(rf"({_WHOLE})()|({_WHOLE}(?:\.\d{{1,60}})?)\s*([kKmM])", re.ASCII)
"""A fraction needs a unit: 2.00 is more likely dollars without the sign than two tokens."""
_NO_SEPARATORS = str.maketrans("", "", "_,")
_DOLLARS = compile_bounded(rf"\$\s*({_WHOLE}(?:\.\d{{1,6}})?)", re.ASCII)
_MAX_REPEATED_CHARACTERS = 100
"""Maximum number of characters of the input that an error message repeats."""
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}


class Amount(Value):
    """An amount of budget in both units, such as what was spent, reserved, requested or granted. Never negative."""

    tokens: int = 0
    """Fresh tokens."""
    micro_usd: int = 0
    """Millionths of a dollar."""

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(tokens=self.tokens + other.tokens, micro_usd=self.micro_usd + other.micro_usd)

    def subtract_clamped(self, other: "Amount") -> "Amount":
        """Return the remainder after subtracting `other`, at least zero in each unit."""
        return Amount(tokens=max(0, self.tokens - other.tokens), micro_usd=max(0, self.micro_usd - other.micro_usd))

    def min_with(self, maximum: "Amount") -> "Amount":
        """Return the smaller of both amounts, in each unit."""
        return Amount(tokens=min(self.tokens, maximum.tokens), micro_usd=min(self.micro_usd, maximum.micro_usd))

    def max_with(self, minimum: "Amount") -> "Amount":
        """Return the larger of both amounts, in each unit."""
        return Amount(tokens=max(self.tokens, minimum.tokens), micro_usd=max(self.micro_usd, minimum.micro_usd))

    @property
    def usd(self) -> float:
        """The money in dollars, for people and for telemetry; it is not part of the value."""
        return self.micro_usd / 1_000_000

    @property
    def is_zero(self) -> bool:
        """Whether the amount is zero in both units."""
        return self.tokens == 0 and self.micro_usd == 0


class Limit(Value):
    """The maximum that may be spent. A unit that is None has no limit."""

    tokens: int | None = None
    micro_usd: int | None = None

    @property
    def usd(self) -> float | None:
        """The limit in dollars; None if there is no limit in that unit."""
        return None if self.micro_usd is None else self.micro_usd / 1_000_000

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit in either unit."""
        return self.tokens is None and self.micro_usd is None

    def remaining_after(self, used: Amount) -> "Limit":
        """Return what is left after `used`, at least zero in each limited unit."""
        return Limit(
            tokens=None if self.tokens is None else max(0, self.tokens - used.tokens),
            micro_usd=None if self.micro_usd is None else max(0, self.micro_usd - used.micro_usd),
        )

    def increase_by(self, by: Amount) -> "Limit":
        """Return the limit raised by an amount. A unit without a limit stays unlimited."""
        return Limit(
            tokens=None if self.tokens is None else self.tokens + by.tokens,
            micro_usd=None if self.micro_usd is None else self.micro_usd + by.micro_usd,
        )

    def limits_units_of(self, other: "Limit") -> bool:
        """Whether this limits each unit that `other` limits."""
        return (self.tokens is not None or other.tokens is None) and (
            self.micro_usd is not None or other.micro_usd is None
        )

    def can_cover(self, amount: Amount) -> bool:
        """Whether the amount fits in each limited unit."""
        return self.compute_excess(amount).is_zero

    def restrict_to_limited_units(self, amount: Amount) -> Amount:
        """Return the amount with zero in each unit that has no limit."""
        return Amount(
            tokens=0 if self.tokens is None else amount.tokens,
            micro_usd=0 if self.micro_usd is None else amount.micro_usd,
        )

    def compute_excess(self, amount: Amount) -> Amount:
        """Return by how much the amount exceeds the limit, in each limited unit."""
        return Amount(
            tokens=0 if self.tokens is None else max(0, amount.tokens - self.tokens),
            micro_usd=0 if self.micro_usd is None else max(0, amount.micro_usd - self.micro_usd),
        )

    def compute_used_share(self, used: Amount) -> float:
        """Return the used share of the unit that is used most: 0 if nothing is used, 1 or more if nothing is left."""
        pairs = ((self.tokens, used.tokens), (self.micro_usd, used.micro_usd))
        return max((spent / limit if limit else 1.0 for limit, spent in pairs if limit is not None), default=0.0)

    def divide_by(self, of: int) -> "Limit":
        """Return one of `of` equal parts, rounded down."""
        return Limit(
            tokens=None if self.tokens is None else self.tokens // of,
            micro_usd=None if self.micro_usd is None else self.micro_usd // of,
        )

    def compute_percent(self, percent: int) -> "Limit":
        """Return `percent` percent of the limit, rounded down. A unit without a limit stays unlimited."""
        return Limit(
            tokens=None if self.tokens is None else self.tokens * percent // 100,
            micro_usd=None if self.micro_usd is None else self.micro_usd * percent // 100,
        )

    @property
    def amount(self) -> Amount:
        """The limit as an amount: zero in a unit that has no limit."""
        return Amount(tokens=self.tokens or 0, micro_usd=self.micro_usd or 0)


MAX_AMOUNT = Amount(tokens=1_000_000_000, micro_usd=1_000_000 * 1_000_000)
"""Largest amount that people may write in one place."""


def format_usd(micro_usd: int) -> str:
    """Format micro-USD as dollars: whole cents if that is exact, else up to six decimal places."""
    text = f"{micro_usd / 1_000_000:.6f}".rstrip("0")
    whole, _, places = text.partition(".")
    return f"${int(whole):,}.{places:0<2}"


def format_usd_short(micro_usd: int) -> str:
    """Format micro-USD as dollars rounded to whole cents; less than one cent is shown exactly."""
    return f"${micro_usd / 1_000_000:,.2f}" if micro_usd >= 10_000 else format_usd(micro_usd)


def format_tokens_short(tokens: int) -> str:
    """Format tokens for reading at a glance: 950, 41k, 1.2M."""
    for factor, unit in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= factor:
            return f"{tokens / factor:.1f}".removesuffix(".0") + unit
    return str(tokens)


def format_amount(amount: Amount) -> str:
    """Format an amount for people: `1,200 tokens`, `$0.25`, or both."""
    parts = [f"{amount.tokens:,} tokens"] if amount.tokens or not amount.micro_usd else []
    return " and ".join([*parts, *([format_usd(amount.micro_usd)] if amount.micro_usd else [])])


def format_limit(limit: Limit) -> str:
    """Format a limit for people: `600,000 tokens`, `$2.00`, both, or `no limit`."""
    parts = [f"{limit.tokens:,} tokens"] if limit.tokens is not None else []
    parts += [format_usd(limit.micro_usd)] if limit.micro_usd is not None else []
    return " and ".join(parts) or "no limit"


def format_used_amount(spent: Amount, limit: Limit) -> str:
    """Format what was used of a limit for people: `1,200 of 100,000 tokens`, `$0.10 of $0.50`, or both."""
    parts: list[str] = []
    if limit.tokens is not None or limit.is_unlimited:
        parts.append(
            f"{spent.tokens:,} of {limit.tokens:,} tokens" if limit.tokens is not None else format_amount(spent)
        )
    if limit.micro_usd is not None:
        parts.append(f"{format_usd(spent.micro_usd)} of {format_usd(limit.micro_usd)}")
    return " and ".join(parts)


_LONG_FRACTION = compile_bounded(r"\$[^+.]{0,100}\.\d{7}", re.ASCII)


def format_number_hint(text: str) -> str:
    """Return a hint on commas and on decimals of dollars, to append to an error about `text`; empty if it has none."""
    hint = "; a comma only separates thousands, as in $1,250.50: write decimals with a point" if "," in text else ""
    return f"{hint}; dollars have at most six decimals" if _LONG_FRACTION.search(text) else hint


def parse_token_amount(text: str) -> int:
    """Parse a whole number of tokens as people write it: 600k, 1.5M, 600_000.

    Raises:
        ValueError: `text` is not a whole number of tokens.
    """
    found = _TOKENS.fullmatch(text.strip())
    if found is not None:
        number, factor = Decimal((found[1] or found[3]).translate(_NO_SEPARATORS)), _FACTORS[(found[4] or "").lower()]
        if (tokens := number * factor) == int(tokens):
            return int(tokens)
    raise ValueError(
        f"{text!r} is not an amount of tokens: write it like 600k, 1.5M or 600_000{format_number_hint(text)}"
    )


def parse_limit(text: str) -> Limit:
    """Parse a limit as people write it: `600k`, `$2.00`, `600k+$2.00`.

    Raises:
        ValueError: `text` is not an amount, or names a unit twice.
    """
    units: dict[str, int] = {}
    for part in text.split("+"):
        money = _DOLLARS.fullmatch(part.strip())
        if money is None and ("$" in part or not part.strip()):
            raise ValueError(f"{text!r} is not an amount: write {LIMIT_FORMAT_HINT}{format_number_hint(text)}")
        unit = "tokens" if money is None else "micro_usd"
        if unit in units:
            raise ValueError(f"{text!r} names {'tokens' if money is None else 'dollars'} twice")
        units[unit] = (
            parse_token_amount(part) if money is None else int(Decimal(money[1].translate(_NO_SEPARATORS)) * 1_000_000)
        )
    return Limit(**units)


TOO_SMALL_GRANT = "too few to be worth a grant"


def describe_forgotten_unit(text: str, why: str, below: int) -> str:
    """Return a question after the unit if the text is a plain number below `below`; empty otherwise.

    `why` says what is wrong with so few tokens.
    """
    number = text.strip()
    # The length comes first: `int` refuses numbers of thousands of digits.
    if number.isdecimal() and len(number) <= len(str(below)) and 0 < int(number) < below:
        return f"{number} is {number} tokens, {why}: did you mean {number}k or '${number}'?"
    return ""


def parse_bounded_limit(text: str, minimum: Amount, maximum: Amount = MAX_AMOUNT) -> Limit:
    """Parse a limit in tokens, dollars or both, and check that each given unit lies between `minimum` and `maximum`.

    Raises:
        ValueError: `text` is not such an amount; the message says what may be written.
    """
    try:
        limit = parse_limit(text)
    except ValueError as error:
        raise ValueError(
            f"{LIMIT_FORMAT_HINT}; {text[:_MAX_REPEATED_CHARACTERS]!r} is not an amount{format_number_hint(text)}"
        ) from error
    ranges = ((limit.tokens, minimum.tokens, maximum.tokens), (limit.micro_usd, minimum.micro_usd, maximum.micro_usd))
    if not all(given is None or lowest <= given <= highest for given, lowest, highest in ranges):
        raise ValueError(
            f"{minimum.tokens:,} to {maximum.tokens:,} tokens, {format_usd(minimum.micro_usd)} to "
            f"{format_usd(maximum.micro_usd)}, "
            f"or both; not {text[:_MAX_REPEATED_CHARACTERS]!r}"
        )
    return limit
