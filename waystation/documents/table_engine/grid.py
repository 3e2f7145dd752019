"""Parses text into rows of cells with their line numbers, for any separator, and for rows of different lengths.

DuckDB's own reader is not used: it keeps no line numbers, and documents must not be written to files.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from waystation.documents.table_engine.engine import TableEngineError
from waystation.documents.tables import LINE_COLUMN, DictionaryColumn, Table, TableText
from waystation.kernel.patterns import compile_bounded, compile_linear
from waystation.privacy.policy import ReplacedRange, select_replaced_ranges

if TYPE_CHECKING:
    import _csv

MAX_COLUMNS = 500
MAX_CELLS = 20_000_000
_NAME_CHARACTERS = 100
"""Maximum characters of a column name; longer ones are cut."""
MAX_NAMED_LINES = 5
"""Maximum lines named in a caution."""

_SAMPLE_ROWS = 20
_SAMPLE_CHARACTERS = 10_000
"""Maximum characters of each sampled row."""
_SEPARATORS = ("\t", ";", "|", ",")
"""If several fit equally well, the one that is least common within cells wins."""
_BETWEEN_CELLS = compile_bounded(r"(?:^| )\|(?: |$)")
ERROR_PATTERN = r"#(?:N/A|NV|DIV/0!|[\p{Lu}_]{2,20}[!?])|Err:\d{3}"
"""What programs write into a cell whose formula has no result, in any of their languages: for RE2 here and in
DuckDB.
"""
ERROR = compile_linear(rf"\A(?:{ERROR_PATTERN})\z")


class QueryableTable(NamedTuple):
    """A table with named columns, and the line in the document on which each row begins."""

    names: Sequence[str]
    columns: Sequence[DictionaryColumn]
    """Without the row that names them."""
    lines: Sequence[int]
    cautions: Sequence[str]


class _Row(NamedTuple):
    line: int
    cells: list[str]
    hidden: Sequence[tuple[int, ReplacedRange]] = ()
    """Hidden ranges of its cells, each with the index of its cell."""


class _Stretch(NamedTuple):
    """Position of a cell in the text of its row, without the quotation marks around it."""

    start: int
    end: int
    quoted: bool = False
    """Whether each quotation mark in it is doubled."""
    escaped: bool = False
    """Whether some of its characters are escaped by a backslash."""


class _Dialect(NamedTuple):
    """How the rows of a text are written."""

    separator: str
    begin: int = 0
    """Index of the line with the first row, from 0: above it are a preamble and the line `sep=`."""
    blanks: bool = False
    """Whether spaces after a separator are not part of the cell."""
    escapes: bool = False
    """Whether a quotation mark in a cell is escaped by a backslash, not doubled."""

    def reader(self, lines: Sequence[str]) -> "_csv.Reader":
        """Return a reader over these lines."""
        return csv.reader(
            (f"{line}\n" for line in lines),
            delimiter=self.separator,
            skipinitialspace=self.blanks,
            escapechar="\\" if self.escapes else None,
            strict=True,
        )


def read_grid(text: TableText) -> Table:
    """Parse the rows of a text. Raises TableEngineError, which quotes no cell."""
    rows = list(_rows(text))
    if not rows:
        raise TableEngineError(f"{text.name} has no rows.")
    widest = max(rows, key=lambda row: len(row.cells))
    width = len(widest.cells)
    if width > MAX_COLUMNS:
        raise TableEngineError(f"Line {widest.line} of {text.name} has {width:,} cells; the maximum is {MAX_COLUMNS}.")
    if width * len(rows) > MAX_CELLS:
        raise TableEngineError(f"{text.name} has more than {MAX_CELLS:,} cells. Query fewer lines of it at a time.")
    return Table(
        name=text.name,
        columns=tuple(_columns(rows)),
        lines=tuple([row.line for row in rows]),
        widths=tuple([len(row.cells) for row in rows]),
        heading=text.heading,
        sheet=text.sheet,
        above=_above(text, rows[0].line),
    )


def _above(text: TableText, first: int) -> tuple[int, int] | None:
    lines = text.text.removeprefix("\ufeff").splitlines()[: first - text.first_line]
    said = 1 if lines and _SAYS_SEPARATOR.match(lines[0]) else 0
    return (text.first_line, first - 1) if any(map(str.strip, lines[said:])) else None


def _columns(rows: Sequence[_Row]) -> Iterator[DictionaryColumn]:
    hidden: dict[int, list[tuple[int, ReplacedRange]]] = {}
    for number, row in enumerate(rows):
        for column, found in row.hidden:
            hidden.setdefault(column, []).append((number, found))
    for number, cells in enumerate(zip_longest(*(row.cells for row in rows), fillvalue="")):
        yield _cells(cells, hidden.get(number, ()))


def _cells(column: Sequence[str], hidden: Sequence[tuple[int, ReplacedRange]]) -> DictionaryColumn:
    """Build a column. `hidden`: hidden ranges with the numbers of their rows."""
    places: dict[str, int] = {}
    codes = (0, *[places.setdefault(value, len(places) + 1) for value in column[1:]])
    found: dict[int, dict[ReplacedRange, None]] = {}
    for row, one in hidden:
        found.setdefault(codes[row], {})[one] = None
    return DictionaryColumn(
        values=(column[0], *places), codes=codes, hidden={place: tuple(each) for place, each in found.items()}
    )


def build_queryable_table(table: Table) -> QueryableTable:
    """Return the table as queries see it. Raises TableEngineError."""
    if not table.lines:
        raise TableEngineError(f"{table.name} has no rows.")
    first = [column.values[column.codes[0]] for column in table.columns]
    below = 1 if table.heading else 0
    return QueryableTable(
        names=_names(first[: table.widths[0]] if table.heading else [], len(table.columns)),
        columns=[column.replace(codes=column.codes[below:]) for column in table.columns],
        lines=table.lines[below:],
        cautions=[*_cautions(table, below)],
    )


def _rows(table: TableText) -> Iterator[_Row]:
    text = table.text.removeprefix("\ufeff")
    lines = text.splitlines()
    for number, line in enumerate(lines, table.first_line):
        if "\0" in line:
            raise TableEngineError(f"{table.name} is not text: line {number} has a NUL character.")
    hidden = _Hidden(table.hidden, lines, len(table.text) - len(text))
    if table.sheet or not (dialect := _dialect(lines, table)):
        return _piped(lines, hidden, table.first_line)
    return _separated(lines, hidden, dialect, table)


class _Hidden:
    """Hidden ranges of a table's lines."""

    def __init__(self, found: Sequence[ReplacedRange], lines: Sequence[str], begin: int) -> None:
        """`begin`: position of the first line."""
        self._found = found
        self._starts = list(accumulate((len(line) + 1 for line in lines), initial=begin)) if found else []

    def of(self, first: int, last: int) -> list[ReplacedRange]:
        """Return the ranges in the text of these lines, counted from 0, excluding the last."""
        if not self._found:
            return []
        return list(select_replaced_ranges(self._found, self._starts[first], self._starts[last] - 1))


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


