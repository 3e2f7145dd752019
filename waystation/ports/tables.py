"""The port to what calculates and queries tables, in a sandbox."""

from collections.abc import Sequence
from typing import Protocol

from waystation.domain.value import Value

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


class Column(Value):
    """A column and its SQL type, such as `DECIMAL(18,2)`."""

    name: str
    type: str


class Rows(Value):
    """What a query gives. Values are text as SQL writes it, those of more than a few hundred characters cut."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]
    row_count: int | None
    """Of the whole result, of which `rows` may be the beginning; None: too many to be counted."""
    cautions: tuple[str, ...] = ()
    """What was odd in the tables that were queried, such as rows with more cells than the heading."""


class TableEngine(Protocol):
    """Runs SQL over texts and reaches nothing else: no file, no network, no state from one query to the next."""

    async def query(self, sql: str, tables: Sequence[TableText], most_rows: int) -> Rows:
        """The result of one SELECT, which may be over no table; at most so many rows of it.

        Columns have the narrowest type that takes all their values exactly: whole numbers, decimals, dates, truth
        values, else text. Empty cells are NULL. Numbers with leading zeros are text.

        Raises:
            QueryRefused: the SQL is wrong or does more than select, a text is no table, or the query takes more time or
                memory than it may.
        """
        ...
