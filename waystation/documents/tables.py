"""Tables as values: the text that is read as a table, its cells, and the result of a query.

A child is started for each table and each query. It imports these values and no port: the ports load most of the
domain, which took longer than most tables take.
"""

from bisect import bisect_left, bisect_right

from waystation.kernel.value import Value
from waystation.privacy.policy import ReplacedRange

LINE_COLUMN = "_line"
"""Last column of every table: the line of the document on which a row begins."""


class TableText(Value):
    """Lines of a document that are one table: comma-separated values, or rows with another separator."""

    name: str
    """Name for queries."""
    text: str
    first_line: int = 1
    """Number of its first line in the document."""
    heading: bool = True
    """Whether the first row names the columns; if not, they are `column_1`, `column_2` and so on."""
    sheet: bool = False
    """Whether it comes from a workbook, so that ` | ` separates cells, whatever they contain."""
    hidden: tuple[ReplacedRange, ...] = ()
    """Ranges of `text`, with line feeds, that agents are not shown: in order and without overlaps. A range that
    continues above or below these lines begins or ends on a line end.
    """


class DictionaryColumn(Value):
    """The cells of one column: each distinct value once, and the index of each row's value.

    The first value belongs to the first row alone: a possible column name is kept apart from equal cells below.
    """

    values: tuple[str, ...]
    codes: tuple[int, ...]
    """For each row, the index of its value in `values`; an empty value if a row ends earlier."""
    hidden: dict[int, tuple[ReplacedRange, ...]] = {}
    """By index in `values`, the ranges that agents are not shown in any of its cells, in no order."""


class Table(Value):
    """A text as rows and columns, whatever its separator."""

    name: str
    """Name for queries."""
    columns: tuple[DictionaryColumn, ...]
    lines: tuple[int, ...]
    """For each row, the line of the document on which it begins, ascending."""
    widths: tuple[int, ...]
    """For each row, its own number of cells."""
    heading: bool = True
    """Whether the first row names the columns; if not, they are `column_1`, `column_2` and so on."""
    sheet: bool = False
    """Whether it comes from a workbook, which omits empty cells at the end of a row."""
    above: tuple[int, int] | None = None
    """First and last of the lines before the heading that are not rows of the table."""

    def slice_lines(self, first_line: int, last_line: int) -> "Table":
        """Return the rows that begin on these lines, both ends included."""
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
    """The result of a query. Values are text as SQL writes it, cut after a few hundred characters."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]
    row_count: int | None
    """Rows of the whole result, of which `rows` may be the beginning; None if there are too many to count."""
    cautions: tuple[str, ...] = ()
    """Oddities of the queried tables, such as rows with more cells than the heading."""
