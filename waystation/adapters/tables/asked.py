"""What the parent asks of the child, and what it gets."""

from waystation.domain.tables import Rows, Table, TableText
from waystation.domain.value import Value

MEMORY = 2_000_000_000
"""Bytes of address space: DuckDB's own, and the cells of the largest table before they are in it."""


class Asked(Value):
    """A text to read as a table, or one query over tables."""

    text: TableText | None = None
    sql: str = ""
    tables: tuple[Table, ...] = ()
    most_rows: int = 0


class Answered(Value):
    """The table, or the result, or why there is none."""

    table: Table | None = None
    rows: Rows | None = None
    refused: str = ""


class Unusable(Exception):
    """A text that is no table, or a query that cannot be run. The message says why."""
