"""What a person is shown of a cited passage: its lines, with the cells of a sheet or the headers of an e-mail.

All of it is in the stored text of the document, so no file is needed.
"""

from collections.abc import Iterator, Sequence

from waystation.documents.documents import CELL_SEPARATOR, find_line_place, parse_place_marker
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

EMAIL_HEADERS = ("From", "To", "Cc", "Date", "Subject")
"""Headers of an e-mail that are in its text."""
MAX_SHOWN_LINES = 400
"""Maximum lines of a passage with its surroundings."""
LINES_AROUND, ROWS_AROUND = 12, 3
"""Lines that are shown above and below a passage; and rows of a sheet."""
_MIN_HEAD_CELLS = 2
"""Minimum cells with text in the row of column heads; a title above it has one."""
_SHEET = compile_bounded(r"\Asheet ([^\n]{1,120}?)(?: of (?:attachment|section) [^\n]{1,120})?\Z")
_HEADER = compile_bounded(rf"\A({'|'.join(EMAIL_HEADERS)}): ([^\n]*)")
_OF = " of "


class EmailHeader(Value):
    """A header of an e-mail."""

    name: str
    value: str


class PassageLine(Value):
    """A line of a document."""

    number: int
    """Number from 1."""
    text: str
    is_cited: bool
    cells: tuple[str, ...] = ()
    """Cells of the row if it belongs to a sheet."""
    is_head: bool = False
    """Whether its cells are taken for the heads of the columns."""


class PassageView(Value):
    """A cited passage with its surroundings."""

    lines: tuple[PassageLine, ...]
    sheet: str = ""
    """Name of the sheet whose rows the lines are; empty if it is none."""
    message: tuple[EmailHeader, ...] = ()
    """Headers of the e-mail that the passage is from, or is attached to; empty if it is from none."""
    part: str = ""
    """Part of the e-mail: `attachment offer.csv`; empty for its text."""

    @property
    def columns(self) -> int:
        """Number of columns of the sheet."""
        return max((len(line.cells) for line in self.lines), default=0)


def build_passage_view(lines: Sequence[str], first_line: int, last_line: int) -> PassageView:
    """Build what is shown of lines of a document, counted from 1, both ends included."""
    place = find_line_place(lines, first_line) or ""
    message = _find_message(lines, place)
    part = place if message else ""
    sheet = _SHEET.match(place)
    if sheet is None:
        numbers = _limit(first_line - LINES_AROUND, last_line + LINES_AROUND, len(lines))
        shown = [_line(lines, number, first_line, last_line) for number in numbers]
        return PassageView(lines=tuple(shown), message=message, part=part)
    rows = [*_list_rows(lines, first_line)]
    head = next((number for number in rows if _is_head(lines[number - 1])), 0)
    first, last = (min(max(number, rows[0]), rows[-1]) for number in (first_line, last_line)) if rows else (0, 0)
    near = [number for number in rows if first - ROWS_AROUND <= number <= last + ROWS_AROUND][:MAX_SHOWN_LINES]
    # A head below the cited row is none of it.
    numbers = [head, *near] if 0 < head < (near[0] if near else 0) else near
    return PassageView(
        lines=tuple(_row(lines, number, first_line, last_line, head=head) for number in numbers),
        sheet=sheet[1],
        message=message,
        part=part,
    )


def _limit(first: int, last: int, count: int) -> range:
    first, last = max(1, first), min(last, count)
    return range(first, min(last, first + MAX_SHOWN_LINES) + 1)


def _line(lines: Sequence[str], number: int, first: int, last: int) -> PassageLine:
    return PassageLine(number=number, text=lines[number - 1], is_cited=first <= number <= last)


def _row(lines: Sequence[str], number: int, first: int, last: int, *, head: int) -> PassageLine:
    line = _line(lines, number, first, last)
    return line.replace(cells=tuple(line.text.split(CELL_SEPARATOR)), is_head=number == head)


def _list_rows(lines: Sequence[str], number: int) -> Iterator[int]:
    """Yield the numbers of the rows of the sheet to which a line belongs."""
    number = min(number, len(lines))
    while number > 1 and parse_place_marker(lines[number - 1]) is None:
        number -= 1
    for row in range(number + 1, len(lines) + 1):
        if parse_place_marker(lines[row - 1]) is not None:
            return
        if lines[row - 1].strip():
            yield row


def _is_head(row: str) -> bool:
    return sum(bool(cell.strip()) for cell in row.split(CELL_SEPARATOR)) >= _MIN_HEAD_CELLS


def _find_message(lines: Sequence[str], place: str) -> tuple[EmailHeader, ...]:
    """Return the headers of the innermost e-mail that contains a place; none if there is none."""
    markers = {marker: number for number, line in enumerate(lines, 1) if (marker := parse_place_marker(line))}
    while place:
        if place in markers and (headers := _read_headers(lines, markers[place])):
            return headers
        _, _, place = place.partition(_OF)
    return _read_headers(lines, 0)


def _read_headers(lines: Sequence[str], start: int) -> tuple[EmailHeader, ...]:
    """Return the headers with which the lines after `start` begin; none unless they say who wrote what."""
    found: list[EmailHeader] = []
    for line in lines[start : start + len(EMAIL_HEADERS)]:
        header = _HEADER.match(line)
        if header is None:
            break
        found.append(EmailHeader(name=header[1], value=header[2]))
    names = {one.name for one in found}
    return tuple(found) if "From" in names and len(names) > 1 else ()
