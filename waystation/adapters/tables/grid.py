"""Text to rows of cells that know their lines: whatever separates the cells, and however many a row has.

Rows are not read by DuckDB's own reader: that keeps no line numbers, and documents must not be written to files.
"""

import csv
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple

from waystation.adapters.tables.asked import Unusable
from waystation.patterns import proven
from waystation.ports.tables import LINE_COLUMN, TableText

MOST_COLUMNS = 500
MOST_CELLS = 20_000_000
NAME_CHARACTERS = 100
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
    """A table by columns, and the line in the document on which each row begins."""

    names: Sequence[str]
    columns: Sequence[Sequence[str]]
    """Cells of each column, one for each of the lines; empty where a row ends earlier."""
    lines: Sequence[int]
    cautions: Sequence[str]


class _Row(NamedTuple):
    line: int
    cells: list[str]


def grid(table: TableText) -> Grid:
    """The rows of a text. Raises Unusable."""
    rows = list(_rows(table))
    if not rows:
        raise Unusable(f"{table.name} has no rows.")
    widest = max(rows, key=lambda row: len(row.cells))
    width = len(widest.cells)
    if width > MOST_COLUMNS:
        raise Unusable(f"Line {widest.line} of {table.name} has {width:,} cells, and {MOST_COLUMNS} is the most.")
    if width * len(rows) > MOST_CELLS:
        raise Unusable(f"{table.name} has more than {MOST_CELLS:,} cells. Query fewer lines of it at once.")
    heading, body = (rows[0].cells, rows[1:]) if table.heading else ([], rows)
    columns = [*zip_longest(*(row.cells for row in body), fillvalue="")]
    return Grid(
        names=_names(heading, width),
        columns=columns + [("",) * len(body)] * (width - len(columns)),
        lines=[row.line for row in body],
        cautions=[*_cautions(table.name, body, len(rows[0].cells), padded=not table.sheet)],
    )


def _rows(table: TableText) -> Iterator[_Row]:
    lines = table.text.removeprefix("\ufeff").splitlines()
    for number, line in enumerate(lines, table.first_line):
        if "\0" in line:
            raise Unusable(f"Line {number} of {table.name} has a NUL character: this is no table of text.")
    if table.sheet or not (separator := _separator(lines)):
        return _piped(lines, table.first_line)
    return _separated(lines, separator, table)


def _piped(lines: Sequence[str], first_line: int) -> Iterator[_Row]:
    for number, line in enumerate(lines, first_line):
        if line.strip() and not _is_rule(line):
            yield _Row(number, _BETWEEN_CELLS.split(line))


def _is_rule(line: str) -> bool:
    """Whether it is the line below the heading of a Markdown table."""
    return "---" in line and not line.strip("|: -")


def _separated(lines: Sequence[str], separator: str, table: TableText) -> Iterator[_Row]:
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    begins = table.first_line
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                yield _Row(begins, cells)
            begins = table.first_line + reader.line_num
    except csv.Error as error:
        raise Unusable(
            f"The row of {table.name} that begins on line {begins} cannot be read ({error}): a cell there is "
            "too long, or its quotation mark closes too early or never. Query the lines before or after it."
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
        written = " ".join(heading[number - 1].split())[:NAME_CHARACTERS] if number <= len(heading) else ""
        name, again = written or f"column_{number}", 2
        while name.casefold() in taken:
            name, again = f"{written or 'column'}_{again}", again + 1
        taken.add(name.casefold())
        names.append(name)
    return names


def _cautions(name: str, rows: Sequence[_Row], width: int, *, padded: bool) -> Iterator[str]:
    longer = [row.line for row in rows if any(cell.strip() for cell in row.cells[width:])]
    shorter = [row.line for row in rows if len(row.cells) < width]
    if longer:
        yield (
            f"{name}: {_counted(longer)} with more cells than the first row; those beyond are in the columns from "
            f"number {width + 1} on, and values may be shifted"
        )
    if shorter and padded:
        yield f"{name}: {_counted(shorter)} with fewer cells than the first row; the missing ones are NULL"


def _counted(lines: Sequence[int]) -> str:
    named = ", ".join(str(line) for line in lines[:LINES_NAMED]) + (", …" if len(lines) > LINES_NAMED else "")
    return f"{len(lines):,} row{'s' * (len(lines) > 1)} (line {named})"
