"""A DuckDB database in memory that reaches nothing outside itself: tables go in, one SELECT is answered."""

from collections.abc import Iterable, Iterator, Sequence

import duckdb
import numpy as np
from duckdb import DuckDBPyConnection, DuckDBPyRelation, StatementType

from waystation.adapters.tables.asked import Asked, Unusable
from waystation.adapters.tables.column_types import column_type
from waystation.adapters.tables.grid import Grid, grid
from waystation.domain.tables import LINE_COLUMN, Cells, Column, Rows

MEMORY_MB = 500
CELL_CHARACTERS = 300
"""Longer values of a result are cut."""
RESULT_CHARACTERS = 200_000
"""Rows beyond are counted only."""
MOST_COUNTED = 1_000_000
"""Rows of a result."""
REASON_CHARACTERS = 600
"""Of what DuckDB says of an error: it quotes the query."""

_CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    # Neither files, addresses and other databases, nor Python's variables.
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # What memory does not take goes to no file.
    "temp_directory": "",
    "memory_limit": f"{MEMORY_MB}MB",
    # The same query brings the same rows in the same order.
    "threads": "1",
    "lock_configuration": "true",
}
_TEXT, _GIVEN = "_text", "_given"
"""Tables on the way; no name of an agent's begins like that."""


def answer(asked: Asked) -> Rows:
    """Load the tables and run the query. Raises Unusable."""
    with duckdb.connect(":memory:", config=_CONFIGURATION) as connection:
        try:
            tables = [grid(table) for table in asked.tables]
            for given, table in zip(asked.tables, tables, strict=True):
                _load(connection, given.name, table)
            connection.execute("BEGIN TRANSACTION READ ONLY")
            cautions = tuple(caution for table in tables for caution in table.cautions)
            return _rows(_selected(connection, asked.sql), asked.most_rows, cautions)
        except duckdb.OutOfMemoryException as error:
            raise Unusable(f"This needs more than {MEMORY_MB} MB of memory. Query less at once.") from error
        except duckdb.Error as error:
            raise Unusable(str(error)[:REASON_CHARACTERS]) from error


def _load(connection: DuckDBPyConnection, table_name: str, table: Grid) -> None:
    keys = [f"c{number}" for number in range(len(table.names))]
    cells = {key: _taken(column) for key, column in zip(keys, table.columns, strict=True)}
    connection.register(_GIVEN, cells | {"line": np.array(table.lines, dtype=np.int64)})
    trimmed = ", ".join(f"nullif(trim(CAST({key} AS VARCHAR)), '') AS {key}" for key in keys)
    connection.execute(f"CREATE TABLE {_TEXT} AS SELECT {trimmed}, line FROM {_GIVEN}")
    connection.unregister(_GIVEN)
    typed = ", ".join(
        f"CAST({key} AS {column_type(connection, _TEXT, key, _first(column))}) AS {_quoted(name)}"
        for key, name, column in zip(keys, table.names, table.columns, strict=True)
    )
    connection.execute(f"CREATE TABLE {_quoted(table_name)} AS SELECT {typed}, line AS {LINE_COLUMN} FROM {_TEXT}")
    connection.execute(f"DROP TABLE {_TEXT}")


def _selected(connection: DuckDBPyConnection, sql: str) -> DuckDBPyRelation:
    statements = connection.extract_statements(sql)
    if [statement.type for statement in statements] != [StatementType.SELECT]:
        raise Unusable("Only one SELECT at a time is carried out (PIVOT with its values in IN), and nothing else.")
    return connection.sql(statements[0])


def _rows(selected: DuckDBPyRelation, most_rows: int, cautions: tuple[str, ...]) -> Rows:
    columns = [Column(name=name, type=str(kind)) for name, kind in zip(selected.columns, selected.types, strict=True)]
    # As text by DuckDB itself: exact, and a value of many megabytes is cut before it is a Python object.
    text = selected.project(f"left(CAST(COLUMNS(*) AS VARCHAR), {CELL_CHARACTERS + 1})")
    first = text.limit(most_rows + 1).fetchall()
    count = len(first) if len(first) <= most_rows else _count(selected)
    return Rows(columns=tuple(columns), rows=tuple(_within(first[:most_rows])), row_count=count, cautions=cautions)


def _within(rows: Iterable[Sequence[str | None]]) -> Iterator[tuple[str | None, ...]]:
    room = RESULT_CHARACTERS
    for row in rows:
        yield tuple(map(_cut, row))
        room -= sum(len(cell or "") for cell in row)
        if room < 0:
            return


def _cut(cell: str | None) -> str | None:
    return cell if cell is None or len(cell) <= CELL_CHARACTERS else f"{cell[:CELL_CHARACTERS]}…"


def _count(selected: DuckDBPyRelation) -> int | None:
    try:
        ((count,),) = selected.limit(MOST_COUNTED + 1).count("*").fetchall()
    except duckdb.OutOfMemoryException:
        # Sorting that many rows takes more memory than finding the first of them.
        return None
    return int(count) if count <= MOST_COUNTED else None


def _taken(column: Cells) -> "np.ndarray[tuple[int], np.dtype[np.object_]]":
    return np.array(column.values, dtype=object)[np.array(column.codes, dtype=np.int64)]


def _first(column: Cells) -> str:
    """Empty where every cell is."""
    cells = (column.values[code].strip() for code in column.codes)
    return next(filter(None, cells), "")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
