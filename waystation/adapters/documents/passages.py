"""Documents cut into passages: stretches of whole lines, small enough to read and to cite, split where the text is."""

from collections.abc import Iterator
from typing import NamedTuple

from waystation.domain.documents import DocumentPassage, marked_place
from waystation.patterns import proven

MOST_LINES = 12
MOST_CHARACTERS = 2_000
"""A longer line is cut into several passages that share its line number."""

_HEADING = proven(r"#{1,6} \S")


class _Line(NamedTuple):
    number: int
    text: str

    @property
    def is_heading(self) -> bool:
        return _HEADING.match(self.text) is not None

    @property
    def marks_place(self) -> bool:
        return marked_place(self.text) is not None


def passages_of(name: str, text: str) -> Iterator[DocumentPassage]:
    """Paragraphs are kept whole and put together while they fit; a heading or the marker of a place (a page, a sheet)
    starts a new passage.
    """
    lines: list[_Line] = []
    heading = ""
    for paragraph in _paragraphs(text):
        if lines and (_parts(lines, paragraph[0]) or not _fits(lines, paragraph)):
            yield _passage(name, heading, lines)
            heading = next((line.text for line in reversed(lines) if line.is_heading), heading)
            lines = []
        lines += paragraph
    if lines:
        yield _passage(name, heading, lines)


def _parts(lines: list[_Line], line: _Line) -> bool:
    """Whether a line begins something new: headings in a row, or below a marker, belong together."""
    return line.marks_place or (line.is_heading and not all(above.is_heading or above.marks_place for above in lines))


def _fits(lines: list[_Line], more: list[_Line]) -> bool:
    height = more[-1].number - lines[0].number + 1
    return height <= MOST_LINES and _size(lines) + _size(more) + height <= MOST_CHARACTERS


def _size(lines: list[_Line]) -> int:
    return sum(len(line.text) for line in lines)


def _passage(name: str, heading: str, lines: list[_Line]) -> DocumentPassage:
    first, last = lines[0].number, lines[-1].number
    # Blank lines between paragraphs are put back, so that line numbers can be counted off.
    texts = {line.number: line.text for line in lines}
    text = "\n".join(texts.get(number, "") for number in range(first, last + 1))
    return DocumentPassage(name, "" if lines[0].is_heading else heading, first, last, text)


def _paragraphs(text: str) -> Iterator[list[_Line]]:
    """Runs of lines that belong together; a run that would not fit a passage is cut."""
    run: list[_Line] = []
    for line in _lines(text):
        if run and (not line.text or line.is_heading or line.marks_place or not _fits(run, [line])):
            yield run
            run = []
        if line.text:
            run.append(line)
    if run:
        yield run


def _lines(text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.rstrip()
        for start in range(0, max(1, len(stripped)), MOST_CHARACTERS):
            yield _Line(number, stripped[start : start + MOST_CHARACTERS])