def _quoted_cells(row: str, cells: Sequence[str], dialect: _Dialect) -> Iterator[_Stretch]:
    """Yield the positions of the cells that a strict reader found in the text of their row."""
    start = 0
    for cell in cells:
        while dialect.blanks and row.startswith(" ", start):
            start += 1
        quoted = row.startswith('"', start)
        begin = start + quoted
        if dialect.escapes:
            end = _end_of_escaped(row, begin, '"' if quoted else dialect.separator)
        else:
            end = begin + len(cell) + (cell.count('"') if quoted else 0)
        yield _Stretch(begin, end, quoted, escaped="\\" in row[begin:end] and dialect.escapes)
        start = end + quoted + 1


def _end_of_escaped(row: str, begin: int, closing: str) -> int:
    end = begin
    while end < len(row) and row[end] != closing:
        end += 2 if row[end] == "\\" else 1
    return min(end, len(row))


def _in_cells(
    cells: Iterator[_Stretch], row: str, found: Sequence[ReplacedRange]
) -> Iterator[tuple[int, ReplacedRange]]:
    """Yield the hidden ranges of each cell in characters of its value; without a placeholder that stands for more."""
    first = 0
    for number, cell in enumerate(cells):
        while first < len(found) and found[first].end <= cell.start:
            first += 1
        last = first
        while last < len(found) and found[last].start < cell.end:
            last += 1
        for one in _in_cell(cell, row, found[first:last]):
            yield number, one


