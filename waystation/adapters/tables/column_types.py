"""What a column of text is: the narrowest SQL type that takes each of its values as it is written, without loss.

DuckDB's own guess would make `007` a 7 and a price a binary fraction.
"""

from typing import NamedTuple

from duckdb import DuckDBPyConnection

from waystation.patterns import Linear, linear

TEXT = "VARCHAR"
_SHORT, _LONG = 18, 38
"""Digits that DuckDB's decimals have; the short ones count faster."""
_DATE = r"\d{4}-\d{2}-\d{2}"
_WHOLE = r"[+-]?(0|[1-9]\d{0,17})"
_DECIMAL = r"[+-]?(0|[1-9]\d*|(0|[1-9]\d*)?\.\d+)"


class _Kind(NamedTuple):
    type: str
    written: str
    """A regular expression for the whole value, for RE2 here and in DuckDB."""
    whole: Linear


_KINDS = tuple(
    _Kind(type_name, written, linear(rf"\A(?:{written})\z"))
    for type_name, written in (
        ("BOOLEAN", "(?i:true|false)"),
        ("BIGINT", _WHOLE),
        ("DECIMAL", _DECIMAL),
        ("DOUBLE", rf"{_DECIMAL}([eE][+-]?\d{{1,3}})?"),
        ("DATE", _DATE),
        ("TIMESTAMP", rf"{_DATE}[ T]\d{{2}}:\d{{2}}(:\d{{2}}(\.\d{{1,6}})?)?"),
    )
)


def column_type(connection: DuckDBPyConnection, table: str, column: str, first: str) -> str:
    """The type of a column of text in which empty cells are NULL; `first` is its first value.

    No name may need quotes.
    """
    for kind in _KINDS:
        # The first value spares most columns of a wide table their queries.
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
