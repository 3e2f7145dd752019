"""Text to rows of cells that know their lines: whatever separates the cells, and however many a row has.

Rows are not read by DuckDB's own reader: that keeps no line numbers, and documents must not be written to files.
"""

import csv
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, zip_longest
from typing import NamedTuple

from waystation.adapters.tables.engine import Unusable
from waystation.domain.privacy import Replaced, replaced_in
from waystation.domain.tables import LINE_COLUMN, Cells, Table, TableText
from waystation.patterns import proven

MOST_COLUMNS = 500
MOST_CELLS = 20_000_000
_NAME_CHARACTERS = 100
"""Longer names of columns are cut."""
LINES_NAMED = 5
"""Lines that a caution names."""

_SAMPLE_ROWS = 20
_SAMPLE_CHARACTERS = 10_000
"""Of each of its rows."""
_SEPARATORS = ("\t", ";", "|", ",")
"""Where several fit alike, the one that is least at home within cells."""
_BETWEEN_CELLS = proven(r"(?:^| )\|(?: |$)")


class Grid(NamedTuple):
    """A table by named columns, and the line in the document on which each row begins."""

    names: Sequence[str]
    columns: Sequence[Cells]
    """Without the row that names them."""
    lines: Sequence[int]
    cautions: Sequence[str]


class _Row(NamedTuple):
    line: int
    cells: list[str]
    hidden: Sequence[tuple[int, Replaced]] = ()
    """Of its cells, each with the number of its cell."""


class _Stretch(NamedTuple):
    """Where a cell stands in the text of its row, without the quotation marks around it."""

    start: int
    end: int
    quoted: bool = False
    """Each quotation mark in it is written twice."""


def read_grid(text: TableText) -> Table:
    """The rows of a text. Raises Unusable, which quotes no cell."""
    rows = list(_rows(text))
    if not rows:
        raise Unusable(f"{text.name} has no rows.")
    widest = max(rows, key=lambda row: len(row.cells))
    width = len(widest.cells)
    if width > MOST_COLUMNS:
        raise Unusable(f"Line {widest.line} of {text.name} has {width:,} cells, and {MOST_COLUMNS} is the most.")
    if width * len(rows) > MOST_CELLS:
        raise Unusable(f"{text.name} has more than {MOST_CELLS:,} cells. Query fewer lines of it at once.")
    return Table(
        name=text.name,
        columns=tuple(_columns(rows)),
        lines=tuple([row.line for row in rows]),
        widths=tuple([len(row.cells) for row in rows]),
        heading=text.heading,
        sheet=text.sheet,
    )


def _columns(rows: Sequence[_Row]) -> Iterator[Cells]:
    hidden: dict[int, list[tuple[int, Replaced]]] = {}
    for number, row in enumerate(rows):
        for column, found in row.hidden:
            hidden.setdefault(column, []).append((number, found))
    for number, cells in enumerate(zip_longest(*(row.cells for row in rows), fillvalue="")):
        yield _cells(cells, hidden.get(number, ()))


def _cells(column: Sequence[str], hidden: Sequence[tuple[int, Replaced]]) -> Cells:
    """`hidden`: what is, with the number of its row."""
    places: dict[str, int] = {}
    codes = (0, *[places.setdefault(value, len(places) + 1) for value in column[1:]])
    found: dict[int, dict[Replaced, None]] = {}
    for row, one in hidden:
        found.setdefault(codes[row], {})[one] = None
    return Cells(values=(column[0], *places), codes=codes, hidden={place: tuple(each) for place, each in found.items()})


def grid(table: Table) -> Grid:
    """The table as queries see it. Raises Unusable."""
    if not table.lines:
        raise Unusable(f"{table.name} has no rows.")
    first = [column.values[column.codes[0]] for column in table.columns]
    below = 1 if table.heading else 0
    return Grid(
        names=_names(first[: table.widths[0]] if table.heading else [], len(table.columns)),
        columns=[column.model_copy(update={"codes": column.codes[below:]}) for column in table.columns],
        lines=table.lines[below:],
        cautions=[*_cautions(table, below)],
    )


def _rows(table: TableText) -> Iterator[_Row]:
    text = table.text.removeprefix("\ufeff")
    lines = text.splitlines()
    for number, line in enumerate(lines, table.first_line):
        if "\0" in line:
            raise Unusable(f"Line {number} of {table.name} has a NUL character: this is no table of text.")
    hidden = _Hidden(table.hidden, lines, len(table.text) - len(text))
    if table.sheet or not (separator := _separator(lines)):
        return _piped(lines, hidden, table.first_line)
    return _separated(lines, hidden, separator, table)


class _Hidden:
    """What of a table's lines is not shown."""

    def __init__(self, found: Sequence[Replaced], lines: Sequence[str], begin: int) -> None:
        """`begin`: where the first line does."""
        self._found = found
        self._starts = list(accumulate((len(line) + 1 for line in lines), initial=begin)) if found else []

    def of(self, first: int, last: int) -> list[Replaced]:
        """In the text of these lines, counted from 0, the last not among them."""
        if not self._found:
            return []
        return list(replaced_in(self._found, self._starts[first], self._starts[last] - 1))


