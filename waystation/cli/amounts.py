"""Amounts of tokens as people write them: 600k, 1.5M, 600_000."""

import re
from decimal import Decimal

from waystation.domain.errors import BadInput

_AMOUNT = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([kKmM]?)")
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}
MOST_TOKENS = 1_000_000_000


def parse_tokens(text: str, name: str, lowest: int = 1, highest: int = MOST_TOKENS) -> int:
    """A number of tokens. Raises BadInput with the option's name and what it allows."""
    allowed = f"{name} takes {lowest:,} to {highest:,} tokens, written like 30k, 1.5M or 600_000"
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"{allowed}; {text!r} is no such amount")
    tokens = Decimal(re.sub("[_,]", "", found[1])) * _FACTORS[found[2].lower()]
    if tokens != int(tokens) or not lowest <= tokens <= highest:
        raise BadInput(f"{allowed}; {text!r} is not among them")
    return int(tokens)


def short_tokens(tokens: int) -> str:
    """Tokens to read at a glance: 950, 41k, 1.2M."""
    for factor, unit in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= factor:
            return f"{tokens / factor:.1f}".removesuffix(".0") + unit
    return str(tokens)
