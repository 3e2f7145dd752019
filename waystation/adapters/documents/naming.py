"""What documents are called: as the person gave them, unique, and usable inside a citation `[name:12-18]`."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from waystation.patterns import proven

LONGEST_NAME = 190
"""Characters. A citation's name has at most 200, and a number may have to be added."""

_UNPRINTABLE = proven(r"[\s\x00-\x1f\x7f]+")
_ENDS_A_CITATION = str.maketrans("[]:", "()-")


class Named(NamedTuple):
    """The two names that a document may have."""

    short: str
    """Its path within the folder that was given, or the path of the file that was given."""
    long: str
    """The same with the folder that was given."""


def unique_names(named: Sequence[Named]) -> tuple[str, ...]:
    """One name each, in order: the short one, the long one where short ones clash, numbered where that clashes too."""
    short = [citable(names.short) for names in named]
    count = Counter(short)
    taken = {name for name in short if count[name] == 1}
    chosen: list[str] = []
    for names, name in zip(named, short, strict=True):
        unique = name if count[name] == 1 else _free(citable(names.long), taken)
        taken.add(unique)
        chosen.append(unique)
    return tuple(chosen)


def citable(name: str) -> str:
    """The name without what would end a citation or a line; of a very long one the end, where the file's name is."""
    # A file name may hold bytes that are no text; the store and the model take text only.
    text = os.fsencode(name).decode("utf-8", "replace")
    whole = _UNPRINTABLE.sub(" ", text.translate(_ENDS_A_CITATION)).strip()
    return whole if len(whole) <= LONGEST_NAME else f"…{whole[1 - LONGEST_NAME :]}"


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name} ({number})", number + 1
    return candidate
