"""Warnings that a budget is nearly spent: one for each level, and one more after each raise by a person."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from waystation.domain.amount import Amount, Limit, used_text
from waystation.domain.backpressure import WARN_SHARE


class Level(NamedTuple):
    """One budget, as it is when somebody looks."""

    name: str
    """As a sentence begins with it."""
    used: Amount
    limit: Limit
    raises: int = 0
    """How often people have raised it."""
    verb: str = "spent"


def nearing(warned: Mapping[str, int], levels: Iterable[Level]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The notes that are due, and by level how many raises it had when its newest note was due."""
    known, notes = dict(warned), list[str]()
    for level in levels:
        share = level.limit.share_used(level.used)
        if share >= WARN_SHARE and known.get(level.name, -1) < level.raises:
            known[level.name] = level.raises
            used = used_text(level.used, level.limit)
            notes.append(f"{level.name} has {level.verb} {int(share * 100)} % of its budget: {used}.")
    return known, tuple(notes)
