"""Re-encrypts everything in a store with the present key, each value bound to its row; or decrypts the texts."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Column, Table, and_, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.documents.text_repository import decode_stored_text
from waystation.kernel.cipher import Cipher
from waystation.kernel.clock import Clock
from waystation.kernel.value import Value
from waystation.privacy.vault_repository import VaultCounts, reencrypt_vault
from waystation.store.encryption import EncryptedBytes, EncryptedText, RowProofType, bind_to_row
from waystation.store.engine import Database, iter_table_rows
from waystation.store.schema import identity, metadata, tasks, texts


async def is_row_encrypted(database: Database, clock: Clock, *, seals: bool) -> bool:
    """Return whether everything is encrypted to its row. An empty store starts so if texts are to be encrypted."""
    async with database.read() as connection:
        if await _is_sealed(connection):
            return True
        if not seals:
            return False
        if await _has_rows(connection):  # perhaps by a process that has encrypted the store since the first query
            return await _is_sealed(connection)
    async with database.write() as connection:
        if await _has_rows(connection):  # written meanwhile, by a process that may not encrypt
            return await _is_sealed(connection)
        await connection.execute(update(identity).values(sealed_since=clock()))
    return True


async def _is_sealed(connection: AsyncConnection) -> bool:
    return (await connection.execute(select(identity.c.sealed_since))).scalar_one() is not None


async def load_row_key_check(database: Database) -> str | None:
    """Return the check of the key under which everything was last rewritten; None if that was never done."""
    async with database.read() as connection:
        return (await connection.execute(select(identity.c.row_key_check))).scalar_one()


class ResealReport(Value):
    """What was rewritten, in rows or, for texts, in values."""

    texts: int = 0
    owner_proofs: int = 0
    """Proofs of who owns a task, an agent run, a passage or a text; 0 if nothing is encrypted."""
    vault: VaultCounts = VaultCounts()


@dataclass(frozen=True)
class PresentKey:
    """The key with which everything is rewritten. The vault is always encrypted."""

    vault_cipher: Cipher
    """Encrypts with this key, and decrypts with all that are accepted."""
    check: str
    """From now on, rows under older keys than the one with this check are refused."""


async def reencrypt_database(
    database: Database, clock: Clock, *, seals: bool, key: PresentKey | None = None
) -> ResealReport:
    """Rewrite everything as this database writes now, in one transaction.

    From then on, text that is not encrypted to its row is refused; if nothing is encrypted, everything is read. Without
    `key`, the vault stays as it is.

    Raises:
        WrongKey: A text cannot be decrypted; nothing has changed.
        RetiredKey: A row was written with a key that is no longer accepted; nothing has changed.
        StoreError: A content does not match its hash, or a row is plain where this database refuses plain rows; nothing
            has changed.
    """
    texts = proofs = 0
    counts = VaultCounts()
    async with database.write() as connection:
        for table in metadata.sorted_tables:
            columns = [column for column in table.columns if isinstance(column.type, EncryptedText | EncryptedBytes)]
            if columns:
                of_texts, of_proofs = await _rewritten(connection, table, columns)
                texts, proofs = texts + of_texts, proofs + of_proofs
        await connection.execute(update(identity).values(sealed_since=clock() if seals else None))
        if key is not None:
            counts = await reencrypt_vault(connection, key.vault_cipher)
            await connection.execute(update(identity).values(row_key_check=key.check))
    return ResealReport(texts=texts, owner_proofs=proofs if seals else 0, vault=counts)


async def _rewritten(connection: AsyncConnection, table: Table, columns: list[Column[object]]) -> tuple[int, int]:
    """Rewrite the columns of a table. Returns the number of texts and of proofs."""
    key, texts, proofs = tuple(table.primary_key), 0, 0
    async for found in iter_table_rows(connection, table):
        row = dict(found)
        proven = {column.name: _anew(column, row) for column in columns if isinstance(column.type, RowProofType)}
        said = {column.name: _anew(column, row) for column in columns if row[column.name]}
        this = and_(*[column == row[column.name] for column in key])
        if values := said | proven:
            await connection.execute(update(table).where(this).values(values))
        texts, proofs = texts + len(said.keys() - proven.keys()), proofs + len(proven)
    return texts, proofs


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
