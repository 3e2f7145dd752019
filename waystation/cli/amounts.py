"""Amounts in options: read with the option's name in every complaint, and shown at a glance."""

from waystation.domain.amount import WRITTEN, Amount, Limit, about_commas, dollars, read_limit, read_tokens
from waystation.domain.errors import BadInput
from waystation.domain.task import LOWEST_BUDGET, LOWEST_BUDGET_MICRO_USD

MOST_TOKENS = 1_000_000_000
MOST_MICRO_USD = 1_000_000 * 1_000_000
LEAST = Amount(tokens=1, micro_usd=1)
LEAST_BUDGET = Amount(tokens=LOWEST_BUDGET, micro_usd=LOWEST_BUDGET_MICRO_USD)


def parse_tokens(text: str, name: str, lowest: int = 1, highest: int = MOST_TOKENS) -> int:
    """A number of tokens. Raises BadInput with the option's name and what it allows."""
    allowed = f"{name} takes {lowest:,} to {highest:,} tokens, written like 30k, 1.5M or 600_000"
    try:
        tokens = read_tokens(text)
    except ValueError as error:
        raise BadInput(f"{allowed}; {text!r} is no such amount{about_commas(text)}") from error
    if not lowest <= tokens <= highest:
        raise BadInput(f"{allowed}; {text!r} is not among them")
    return tokens


def parse_limit(text: str, name: str, least: Amount = LEAST) -> Limit:
    """Tokens, dollars or both, at least `least` of each. Raises BadInput with the option's name and what it takes."""
    try:
        limit = read_limit(text)
    except ValueError as error:
        raise BadInput(f"{name} takes {WRITTEN}; {text!r} is no such amount{about_commas(text)}") from error
    ranges = ((limit.tokens, least.tokens, MOST_TOKENS), (limit.micro_usd, least.micro_usd, MOST_MICRO_USD))
    if not all(given is None or lowest <= given <= most for given, lowest, most in ranges):
        raise BadInput(
            f"{name} takes {least.tokens:,} to {MOST_TOKENS:,} tokens, {dollars(least.micro_usd)} to "
            f"{dollars(MOST_MICRO_USD)}, or both; not {text!r}"
        )
    return limit


def parse_budget(text: str, name: str) -> Limit:
    """What a session, a task or an agent may spend: enough to begin with."""
    return parse_limit(text, name, LEAST_BUDGET)


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
