"""A task's documents: named texts with lines, found by search, cited by lines and, where they have any, by places."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, final

from pydantic import Field

from waystation.domain.value import Value
from waystation.patterns import proven

LONGEST_PLACE = 120
"""Characters."""

REMOVED = "removed while the task ran"
"""Where agents see the name of such a document: its number stays."""

_MARKER = proven(r"\[((?:page|slide|sheet|chapter|section|attachment) [^\[\]:\s][^\[\]:\n]*)\]")
_ENDS_A_MARKER = str.maketrans("[]:", "()-")


class Document(Value):
    """One document of a task. `blob` is the content hash of its text; `name` is its path as the person gave it."""

    name: str
    blob: str
    lines: int
    characters: int
    source: str = ""
    """Content hash of the file that the text was read from, where it was read from one."""
    removed: bool = False
    """It was there once: it keeps its number, and is read no more."""
    procedure: bool = Field(default=False, exclude=True)
    """Its task was handed in before procedures were given apart, and follows it: it is no evidence. The store tells it
    by the task's terms; nobody can say it of a document.
    """


class DocumentHit(Value):
    """A stretch of a document that matches a query, best first. Line numbers start at 1, both ends included."""

    name: str
    first_line: int
    last_line: int
    text: str
    score: float
    blob: str = ""
    """Content hash of the version that was searched."""
    shown: bool = False
    """The stretch is of the document as it is shown, not of the original."""


class ShownDocument(NamedTuple):
    """A document as agents may see it, line for line."""

    blob: str
    """Content hash of the original."""
    name: str
    """As it was handed in."""
    called: str
    """As agents know it."""
    text: str


class DocumentPassage(NamedTuple):
    """Lines of one document, counted from 1, both ends included."""

    name: str
    heading: str
    """The nearest one above, for a passage that does not start with its own."""
    first_line: int
    last_line: int
    text: str


class LeftOut(Value):
    """A file, folder or part of a file that was given and is in no document. The reason is words to follow the name."""

    name: str
    reason: str


@final
class DocumentFinder:
    """Documents by what they are called, for as many names as are looked up."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._names = [document.name for document in documents]

    def index(self, name: str) -> int | None:
        """Which document has that name; else which is the only one whose name has the same letters and digits,
        whatever the case: what a placeholder stands for is restored as it was written where it was met first.
        """
        if (exactly := self._exactly.get(name)) is not None:
            return exactly
        alike = self._alike.get(_letters(name), ())
        return alike[0] if len(alike) == 1 else None

    @cached_property
    def _exactly(self) -> dict[str, int]:
        """The first, where several have the same name."""
        return {name: index for index, name in reversed([*enumerate(self._names)])}

    @cached_property
    def _alike(self) -> dict[str, list[int]]:
        alike: dict[str, list[int]] = {}
        for index, name in enumerate(self._names):
            alike.setdefault(_letters(name), []).append(index)
        return alike


def named(name: str, documents: Sequence[Document]) -> Document | None:
    """The document that is called so, as a `DocumentFinder` finds it."""
    found = DocumentFinder(documents).index(name)
    return None if found is None else documents[found]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def place_marker(place: str) -> str:
    """The line that says where in the original the lines below it stand: `[page 3]`, `[sheet Costs]`.

    It belongs to the converted text and is no content of the document. It has no colon, so it is never a citation.
    """
    words = " ".join(place.translate(_ENDS_A_MARKER).split())
    return f"[{words if len(words) <= LONGEST_PLACE else words[: LONGEST_PLACE - 1] + '…'}]"


def marked_place(line: str) -> str | None:
    """The place that a line marks; None: it is a line of the document."""
    marker = _MARKER.fullmatch(line)
    return marker[1] if marker else None


def with_places(parts: Iterable[tuple[str, str]]) -> str:
    """One text of parts in order, each a place (empty: none) and its text.

    Parts without text leave no marker, and parts of the same place in a row share one.

    A line of a part that looks like a marker is moved by a space: a document cannot claim places that it does not have.
    """
    blocks: list[str] = []
    before = ""
    for place, text in parts:
        lines = [f" {line}" if marked_place(line) else line.rstrip() for line in text.splitlines()]
        if body := "\n".join(lines).strip("\n"):
            blocks.append(f"{place_marker(place)}\n{body}" if place not in {"", before} else body)
            before = place
    return "\n\n".join(blocks)


def place_of(lines: Sequence[str], line_number: int) -> str | None:
    """The place of a line, counted from 1: what the nearest marker at or above it says. None: there is none."""
    above = (marked_place(line) for line in reversed(lines[:line_number]))
    return next((place for place in above if place), None)
