"""How many texts of a database are encrypted, and how many are not."""

from sqlalchemy import ColumnElement, LargeBinary, Text, func, select, type_coerce

from waystation.adapters.store.engine import Database
from waystation.adapters.store.schema import metadata
from waystation.adapters.store.sealed import BYTES_MARK, TEXT_MARK, SealedBytes, SealedText


async def count_sealed(database: Database) -> tuple[int, int]:
    """Encrypted, plain; NULL and empty values are neither."""
    sealed = total = 0
    async with database.read() as connection:
        for table in metadata.sorted_tables:
            for column in table.columns:
                marked = _marked(column)
                if marked is not None:
                    counts = select(func.count(), func.count().filter(marked)).where(func.length(column) > 0)
                    there, of_them_sealed = (await connection.execute(counts)).one()
                    sealed, total = sealed + of_them_sealed, total + there
    return sealed, total - sealed


def _marked(column: ColumnElement[object]) -> ColumnElement[bool] | None:
    """Whether the column's value begins with the mark of what is sealed; None for a column that never is."""
    if isinstance(column.type, SealedText):
        return func.substr(type_coerce(column, Text), 1, 1) == TEXT_MARK
    if isinstance(column.type, SealedBytes):
        return func.substr(type_coerce(column, LargeBinary), 1, 1) == type_coerce(BYTES_MARK, LargeBinary)
    return None
