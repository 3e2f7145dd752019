"""The tool that queries tables in the task's documents."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, StringConstraints

from waystation.agents.redacted_documents import RedactedDocuments
from waystation.agents.tables import Tables
from waystation.agents.tools.table_sources import TableSource, TableSources
from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool, page
from waystation.domain.errors import QueryRefused
from waystation.domain.projection import LAST, SOON, urgent
from waystation.domain.tables import Rows
from waystation.ports import DocumentStore

MOST_TABLES = 8
ROWS_SHOWN = 100
SAMPLE_ROWS = 5
"""Of a table that is looked at before it is queried."""

TableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$")]


class QueryTableInput(ToolInput):
    """Tables and what is asked of them."""

    tables: dict[TableName, str] = Field(
        min_length=1,
        max_length=MOST_TABLES,
        description="The name that sql uses for each table, and its document, or lines of it: "
        '{"sales": "q3.csv", "costs": "book.xlsx:3-40"}.',
    )
    sql: str | None = Field(default=None, max_length=10_000, description="One SELECT. Leave it out to see the tables.")
    without_heading: tuple[str, ...] = Field(
        default=(), description="Names of tables whose first row is no heading: their columns are column_1, column_2, …"
    )


class QueryTable(TypedTool[QueryTableInput]):
    """A SELECT over documents."""

    name = "query_table"
    description = (
        "Runs one SQL SELECT (DuckDB) over tables in documents: CSV, TSV, sheets of a workbook, rows with | between "
        "cells. Leave sql out first: it shows columns, types and first rows. Names of columns with spaces need "
        'double quotes: "Net amount". Columns of numbers written like 1.234,56 or 12 % are text: convert them in the '
        "query. The column _line has the line of the document, for citations. Private cells are placeholders, in SQL "
        "too: the same value has the same one, to be compared, joined and counted by."
    )
    rereadable = True
    originals = frozenset({"tables"})
    permission = "compute"
    urgency = urgent(LAST)
    input_model = QueryTableInput

    def __init__(
        self, documents: DocumentStore, redacted: RedactedDocuments, tables: Tables, *, wanted: bool = False
    ) -> None:
        """`wanted`: the task has documents that are tables."""
        self._sources, self._engine = TableSources(documents, redacted, tables), tables.engine
        if wanted:
            self.urgency = urgent(SOON)

    async def run(self, arguments: QueryTableInput, at: CallSite) -> str:
        """Where the tables stand, how many rows there are, and a Markdown table."""
        try:
            sources = await self._sources.read(at, arguments.tables, arguments.without_heading)
            at.notices.extend(dict.fromkeys(note for source in sources for note in source.notes))
            if arguments.sql is not None:
                lines = await self._queried(arguments.sql, sources, at.page_characters)
            else:
                room = at.page_characters // len(sources)
                lines = [line for source in sources for line in await self._looked_at(source, room)]
        except QueryRefused as refused:
            raise ToolRefused(str(refused)) from refused
        return "\n".join(lines)

    async def _queried(self, sql: str, sources: Sequence[TableSource], characters: int) -> list[str]:
        result = await self._engine.query(sql, [source.table for source in sources], ROWS_SHOWN)
        return [
            *(f"{source.table.name} is {source.citation}" for source in sources),
            *result.cautions,
            *_shown(result, characters),
        ]

    async def _looked_at(self, source: TableSource, characters: int) -> list[str]:
        first = await self._engine.query(f'FROM "{source.table.name}"', [source.table], SAMPLE_ROWS)
        types = ", ".join(f'"{column.name}" {column.type}' for column in first.columns)
        (columns,), _ = page([f"columns: {types}"], characters // 2)
        return [f"{source.table.name} is {source.citation}", columns, *first.cautions, *_shown(first, characters // 2)]


def _shown(result: Rows, characters: int) -> list[str]:
    """How many rows there are, and those of them that fit, as a Markdown table."""
    heading = [_row([column.name for column in result.columns]), _row(["---"] * len(result.columns))]
    lines, _ = page([*heading, *map(_row, result.rows)], characters)
    shown = max(0, len(lines) - len(heading))
    count = "more rows than can be counted" if result.row_count is None else f"{result.row_count:,} rows"
    rest = "" if result.row_count == shown else f", the first {shown} shown; filter, aggregate or use OFFSET for others"
    return [count + rest, *lines]


def _row(cells: Sequence[str | None]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: str | None) -> str:
    """On one line, with nothing in it that no text has."""
    if value is None:
        return "NULL"
    return "".join(sign if sign.isprintable() else " " for sign in value).replace("|", r"\|")
