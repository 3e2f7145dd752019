"""The port to what calculates and queries tables, in a sandbox."""

from collections.abc import Sequence
from typing import Protocol

from waystation.domain.tables import Rows, Table, TableText


class TableEngine(Protocol):
    """Reads texts as tables and runs SQL over tables. It reaches nothing else: no file, no network, no state from one
    call to the next.
    """

    async def read(self, text: TableText) -> Table:
        """The rows of a text, as they were written, and what of their cells is hidden.

        Raises:
            QueryRefused: the text is no table, or takes more time or memory than it may. The reason quotes no cell.
        """
        ...

    async def query(self, sql: str, tables: Sequence[Table], most_rows: int) -> Rows:
        """The result of one SELECT, which may be over no table; at most so many rows of it.

        Columns have the narrowest type that takes all their values exactly: whole numbers, decimals, dates, truth
        values, else text. Empty cells are NULL. Numbers with leading zeros are text.

        Raises:
            QueryRefused: the SQL is wrong or does more than select, a table has no rows, or the query takes more time
                or memory than it may. The reason may quote cells.
        """
        ...
