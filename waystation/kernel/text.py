"""Words that every message to people is made of."""

from waystation.kernel.patterns import proven

FORGOTTEN = "(forgotten)"
"""Stands where a question stood."""


def counted(number: int, noun: str) -> str:
    """The number with its noun: 1 leg, 2 legs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


SAYS = proven(r"[^\n:]{1,60}(?=: )")
"""Who says a text, or the field that it is the value of, where it begins so."""
