"""Tables as values: what is read as one, its cells, and what a query over some gives.

A child is started for each table that is read and each query. It imports these values and no port: the ports load
most of the domain, which took longer than most tables take.
"""

from bisect import bisect_left, bisect_right

from waystation.kernel.value import Value
from waystation.privacy.policy import ReplacedRange

LINE_COLUMN = "_line"
"""Last column of every table: the line of the document on which a row begins."""


class TableText(Value):
    """Lines of a document that are one table: comma-separated values, or rows with other signs between their cells."""

    name: str
    """By which queries call it."""
    text: str
    first_line: int = 1
    """Number of its first line in the document."""
    heading: bool = True
    """The first row names the columns; else they are `column_1`, `column_2` and so on."""
    sheet: bool = False
    """It comes from a workbook: whatever its cells hold, ` | ` is between them."""
    hidden: tuple[ReplacedRange, ...] = ()
    """What of `text`, its lines ended by line feeds, agents are not shown: in order and apart from each other. A
    stretch that goes on above or below these lines begins or ends on a line end.
    """


class DictionaryColumn(Value):
    """The cells of one column: each value once, and which of them each row has.

    The first value is the first row's alone: what may be the name of the column is told apart from equal cells below.
    """

    values: tuple[str, ...]
    codes: tuple[int, ...]
    """Of each row, the place of its value in `values`; empty values where a row ends earlier."""
    hidden: dict[int, tuple[ReplacedRange, ...]] = {}
    """By place in `values`, what of the value agents are not shown in any of its cells: in no order."""


class Table(Value):
    """A text as rows and columns, whatever stood between its cells."""

    name: str
    """By which queries call it."""
    columns: tuple[DictionaryColumn, ...]
    lines: tuple[int, ...]
    """Of each row, the line of the document on which it begins: rising."""
    widths: tuple[int, ...]
    """Of each row, how many cells it has of its own."""
    heading: bool = True
    """The first row names the columns; else they are `column_1`, `column_2` and so on."""
    sheet: bool = False
    """It comes from a workbook, where empty cells at the end of a row are not written."""
    above: tuple[int, int] | None = None
    """First and last of the lines that stand before the heading and are no row of the table."""

    def slice_lines(self, first_line: int, last_line: int) -> "Table":
        """The rows that begin on these lines, both ends included."""
        begin, end = bisect_left(self.lines, first_line), bisect_right(self.lines, last_line)
        if (begin, end) == (0, len(self.lines)):
            return self
        widths = self.widths[begin:end]
        columns = tuple(
            [column.replace(codes=column.codes[begin:end]) for column in self.columns[: max(widths, default=0)]]
        )
        above = None if begin else self.above
        return self.replace(columns=columns, lines=self.lines[begin:end], widths=widths, above=above)


class Column(Value):
    """A column and its SQL type, such as `DECIMAL(18,2)`."""

    name: str
    type: str


class QueryResult(Value):
    """What a query gives. Values are text as SQL writes it, those of more than a few hundred characters cut."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]
    row_count: int | None
    """Of the whole result, of which `rows` may be the beginning; None: too many to be counted."""
    cautions: tuple[str, ...] = ()
    """What was odd in the tables that were queried, such as rows with more cells than the heading."""
