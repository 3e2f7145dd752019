"""How places are written and read: citations, the passages of a search, the lines of a document, notes."""

import re
from collections.abc import Iterator, Sequence

from waystation.adapters.offline.quotes import Line
from waystation.adapters.offline.view import Exchange
from waystation.domain.value import Value
from waystation.patterns import proven

CITATION = proven(r"\[([^\[\]]+):(\d{1,9})-(\d{1,9})\]")
QUOTED = proven(r"\"(.*)\"", re.DOTALL)
TOPIC = " – "
"""Stands between the step that a conclusion belongs to and what it says."""
_READ_HEADER = proven(r"^.+, lines \d+-\d+ of \d+$")
_NUMBERED = proven(r"^(\d{1,9})\| (.*)$", re.MULTILINE)
_CUT_LINE = proven(r" … \([\d,]+ characters in all\)$")
_SUMMARISED_NOTE = proven(r"\bnote \[([^\[\]]+):(\d{1,9})-(\d{1,9})\] (.*?)(?=; |$)", re.MULTILINE)
_NOTE = proven(r"^\d+\. \[([^\[\]]+):(\d{1,9})-(\d{1,9})\] (.*)$", re.MULTILINE)


class Place(Value):
    """Lines of a document."""

    document: str
    first_line: int
    last_line: int

    @property
    def citation(self) -> str:
        """Written as everywhere: `[document:first-last]`."""
        return f"[{self.document}:{self.first_line}-{self.last_line}]"


class KeptNote(Value):
    """A note: words of a document and their place."""

    text: str
    place: Place


def label(document: str) -> str:
    """A document's name as a reader would say it: without folder and ending."""
    name = document.rsplit("/", 1)[-1]
    stem, dot, ending = name.rpartition(".")
    return stem if dot and stem and ending.isalpha() and len(ending) <= 8 else name


def places(text: str) -> tuple[Place, ...]:
    """All citations in a text."""
    return tuple(_place(*found) for found in CITATION.findall(text))


def hits(result: str) -> tuple[Place, ...]:
    """The places of a search's passages, best first."""
    return tuple(place for line in result.splitlines() if CITATION.fullmatch(line) for place in places(line))


def read_lines(result: str) -> Sequence[Line]:
    """The numbered lines of a page of a document; none where the result is something else."""
    header, _, body = result.partition("\n")
    if _READ_HEADER.match(header) is None:
        return ()
    return [(int(number), _CUT_LINE.sub("", text)) for number, text in _NUMBERED.findall(body)]


def listed_notes(result: str) -> Iterator[KeptNote]:
    """The notes of a page of `read_notes`."""
    for document, first, last, text in _NOTE.findall(result):
        yield KeptNote(text=text, place=_place(document, first, last))


def summarised_notes(summary: str) -> Iterator[KeptNote]:
    """The beginnings of the notes that a summary of ours carries."""
    for document, first, last, text in _SUMMARISED_NOTE.findall(summary):
        yield KeptNote(text=text, place=_place(document, first, last))


def handed_in_notes(result: str) -> Iterator[KeptNote]:
    """The quotations in what a subagent has handed in, one a line, with its place behind it: of one that was stopped
    they are its notes, without quotation marks.
    """
    for line in result.splitlines():
        cited = places(line)
        if len(cited) == 1:
            quoted = QUOTED.search(line)
            yield KeptNote(text=quoted[1] if quoted else line.partition(cited[0].citation)[0].strip(), place=cited[0])


def taken_note(exchange: Exchange) -> KeptNote:
    """The note that a call of `take_note` keeps."""
    place = _place(exchange.text("document"), exchange.number("first_line"), exchange.number("last_line"))
    return KeptNote(text=" ".join(exchange.text("text").split()), place=place)


def _place(document: str, first_line: str | int, last_line: str | int) -> Place:
    return Place(document=document, first_line=int(first_line), last_line=int(last_line))
