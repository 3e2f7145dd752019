"""Replaces characters that a database rejects."""

from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import DBAPICursor, ExecutionContext

from waystation.kernel.value import replace_surrogates

_Parameters = list[tuple[object, ...]] | tuple[object, ...]
"""Parameters of one statement: one row, or several."""


def replace_unstorable_text(
    _connection: Connection,
    _cursor: DBAPICursor,
    statement: str,
    parameters: _Parameters,
    _context: ExecutionContext | None,
    _many: bool,
) -> tuple[str, _Parameters]:
    """Replace what a database rejects in texts that are compared or written: NUL characters in PostgreSQL, and lone
    surrogates in both. They become replacement characters.
    """
    if isinstance(parameters, list):
        return statement, [tuple(map(_storable_value, row)) for row in parameters]
    return statement, tuple(map(_storable_value, parameters))


def _storable_value(value: object) -> object:
    return replace_surrogates(value.replace("\x00", "\ufffd")) if isinstance(value, str) else value
