"""Re-encrypts everything in a store: bound to its row, with the newest key; or decrypts it."""

from collections.abc import Mapping

from sqlalchemy import Column, Table, and_, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.documents.text_repository import decode_stored_text
from waystation.kernel.clock import Clock
from waystation.store.encryption import EncryptedBytes, EncryptedText, RowProofType, bind_to_row
from waystation.store.engine import MAX_VALUES_PER_STATEMENT, Database
from waystation.store.schema import identity, metadata, tasks, texts


async def is_row_encrypted(database: Database, clock: Clock, *, seals: bool) -> bool:
    """Return whether everything is encrypted to its row. An empty store starts so if texts are to be encrypted."""
    async with database.read() as connection:
        if (await connection.execute(select(identity.c.sealed_since))).scalar_one() is not None:
            return True
        if not seals:
            return False
        if await _has_rows(connection):  # perhaps by a process that has encrypted the store since the first query
            return (await connection.execute(select(identity.c.sealed_since))).scalar_one() is not None
    async with database.write() as connection:
        if await _has_rows(connection):  # written meanwhile, by a process that may not encrypt
            return (await connection.execute(select(identity.c.sealed_since))).scalar_one() is not None
        await connection.execute(update(identity).values(sealed_since=clock()))
    return True


async def reencrypt_database(database: Database, clock: Clock, *, seals: bool) -> int:
    """Rewrite every text as this database writes now, in one transaction.

    From then on, text that is not encrypted to its row is refused; if nothing is encrypted, everything is read.

    Returns:
        Number of texts.

    Raises:
        WrongKey: A text cannot be decrypted; nothing has changed.
        StoreError: A content does not match its hash; nothing has changed.
    """
    count = 0
    async with database.write() as connection:
        for table in metadata.sorted_tables:
            columns = [column for column in table.columns if isinstance(column.type, EncryptedText | EncryptedBytes)]
            if columns:
                count += await _rewritten(connection, table, columns)
        await connection.execute(update(identity).values(sealed_since=clock() if seals else None))
    return count


async def _rewritten(connection: AsyncConnection, table: Table, columns: list[Column[object]]) -> int:
    key, count = tuple(table.primary_key), 0
    total = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
    for first in range(0, total, MAX_VALUES_PER_STATEMENT):
        found = await connection.execute(select(table).order_by(*key).limit(MAX_VALUES_PER_STATEMENT).offset(first))
        for row in [dict(one) for one in found.mappings()]:
            proofs = {column.name: _anew(column, row) for column in columns if isinstance(column.type, RowProofType)}
            said = {column.name: _anew(column, row) for column in columns if row[column.name]}
            this = and_(*[column == row[column.name] for column in key])
            if values := said | proofs:
                await connection.execute(update(table).where(this).values(values))
            count += len(said.keys() - proofs.keys())
    return count


def _anew(column: Column[object], row: Mapping[str, object]) -> object:
    value = row[column.name]
    if isinstance(column.type, EncryptedText):
        return bind_to_row(str(value), *[str(row[name]) for name in column.type.key])
    if isinstance(value, bytes):
        decode_stored_text(str(row[texts.c.blob.name]), value)
    return value


async def _has_rows(connection: AsyncConnection) -> bool:
    counts = [select(func.count()).select_from(table) for table in (tasks, texts)]
    return any([(await connection.execute(count)).scalar_one() for count in counts])
