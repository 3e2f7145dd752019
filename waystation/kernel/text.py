"""Words that every message to people is made of."""

from waystation.kernel.patterns import compile_bounded

FORGOTTEN = "(forgotten)"
"""Stands where a question stood."""


def format_count(number: int, noun: str) -> str:
    """The number with its noun: 1 leg, 2 legs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


SAYS = compile_bounded(r"[^\n:]{1,60}(?=: )")
"""Who says a text, or the field that it is the value of, where it begins so."""
