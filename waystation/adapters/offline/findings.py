"""Reading what earlier steps handed in: page by page, as far as the view shows it."""

import re
from typing import Literal, get_args

from waystation.adapters.offline.citing import CITATION, QUOTED, Place, places
from waystation.adapters.offline.replies import Call, call
from waystation.adapters.offline.view import View
from waystation.domain.value import Value
from waystation.patterns import proven

PAGE = 40
MOST_TRIES = 2
"""A page that was asked for this often and does not show is given up."""

_HEADER = proven(r"^findings \d+-\d+ of (\d{1,9}) of step (.+)$", re.MULTILINE)
_NONE = proven(r"^Step .+ has (\d{1,9}) findings; none")
_LINE = proven(r"^(\d{1,9})\. (?:(open|conclusion|contradiction|gap): )?(.*)$", re.MULTILINE)

Kind = Literal["claim", "open", "conclusion", "contradiction", "gap"]


class Entry(Value):
    """One line of what a step handed in."""

    kind: Kind
    text: str
    places: tuple[Place, ...]

    @property
    def quote(self) -> str:
        """The quoted words in it; empty without any."""
        found = QUOTED.search(self.text)
        return found.group(1) if found else ""

    @property
    def citations(self) -> tuple[str, ...]:
        """Where it stands."""
        return tuple(place.citation for place in self.places)


class HandedIn(Value):
    """What is known of a step's result: its entries by number, and how many there are (None: not read yet)."""

    entries: dict[int, Entry]
    total: int | None

    @property
    def missing(self) -> int:
        """Entries that are there and were not seen."""
        return (self.total or 0) - len(self.entries)

    def of(self, *kinds: Kind) -> tuple[Entry, ...]:
        """The entries of these kinds, in order."""
        return tuple(entry for _, entry in sorted(self.entries.items()) if entry.kind in kinds)


def handed_in(view: View, step: str) -> HandedIn:
    """What the view shows of a step's result."""
    entries: dict[int, Entry] = {}
    total: int | None = None
    for exchange in view.calls("read_findings"):
        if exchange.text("step") != step:
            continue
        none = _NONE.match(exchange.result)
        header = _HEADER.match(exchange.result)
        if exchange.failed or none:
            total = int(none.group(1)) if none else 0
        if header and header.group(2) == step:
            total = int(header.group(1))
            entries.update(_entries(exchange.result[header.end() :]))
    return HandedIn(entries=entries, total=total)


def next_page(view: View, step: str) -> Call | None:
    """The call that shows what is missing of a step's result; None where everything that can be read was read."""
    known = handed_in(view, step)
    total = 1 if known.total is None else known.total
    first = next((number for number in range(1, total + 1) if number not in known.entries), None)
    if first is None:
        return None
    page = call("read_findings", step=step, first=first, count=PAGE)
    tries = sum(exchange.input == page.input for exchange in view.calls("read_findings"))
    return page if tries < MOST_TRIES else None


def _entries(text: str) -> dict[int, Entry]:
    entries: dict[int, Entry] = {}
    for number, kind, body in _LINE.findall(text):
        cited = places(body)
        claim = _without_citations(body) if cited else body
        entries[int(number)] = Entry(kind=_kind(kind), text=claim, places=cited)
    return entries


def _without_citations(text: str) -> str:
    """The claim in front of the citations at a line's end."""
    claim = text.rstrip()
    while (last := _last_citation(claim)) is not None:
        claim = claim[:last].rstrip()
    return claim


def _last_citation(text: str) -> int | None:
    return next((found.start() for found in CITATION.finditer(text) if found.end() == len(text)), None)


def _kind(word: str) -> Kind:
    return next((kind for kind in get_args(Kind) if kind == word), "claim")