def _piped(lines: Sequence[str], hidden: _Hidden, first_line: int) -> Iterator[_Row]:
    for number, line in enumerate(lines):
        if line.strip() and not _is_rule(line):
            found = hidden.of(number, number + 1)
            cells = _BETWEEN_CELLS.split(line)
            yield _Row(first_line + number, cells, list(_in_cells(_piped_cells(line), line, found)) if found else ())


def _piped_cells(line: str) -> Iterator[_Stretch]:
    start = 0
    for between in _BETWEEN_CELLS.finditer(line):
        yield _Stretch(start, between.start())
        start = between.end()
    yield _Stretch(start, len(line))


def _quoted_cells(row: str, cells: Sequence[str]) -> Iterator[_Stretch]:
    """Where the cells that a strict reader found stand in the text of their row."""
    start = 0
    for cell in cells:
        quoted = row.startswith('"', start)
        begin = start + quoted
        end = begin + len(cell) + (cell.count('"') if quoted else 0)
        yield _Stretch(begin, end, quoted)
        start = end + quoted + 1


def _in_cells(cells: Iterator[_Stretch], row: str, found: Sequence[Replaced]) -> Iterator[tuple[int, Replaced]]:
    """What is hidden of each cell, in characters of its value; without a placeholder where that stands for more."""
    first = 0
    for number, cell in enumerate(cells):
        while first < len(found) and found[first].end <= cell.start:
            first += 1
        last = first
        while last < len(found) and found[last].start < cell.end:
            last += 1
        for one in _in_cell(cell, row, found[first:last]):
            yield number, one


def _in_cell(cell: _Stretch, row: str, found: Sequence[Replaced]) -> Iterator[Replaced]:
    at, marks = cell.start, 0
    for one in found:
        ends: list[int] = []
        for place in (max(one.start, cell.start), min(one.end, cell.end)):
            marks += row.count('"', at, place) if cell.quoted else 0
            ends.append(place - cell.start - marks // 2)
            at = place
        if ends[0] < ends[1]:
            own = cell.start <= one.start and one.end <= cell.end
            yield Replaced(ends[0], ends[1], one.type, one.placeholder if own else "")


def _is_rule(line: str) -> bool:
    """Whether it is the line below the heading of a Markdown table."""
    return "---" in line and not line.strip("|: -")


def _separated(lines: Sequence[str], hidden: _Hidden, separator: str, table: TableText) -> Iterator[_Row]:
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    begins = 0
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                found = hidden.of(begins, reader.line_num)
                row = "\n".join(lines[begins : reader.line_num]) if found else ""
                places = list(_in_cells(_quoted_cells(row, cells), row, found)) if found else ()
                yield _Row(table.first_line + begins, cells, places)
            begins = reader.line_num
    except csv.Error as error:
        raise Unusable(
            f"The row of {table.name} that begins on line {table.first_line + begins} cannot be read "
            f"({error}): a cell there is too long, or its quotation mark closes too early or never. Query the "
            "lines before or after it."
        ) from None


def _separator(lines: Sequence[str]) -> str | None:
    """The one by which the first rows agree best with the very first; None: cells stand between ` | `."""
    sample = [line[:_SAMPLE_CHARACTERS] for line in islice(filter(str.strip, lines), _SAMPLE_ROWS)]
    widths = {one: [len(cells) for cells in csv.reader(sample, delimiter=one)] for one in _SEPARATORS}
    best = max(_SEPARATORS, key=lambda one: (_agreement(widths[one]), max(widths[one], default=0)))
    return None if best == "|" and any(_BETWEEN_CELLS.search(line) for line in sample) else best


def _agreement(widths: Sequence[int]) -> int:
    return widths.count(widths[0]) if widths and widths[0] > 1 else 0


def _names(heading: Sequence[str], width: int) -> list[str]:
    """One name a column, each once whatever its case: SQL does not tell them apart."""
    taken = {LINE_COLUMN}
    names: list[str] = []
    for number in range(1, width + 1):
        written = " ".join(heading[number - 1].split())[:_NAME_CHARACTERS] if number <= len(heading) else ""
        name, again = written or f"column_{number}", 2
        while name.casefold() in taken:
            name, again = f"{written or 'column'}_{again}", again + 1
        taken.add(name.casefold())
        names.append(name)
    return names


def _cautions(table: Table, below: int) -> Iterator[str]:
    name, width = table.name, table.widths[0]
    rows = list(zip(table.lines, table.widths, strict=True))
    beyond = {
        row for column in table.columns[width:] for row, code in enumerate(column.codes) if column.values[code].strip()
    }
    longer = [table.lines[row] for row in sorted(beyond)]
    shorter = [line for line, cells in rows[below:] if cells < width]
    if longer:
        yield (
            f"{name}: {_counted(longer)} with more cells than the first row; those beyond are in the columns from "
            f"number {width + 1} on, and values may be shifted"
        )
    if shorter and not table.sheet:
        yield f"{name}: {_counted(shorter)} with fewer cells than the first row; the missing ones are NULL"


def _counted(lines: Sequence[int]) -> str:
    named = ", ".join(str(line) for line in lines[:LINES_NAMED]) + (", …" if len(lines) > LINES_NAMED else "")
    return f"{len(lines):,} row{'s' * (len(lines) > 1)} (line {named})"
