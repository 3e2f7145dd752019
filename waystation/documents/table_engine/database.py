"""A DuckDB database in memory that reaches nothing outside itself: it loads tables and answers one SELECT.

A column of text gets the narrowest SQL type that represents each of its values as written, without loss. DuckDB's own
guess would turn `007` into 7 and a price into a binary fraction.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import duckdb
import numpy as np
from duckdb import DuckDBPyConnection, DuckDBPyRelation, StatementType

from waystation.documents.table_engine.engine import EngineRequest, TableEngineError
from waystation.documents.table_engine.grid import ERROR, ERROR_PATTERN, QueryableTable, build_queryable_table
from waystation.documents.tables import LINE_COLUMN, Column, DictionaryColumn, QueryResult
from waystation.kernel.patterns import LinearPattern, compile_linear

TEXT = "VARCHAR"
_SHORT, _LONG = 18, 38
"""Digits of DuckDB's decimals; calculations with the short ones are faster."""
_DATE = r"\d{4}-\d{2}-\d{2}"
_WHOLE = r"[+-]?(0|[1-9]\d{0,17})"
_DECIMAL = r"[+-]?(0|[1-9]\d*|(0|[1-9]\d*)?\.\d+)"


class _Kind(NamedTuple):
    type: str
    written: str
    """Regular expression for the whole value, for RE2 here and in DuckDB."""
    whole: LinearPattern


_KINDS = tuple(
    _Kind(type_name, written, compile_linear(rf"\A(?:{written})\z"))
    for type_name, written in (
        ("BOOLEAN", "(?i:true|false)"),
        ("BIGINT", _WHOLE),
        ("DECIMAL", _DECIMAL),
        ("DOUBLE", rf"{_DECIMAL}([eE][+-]?\d{{1,3}})?"),
        ("DATE", _DATE),
        ("TIMESTAMP", rf"{_DATE}[ T]\d{{2}}:\d{{2}}(:\d{{2}}(\.\d{{1,6}})?)?"),
    )
)


def infer_column_type(connection: DuckDBPyConnection, table: str, column: str, first: str) -> str:
    """Return the type of a column of text in which empty cells are NULL; `first` is its first value.

    No name may need quotes.
    """
    for kind in _KINDS:
        # The first value saves most columns of a wide table their queries.
        if kind.whole.match(first) and (chosen := _fitting(connection, table, column, kind)):
            return chosen
    return TEXT


def _fitting(connection: DuckDBPyConnection, table: str, column: str, kind: _Kind) -> str | None:
    other = f"NOT regexp_full_match({column}, '{kind.written}')"
    if kind.type == "DECIMAL":
        return None if _exists(connection, table, other) else _decimal(connection, table, column)
    beyond = f"{column} IS NOT NULL AND TRY_CAST({column} AS {kind.type}) IS NULL"
    return None if _exists(connection, table, f"{other} OR {beyond}") else kind.type


def _decimal(connection: DuckDBPyConnection, table: str, column: str) -> str | None:
    before, after = f"split_part(ltrim({column}, '+-'), '.', 1)", f"split_part({column}, '.', 2)"
    counted = f"SELECT max(length({before})), max(length({after})) FROM {table}"
    ((whole, fraction),) = connection.execute(counted).fetchall()
    digits = next((most for most in (_SHORT, _LONG) if whole + fraction <= most), None)
    return f"DECIMAL({digits},{fraction})" if digits else None


