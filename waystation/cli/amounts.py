"""Amounts in options: read with the option's name in every complaint, and shown at a glance."""

from waystation.domain.amount import WRITTEN, Amount, Limit, dollars, read_limit, read_tokens
from waystation.domain.errors import BadInput

MOST_TOKENS = 1_000_000_000
MOST_MICRO_USD = 1_000_000 * 1_000_000


def parse_tokens(text: str, name: str, lowest: int = 1, highest: int = MOST_TOKENS) -> int:
    """A number of tokens. Raises BadInput with the option's name and what it allows."""
    allowed = f"{name} takes {lowest:,} to {highest:,} tokens, written like 30k, 1.5M or 600_000"
    try:
        tokens = read_tokens(text)
    except ValueError as error:
        raise BadInput(f"{allowed}; {text!r} is no such amount") from error
    if not lowest <= tokens <= highest:
        raise BadInput(f"{allowed}; {text!r} is not among them")
    return tokens


def parse_limit(text: str, name: str) -> Limit:
    """Tokens, dollars or both, more than nothing of each. Raises BadInput with the option's name."""
    try:
        limit = read_limit(text)
    except ValueError as error:
        raise BadInput(f"{name} takes {WRITTEN}; {text!r} is no such amount") from error
    for given, most in ((limit.tokens, MOST_TOKENS), (limit.micro_usd, MOST_MICRO_USD)):
        if given is not None and not 0 < given <= most:
            raise BadInput(f"{name} takes up to {MOST_TOKENS:,} tokens and {dollars(MOST_MICRO_USD)}; not {text!r}")
    return limit


def parse_amount(text: str, name: str) -> Amount:
    """The same, of what is given."""
    return parse_limit(text, name).amount


def written(amount: Amount) -> str:
    """The amount as an option takes it back."""
    parts = [str(amount.tokens)] if amount.tokens else []
    return "+".join([*parts, *([dollars(amount.micro_usd)] if amount.micro_usd else [])])


def short_tokens(tokens: int) -> str:
    """Tokens to read at a glance: 950, 41k, 1.2M."""
    for factor, unit in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= factor:
            return f"{tokens / factor:.1f}".removesuffix(".0") + unit
    return str(tokens)


def short_limit(limit: Limit) -> str:
    """A limit at a glance: `600k`, `$2.00`, `600k $2.00`."""
    parts = [short_tokens(limit.tokens)] if limit.tokens is not None else []
    return " ".join([*parts, *([dollars(limit.micro_usd)] if limit.micro_usd is not None else [])]) or "-"


def short_spent(spent: Amount, limit: Limit) -> str:
    """What was spent, in the units of its limit."""
    return short_limit(
        Limit(
            tokens=None if limit.tokens is None and limit.micro_usd is not None else spent.tokens,
            micro_usd=None if limit.micro_usd is None else spent.micro_usd,
        )
    )
