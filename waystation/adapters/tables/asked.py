"""What the parent asks of the child, and what it gets."""

from waystation.domain.value import Value
from waystation.ports.tables import Rows, TableText

MEMORY = 2_000_000_000
"""Bytes of address space: DuckDB's own, and the cells of the largest table before they are in it."""


class Asked(Value):
    """One query over tables."""

    sql: str
    tables: tuple[TableText, ...]
    most_rows: int


class Answered(Value):
    """Its result, or why there is none."""

    rows: Rows | None = None
    refused: str = ""


class Unusable(Exception):
    """A text that is no table, or a query that cannot be run. The message says why."""
