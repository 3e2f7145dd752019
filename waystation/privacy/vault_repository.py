"""The vault: originals behind placeholders, each encrypted for its own tenant and placeholder."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.kernel.cipher import Cipher
from waystation.kernel.clock import Clock
from waystation.kernel.errors import RetiredKey, WrongKey
from waystation.kernel.temporal_names import TOOL_SECRETS
from waystation.kernel.value import Value
from waystation.privacy.policy import VaultEntry
from waystation.store.engine import (
    Database,
    SqlRepository,
    insert_missing,
    iter_batches,
    iter_table_rows,
    read_transaction,
    run_to_completion,
    translate_database_errors,
    write_transaction,
)
from waystation.store.schema import vault, vault_sessions


class VaultCounts(Value):
    """Rows of the vault that were rewritten with the present key, and those that no key decrypts."""

    originals: int = 0
    """Values behind placeholders."""
    secrets: int = 0
    """Secrets of tool servers."""
    session_proofs: int = 0
    """Proofs of the sessions in which a value occurred."""
    unreadable: int = 0
    """Originals and secrets that no available key decrypts. They stay as they are."""


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
            RetiredKey: an original was written with a key that is no longer accepted.
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
        return _decrypted(self._cipher, tenant, placeholder, original).decode("utf-8", "surrogatepass")

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
                if _is_proof(self._cipher, row.proof, _meeting(tenant, row.placeholder, session))
            ]
        )

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


async def reencrypt_vault(connection: AsyncConnection, cipher: Cipher) -> VaultCounts:
    """Rewrite all originals, secrets and proofs of sessions with the key with which this cipher encrypts.

    What no available key decrypts stays as it is: it was unreadable before, for example since its key was lost, and a
    proof without a known key proves nothing.

    Raises:
        RetiredKey: an original was written with a key that is no longer accepted.
    """
    originals = secrets = unreadable = session_proofs = 0
    async for row in iter_table_rows(connection, vault):
        context = _context(str(row["tenant"]), str(row["placeholder"]))
        try:
            plain = _decrypted(cipher, str(row["tenant"]), str(row["placeholder"]), bytes(row["original"]))
        except WrongKey:
            unreadable += 1
            continue
        here = (vault.c.tenant == row["tenant"], vault.c.placeholder == row["placeholder"])
        await connection.execute(update(vault).where(*here).values(original=cipher.encrypt(plain, context)))
        if row["tenant"] == TOOL_SECRETS:
            secrets += 1
        else:
            originals += 1
    async for row in iter_table_rows(connection, vault_sessions):
        tenant, placeholder, session = str(row["tenant"]), str(row["placeholder"]), str(row["session"])
        meeting = _meeting(tenant, placeholder, session)
        if _is_proof(cipher, row["proof"], meeting):
            here = _noted(tenant, [placeholder], session)
            await connection.execute(update(vault_sessions).where(*here).values(proof=cipher.encrypt(b"", meeting)))
            session_proofs += 1
    return VaultCounts(originals=originals, secrets=secrets, session_proofs=session_proofs, unreadable=unreadable)


def _decrypted(cipher: Cipher, tenant: str, placeholder: str, original: bytes) -> bytes:
    try:
        return cipher.decrypt(original, _context(tenant, placeholder))
    except RetiredKey:
        raise RetiredKey("vault.original") from None


def _is_proof(cipher: Cipher, proof: bytes | None, meeting: bytes) -> bool:
    try:
        return proof is not None and cipher.decrypt(proof, meeting) == b""
    except (WrongKey, RetiredKey):
        return False


def _noted(tenant: str, placeholders: Sequence[str], session: str) -> Sequence[ColumnElement[bool]]:
    noted = vault_sessions.c
    return noted.tenant == tenant, noted.placeholder.in_(placeholders), noted.session == session


def _among(tenant: str, placeholders: Sequence[str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return vault.c.tenant == tenant, vault.c.placeholder.in_(placeholders)


def _context(tenant: str, placeholder: str) -> bytes:
    return f"{tenant}\x00{placeholder}".encode()


def _meeting(tenant: str, placeholder: str, session: str) -> bytes:
    return f"met\x00{tenant}\x00{placeholder}\x00{session}".encode()
