"""Measures names of people in ordinary and technical prose, where most of their words are also ordinary words.

Sentences were written by hand (`prose.txt`, names in ⟦brackets⟧). Only detections of people and places count: what
either detector takes for a date or an organisation is neither a name found, nor one wrongly replaced.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.budgets.tables import print_table
from benchmarks.privacy.finders import DefaultPresidioFinder, Find, Finder, WaystationFinder
from waystation.privacy.policy import NAME_TYPES, TextDestination

_NAME = re.compile(r"⟦([^⟧]*)⟧")
_FILE = Path(__file__).with_name("prose.txt")


class Prose(NamedTuple):
    """A sentence or heading, and where names stand in it."""

    text: str
    names: tuple[tuple[int, int], ...]


class FinderScore(NamedTuple):
    """What one finder made of the sentences."""

    found: Sequence[str]
    missed: Sequence[str]
    """Names, as they stand."""
    beside: Sequence[str]
    """What was replaced in sentences with names, and is none."""
    eaten: Sequence[str]
    """Sentences without names in which something was replaced."""


def load_prose() -> list[Prose]:
    """All of them, in the order of the file."""
    return [_read(line) for line in _FILE.read_text(encoding="utf-8").splitlines() if line]


def score_prose_finder(corpus: Sequence[Prose], finder: Finder) -> FinderScore:
    """Each sentence is a text of its own. A name counts as found where all of it is covered."""
    found, missed, beside, eaten = list[str](), list[str](), list[str](), list[str]()
    for prose, finds in zip(corpus, finder.find([prose.text for prose in corpus]), strict=True):
        names = [find for find in finds if find.type in NAME_TYPES]
        for start, end in prose.names:
            (found if _covered(names, start, end) else missed).append(prose.text[start:end])
        wrong = [one for one in names if not any(one.start < end and start < one.end for start, end in prose.names)]
        if prose.names:
            beside += [prose.text[one.start : one.end] for one in wrong]
        elif wrong:
            eaten.append(prose.text)
    return FinderScore(found, missed, beside, eaten)


def prove() -> None:
    """Print the table. What was missed, and replaced wrongly, goes to stderr."""
    corpus = load_prose()
    without = sum(not prose.names for prose in corpus)
    rows = list[tuple[object, ...]]()
    for finder in (WaystationFinder(TextDestination.COMPRESSED), DefaultPresidioFinder()):
        counts = score_prose_finder(corpus, finder)
        eaten = f"{len(counts.eaten)} of {without}"
        rows.append((finder.name, *_recall(counts, full=False), *_recall(counts, full=True), len(counts.beside), eaten))
        for what, texts in counts._asdict().items():
            if what != "found":
                print(f"{finder.name}, {what}: {' | '.join(texts)}", file=sys.stderr)
    head = (
        "detector",
        "single names",
        "recall",
        "full names",
        "recall",
        "other words replaced in sentences with names",
        "sentences without names that were changed",
    )
    print_table(f"Names that are words, in {len(corpus):,} sentences", head, rows)


def _recall(counts: FinderScore, *, full: bool) -> tuple[int, str]:
    """Of names of several words, or of one."""
    found, missed = (sum((" " in name) == full for name in names) for names in (counts.found, counts.missed))
    return found + missed, f"{found / max(1, found + missed):.3f}"


def _read(line: str) -> Prose:
    text, names = "", list[tuple[int, int]]()
    for number, part in enumerate(_NAME.split(line)):
        if number % 2:
            names.append((len(text), len(text) + len(part)))
        text += part
    return Prose(text, tuple(names))


def _covered(finds: Sequence[Find], start: int, end: int) -> bool:
    position = start
    for find in sorted(finds, key=lambda find: find.start):
        if find.start <= position:
            position = max(position, find.end)
    return position >= end