def _in_cell(cell: _Stretch, row: str, found: Sequence[ReplacedRange]) -> Iterator[ReplacedRange]:
    if cell.escaped:  # its position in the value is not worth computing: the whole cell is hidden
        yield from (ReplacedRange(0, cell.end - cell.start, one.type, "") for one in found[:1])
        return
    at, marks = cell.start, 0
    for one in found:
        ends: list[int] = []
        for place in (max(one.start, cell.start), min(one.end, cell.end)):
            marks += row.count('"', at, place) if cell.quoted else 0
            ends.append(place - cell.start - marks // 2)
            at = place
        if ends[0] < ends[1]:
            own = cell.start <= one.start and one.end <= cell.end
            yield ReplacedRange(ends[0], ends[1], one.type, one.placeholder if own else "")


def _is_rule(line: str) -> bool:
    """Whether it is the line below the heading of a Markdown table."""
    return "---" in line and not line.strip("|: -")


def _separated(lines: Sequence[str], hidden: _Hidden, dialect: _Dialect, table: TableText) -> Iterator[_Row]:
    reader = dialect.reader(lines[dialect.begin :])
    begins = dialect.begin
    try:
        for cells in reader:
            ends = dialect.begin + reader.line_num
            if any(map(str.strip, cells)):
                found = hidden.of(begins, ends)
                row = "\n".join(lines[begins:ends]) if found else ""
                places = list(_in_cells(_quoted_cells(row, cells, dialect), row, found)) if found else ()
                yield _Row(table.first_line + begins, cells, places)
            begins = ends
    except csv.Error as error:
        raise TableEngineError(
            f"The row of {table.name} that begins on line {table.first_line + begins} cannot be read "
            f"({error}): a cell is too long, or a quotation mark closes too early or never. Query the lines "
            "before or after this row."
        ) from None


_SAYS_SEPARATOR = compile_bounded(r"\A\"?sep=(?P<separator>[^\w\s\"]|\t)\"?[ \t]{0,4}\Z", re.IGNORECASE)
"""Excel writes this above a table for itself, to define the separator."""
_MAX_PREAMBLE = 10
"""Maximum non-blank lines."""


def _dialect(lines: Sequence[str], table: TableText) -> _Dialect | None:
    """Return how the rows are written; None if cells are separated by ` | `."""
    said = _SAYS_SEPARATOR.match(lines[0]) if lines else None
    if said:
        found = _Dialect(said["separator"], begin=1)
    else:
        sample = [(number, line) for number, line in enumerate(lines) if line.strip()][:_SAMPLE_ROWS]
        separator, above = _separator([line for _, line in sample])
        if separator is None:
            return None
        found = _Dialect(separator, begin=sample[above][0] if above and table.heading else 0)
    rows = lines[found.begin :]
    found = found._replace(blanks=_has_blanks(rows[:_SAMPLE_ROWS], found.separator))
    if any('\\"' in line for line in rows) and not _is_readable(rows, found):
        escaped = found._replace(escapes=True)
        return escaped if _is_readable(rows, escaped) else found
    return found


def _is_readable(rows: Sequence[str], dialect: _Dialect) -> bool:
    try:
        for _ in dialect.reader(rows):
            pass
    except csv.Error:
        return False
    return True


def _has_blanks(sample: Sequence[str], separator: str) -> bool:
    """Whether spaces after separators belong to no cell: a quotation mark follows them, or they are always there."""
    if any(f'{separator} "' in line for line in sample):
        return True
    there = [line for line in sample if separator in line]
    return bool(there) and all(line.count(separator) == line.count(f"{separator} ") for line in there)


def _separator(rows: Sequence[str]) -> tuple[str | None, int]:
    """Return the separator by which the first rows agree best with their heading, and how many rows are above that;
    None if cells are separated by ` | `.
    """
    sample = [line[:_SAMPLE_CHARACTERS] for line in rows]
    widths = {one: [len(cells) for cells in csv.reader(sample, delimiter=one)] for one in _SEPARATORS}
    above = {one: _preamble(found) for one, found in widths.items()}
    agreement = {one: _agreement(found[above[one] :]) for one, found in widths.items()}
    best = max(_SEPARATORS, key=lambda one: (agreement[one], max(widths[one], default=0)))
    if best == "|" and any(_BETWEEN_CELLS.search(line) for line in sample):
        return None, 0
    return best, above[best] if len(widths[best]) == len(sample) else 0  # otherwise rows span lines


def _preamble(widths: Sequence[int]) -> int:
    """Return how many of the first rows are not part of the table: those with at most half the cells of most rows."""
    counted = Counter(width for width in widths if width > 1)
    usual, times = max(counted.items(), key=itemgetter(1), default=(0, 0))
    above = next((number for number, width in enumerate(widths) if width != 1 and 2 * width > usual), 0)
    is_table = above <= _MAX_PREAMBLE and widths[above : above + 1] == [usual] and 2 * times > len(widths) - above
    return above if is_table and times > 1 else 0


def _agreement(widths: Sequence[int]) -> int:
    return widths.count(widths[0]) if widths and widths[0] > 1 else 0


def _names(heading: Sequence[str], width: int) -> list[str]:
    """Return one name for each column, unique regardless of case, which SQL ignores."""
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
    if table.above:
        first, last = table.above
        above = (
            f"line {first}, above the heading, is" if first == last else f"lines {first}-{last}, above the heading, are"
        )
        yield f"{name}: {above} not read as part of the table; if that is wrong, query other lines"
    yield from _error_cautions(table, below)
    if longer:
        yield (
            f"{name}: {_counted(longer)} with more cells than the first row; the additional cells are in column "
            f"{width + 1} and later, and values may be shifted"
        )
    if shorter and not table.sheet:
        yield f"{name}: {_counted(shorter)} with fewer cells than the first row; the missing cells are NULL"


def _error_cautions(table: Table, below: int) -> Iterator[str]:
    for number, column in enumerate(table.columns):
        places = {place for place, value in enumerate(column.values) if ERROR.match(value.strip())}
        found = (
            [(row, code) for row, code in enumerate(column.codes[below:], below) if code in places] if places else []
        )
        if found:
            kinds = ", ".join(dict.fromkeys(column.values[code].strip() for _, code in found))
            heading = column.values[column.codes[0]].strip() if table.heading else ""
            has = "have" if len(found) > 1 else "has"
            lines = _counted([table.lines[row] for row, _ in found])
            yield (
                f"{table.name}: {lines} {has} an error ({kinds}) instead of a value in {_column_name(heading, number)}"
                "; if the other cells of the column are numbers or dates, the errors are NULL, and sums, counts and "
                "averages ignore them"
            )


def _column_name(heading: str, number: int) -> str:
    return f"column {' '.join(heading.split())[:_NAME_CHARACTERS] or f'number {number + 1}'}"


def _counted(lines: Sequence[int]) -> str:
    named = ", ".join(str(line) for line in lines[:MAX_NAMED_LINES]) + (", …" if len(lines) > MAX_NAMED_LINES else "")
    plural = "s" * (len(lines) > 1)
    return f"{len(lines):,} row{plural} (line{plural} {named})"
