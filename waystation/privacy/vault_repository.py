"""The vault: originals behind placeholders, each encrypted for its own tenant and placeholder."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.kernel.cipher import Cipher
from waystation.kernel.clock import Clock
from waystation.kernel.errors import WrongKey
from waystation.privacy.policy import VaultEntry
from waystation.store.engine import (
    Database,
    SqlRepository,
    insert_missing,
    iter_batches,
    read_transaction,
    run_to_completion,
    translate_database_errors,
    write_transaction,
)
from waystation.store.schema import vault, vault_sessions


class SqlVault(SqlRepository):
    """Implements the port `Vault` in the SQL store."""

    def __init__(self, database: Database, clock: Clock, store_id: str, cipher: Cipher) -> None:
        super().__init__(database, clock, store_id)
        self._cipher = cipher

    async def store_originals(self, tenant: str, originals: Sequence[VaultEntry], session: str = "") -> frozenset[str]:
        """Store each original whose placeholder has none, and record that this session encountered it.

        Returns:
            Fingerprints whose placeholder stands for another value.
        """
        known = await self._fingerprints(tenant, [original.placeholder for original in originals])
        if missing := [original for original in originals if original.placeholder not in known]:
            # Sorted, so that two workers that store the same originals do not wait for each other.
            await self._add(tenant, sorted(missing, key=lambda original: original.placeholder))
            known |= await self._fingerprints(tenant, [original.placeholder for original in missing])
        if session:
            own = [one for one in originals if known[one.placeholder] == one.fingerprint]
            await self._meet(tenant, sorted({one.placeholder for one in own}), session)
        return frozenset(
            original.fingerprint for original in originals if known[original.placeholder] != original.fingerprint
        )

    @read_transaction
    async def load_originals(
        self, connection: AsyncConnection, tenant: str, placeholders: Collection[str], session: str | None = None
    ) -> Mapping[str, str]:
        """Return the stored originals by placeholder; with a session, only those encountered in it.

        Raises:
            WrongKey: no available key decrypts an original.
        """
        if session is not None:
            placeholders = await self._met(connection, tenant, placeholders, session)
        return {
            row.placeholder: self._opened(tenant, row.placeholder, row.original)
            for batch in iter_batches(placeholders)
            for row in await connection.execute(select(vault).where(*_among(tenant, batch)))
        }

    @write_transaction
    async def replace_original(self, connection: AsyncConnection, tenant: str, original: VaultEntry) -> None:
        """Store this original in place of any that its placeholder had."""
        await connection.execute(delete(vault).where(*_among(tenant, [original.placeholder])))
        await insert_missing(connection, vault, [self._row(tenant, original)])

    @read_transaction
    async def load_storage_times(self, connection: AsyncConnection, tenant: str) -> Mapping[str, datetime]:
        """Return when each placeholder of the tenant got its original. Nothing is decrypted."""
        known = select(vault.c.placeholder, vault.c.kept_at).where(vault.c.tenant == tenant)
        return {row.placeholder: row.kept_at for row in await connection.execute(known.order_by(vault.c.placeholder))}

    @read_transaction
    async def load_all_originals(self, connection: AsyncConnection, tenant: str) -> Mapping[str, str]:
        """Return all originals of the tenant, by placeholder.

        Raises:
            WrongKey: no available key decrypts an original.
        """
        rows = await connection.execute(select(vault).where(vault.c.tenant == tenant))
        return {row.placeholder: self._opened(tenant, row.placeholder, row.original) for row in rows}

    async def delete_originals(self, tenant: str, placeholders: Collection[str]) -> int:
        """Delete the originals of these placeholders and return how many there were."""
        dropped = await self._drop(tenant, placeholders)
        with translate_database_errors():
            await run_to_completion(self.database.truncate_write_ahead_log())
        return dropped

    @write_transaction
    async def _drop(self, connection: AsyncConnection, tenant: str, placeholders: Collection[str]) -> int:
        dropped = [
            await connection.execute(delete(vault).where(*_among(tenant, batch)))
            for batch in iter_batches(placeholders)
        ]
        for batch in iter_batches(placeholders):
            there = (vault_sessions.c.tenant == tenant, vault_sessions.c.placeholder.in_(batch))
            await connection.execute(delete(vault_sessions).where(*there))
        return sum(gone.rowcount for gone in dropped)

    def _opened(self, tenant: str, placeholder: str, original: bytes) -> str:
        return self._cipher.decrypt(original, _context(tenant, placeholder)).decode("utf-8", "surrogatepass")

    @read_transaction
    async def _fingerprints(
        self, connection: AsyncConnection, tenant: str, placeholders: Collection[str]
    ) -> dict[str, str]:
        return {
            row.placeholder: row.fingerprint
            for batch in iter_batches(placeholders)
            for row in await connection.execute(
                select(vault.c.placeholder, vault.c.fingerprint).where(*_among(tenant, batch))
            )
        }

    @write_transaction
    async def _meet(self, connection: AsyncConnection, tenant: str, placeholders: Sequence[str], session: str) -> None:
        """Record the encounter for placeholders in the vault only: one just forgotten is recorded when it recurs."""
        there = {
            placeholder
            for batch in iter_batches(placeholders)
            for placeholder in (
                await connection.execute(select(vault.c.placeholder).where(*_among(tenant, batch)))
            ).scalars()
        }
        own = {"tenant": tenant, "session": session}
        proven = await self._met(connection, tenant, there, session)
        new = [one for one in placeholders if one in there and one not in proven]
        for batch in iter_batches(new):
            await connection.execute(delete(vault_sessions).where(*_noted(tenant, batch, session)))
        rows = [
            {**own, "placeholder": one, "proof": self._cipher.encrypt(b"", _meeting(tenant, one, session))}
            for one in new
        ]
        await insert_missing(connection, vault_sessions, rows)

    async def _met(
        self, connection: AsyncConnection, tenant: str, placeholders: Collection[str], session: str
    ) -> frozenset[str]:
        """Return the placeholders that the session has encountered. Entries without a valid proof do not count."""
        return frozenset(
            [
                row.placeholder
                for batch in iter_batches(placeholders)
                for row in await connection.execute(select(vault_sessions).where(*_noted(tenant, batch, session)))
                if self._proves(row.proof, _meeting(tenant, row.placeholder, session))
            ]
        )

    def _proves(self, proof: bytes | None, meeting: bytes) -> bool:
        try:
            return proof is not None and self._cipher.decrypt(proof, meeting) == b""
        except WrongKey:
            return False

    @write_transaction
    async def _add(self, connection: AsyncConnection, tenant: str, originals: Sequence[VaultEntry]) -> None:
        await insert_missing(connection, vault, [self._row(tenant, original) for original in originals])

    def _row(self, tenant: str, original: VaultEntry) -> dict[str, object]:
        sealed = self._cipher.encrypt(
            original.text.encode("utf-8", "surrogatepass"), _context(tenant, original.placeholder)
        )
        return {
            "tenant": tenant,
            "placeholder": original.placeholder,
            "fingerprint": original.fingerprint,
            "original": sealed,
            "kept_at": self._clock(),
        }


def _noted(tenant: str, placeholders: Sequence[str], session: str) -> Sequence[ColumnElement[bool]]:
    noted = vault_sessions.c
    return noted.tenant == tenant, noted.placeholder.in_(placeholders), noted.session == session


def _among(tenant: str, placeholders: Sequence[str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return vault.c.tenant == tenant, vault.c.placeholder.in_(placeholders)


def _context(tenant: str, placeholder: str) -> bytes:
    return f"{tenant}\x00{placeholder}".encode()


def _meeting(tenant: str, placeholder: str, session: str) -> bytes:
    return f"met\x00{tenant}\x00{placeholder}\x00{session}".encode()
