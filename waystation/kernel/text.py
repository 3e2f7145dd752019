"""Words that messages to people are made of."""

from collections.abc import Sequence

from waystation.kernel.patterns import compile_bounded

FORGOTTEN = "(forgotten)"
"""Shown in place of a question that was forgotten."""


def format_count(number: int, noun: str) -> str:
    """Return the number with its noun: 1 leg, 2 legs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_names(noun: str, names: Sequence[str]) -> str:
    """Return the names with their noun: queue agents, queues agents and context."""
    return f"{noun if len(names) == 1 else f'{noun}s'} {', '.join(names)}"


def format_first(names: Sequence[str], count: int) -> str:
    """Return the first names and the number of the others: a, b, and 3 more."""
    more = [f"and {len(names) - count:,} more"] if len(names) > count else []
    return ", ".join([*names[:count], *more])


def format_extra_hint(extra: str) -> str:
    """Return what to do if an extra of the package is missing, as a clause; the command depends on the installation."""
    return f"install Waystation's extra `{extra}` (docs/how-to/install.md)"


SAYS = compile_bounded(r"[^\n:]{1,60}(?=: )")
"""The speaker of a text, or the name of the field whose value it is, if the text begins with one."""