def _exists(connection: DuckDBPyConnection, table: str, condition: str) -> bool:
    return bool(connection.execute(f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1").fetchall())


MEMORY_MB = 500
CELL_CHARACTERS = 300
"""Maximum characters of a value in a result; longer ones are cut."""
ROWS_CHARACTERS = 200_000
"""Maximum characters of returned rows; further rows are only counted."""
MAX_COUNTED_ROWS = 1_000_000
"""Maximum rows that are counted."""
_REASON_CHARACTERS = 600
"""Maximum characters of DuckDB's error message, which quotes the query."""

_CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    # Neither files, addresses and other databases, nor Python's variables.
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # What does not fit into memory goes to no file.
    "temp_directory": "",
    "memory_limit": f"{MEMORY_MB}MB",
    # The same query returns the same rows in the same order.
    "threads": "1",
    "lock_configuration": "true",
}
_TEXT, _GIVEN, _WITHOUT_ERRORS = "_text", "_given", "_without_errors"
"""Intermediate tables; no agent's table name begins like that."""


def answer_query(request: EngineRequest) -> QueryResult:
    """Load the tables and run the query. Raises TableEngineError."""
    with duckdb.connect(":memory:", config=_CONFIGURATION) as connection:
        try:
            tables = [build_queryable_table(table) for table in request.tables]
            for given, table in zip(request.tables, tables, strict=True):
                _load(connection, given.name, table)
            connection.execute("BEGIN TRANSACTION READ ONLY")
            cautions = tuple(caution for table in tables for caution in table.cautions)
            return _rows(_selected(connection, request.sql), request.max_rows, cautions)
        except duckdb.OutOfMemoryException as error:
            raise TableEngineError(
                f"The query needs over {MEMORY_MB} MB of memory. Query less data at a time."
            ) from error
        except duckdb.Error as error:
            raise TableEngineError(str(error)[:_REASON_CHARACTERS]) from error


def _load(connection: DuckDBPyConnection, table_name: str, table: QueryableTable) -> None:
    keys = [f"c{number}" for number in range(len(table.names))]
    cells = {key: _taken(column) for key, column in zip(keys, table.columns, strict=True)}
    connection.register(_GIVEN, cells | {"line": np.array(table.lines, dtype=np.int64)})
    trimmed = ", ".join(f"nullif(trim(CAST({key} AS VARCHAR)), '') AS {key}" for key in keys)
    connection.execute(f"CREATE TABLE {_TEXT} AS SELECT {trimmed}, line FROM {_GIVEN}")
    connection.unregister(_GIVEN)
    typed = ", ".join(
        f"{_typed(connection, key, column)} AS {_quoted(name)}"
        for key, name, column in zip(keys, table.names, table.columns, strict=True)
    )
    connection.execute(f"CREATE TABLE {_quoted(table_name)} AS SELECT {typed}, line AS {LINE_COLUMN} FROM {_TEXT}")
    connection.execute(f"DROP TABLE {_TEXT}")


def _typed(connection: DuckDBPyConnection, key: str, column: DictionaryColumn) -> str:
    """Return the typed column of `_TEXT`. Spreadsheet errors are NULL among numbers and dates, and text among text."""
    if not any(ERROR.match(value.strip()) for value in column.values):
        return f"CAST({key} AS {infer_column_type(connection, _TEXT, key, _first(column))})"
    whole = f"CASE WHEN regexp_full_match({key}, '{ERROR_PATTERN}') THEN NULL ELSE {key} END"
    connection.execute(f"CREATE TABLE {_WITHOUT_ERRORS} AS SELECT {whole} AS {key} FROM {_TEXT}")
    type_name = infer_column_type(connection, _WITHOUT_ERRORS, key, _first(column))
    connection.execute(f"DROP TABLE {_WITHOUT_ERRORS}")
    return f"CAST({key if type_name == TEXT else whole} AS {type_name})"


def _selected(connection: DuckDBPyConnection, sql: str) -> DuckDBPyRelation:
    statements = connection.extract_statements(sql)
    if [statement.type for statement in statements] != [StatementType.SELECT]:
        raise TableEngineError("A query must be a single SELECT. A PIVOT must list its values in IN.")
    return connection.sql(statements[0])


def _rows(selected: DuckDBPyRelation, most_rows: int, cautions: tuple[str, ...]) -> QueryResult:
    columns = [Column(name=name, type=str(kind)) for name, kind in zip(selected.columns, selected.types, strict=True)]
    # As text by DuckDB itself: exact, and a value of many megabytes is cut before it becomes a Python object.
    text = selected.project(f"left(CAST(COLUMNS(*) AS VARCHAR), {CELL_CHARACTERS + 1})")
    first = text.limit(most_rows + 1).fetchall()
    count = len(first) if len(first) <= most_rows else _count(selected)
    return QueryResult(
        columns=tuple(columns), rows=tuple(_within(first[:most_rows])), row_count=count, cautions=cautions
    )


def _within(rows: Iterable[Sequence[str | None]]) -> Iterator[tuple[str | None, ...]]:
    room = ROWS_CHARACTERS
    for row in rows:
        yield tuple(map(_cut, row))
        room -= sum(len(cell or "") for cell in row)
        if room < 0:
            return


def _cut(cell: str | None) -> str | None:
    return cell if cell is None or len(cell) <= CELL_CHARACTERS else f"{cell[:CELL_CHARACTERS]}…"


def _count(selected: DuckDBPyRelation) -> int | None:
    try:
        ((count,),) = selected.limit(MAX_COUNTED_ROWS + 1).count("*").fetchall()
    except duckdb.OutOfMemoryException:
        # Sorting that many rows takes more memory than finding the first of them.
        return None
    return int(count) if count <= MAX_COUNTED_ROWS else None


def _taken(column: DictionaryColumn) -> "np.ndarray[tuple[int], np.dtype[np.object_]]":
    return np.array(column.values, dtype=object)[np.array(column.codes, dtype=np.int64)]


def _first(column: DictionaryColumn) -> str:
    """Return the first value that is not an error; empty if there is none."""
    cells = (column.values[code].strip() for code in column.codes)
    return next((cell for cell in cells if cell and not ERROR.match(cell)), "")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
