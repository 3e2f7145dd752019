"""The store: one database behind the ports of all capabilities.

Also what an operator does with it: check its schema, migrate it, count encrypted values.
"""

import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from sqlalchemy import ColumnElement, LargeBinary, Text, func, select, type_coerce, update
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.agents.partial_reply_repository import SqlPartialReplyRepository
from waystation.agents.run_repository import SqlTranscriptRepository, SqlWorkRepository
from waystation.documents.text_repository import SqlSlowTextStore, SqlTextStore
from waystation.erasure.forget_repository import SqlForgetStore
from waystation.erasure.person_erasure_repository import SqlPersonErasure
from waystation.kernel.cipher import Cipher
from waystation.kernel.clock import Clock
from waystation.kernel.errors import StoreError
from waystation.kernel.value import Value
from waystation.memory.outbox_repository import SqlOutbox, SqlResultOutbox
from waystation.models.limit_repository import SqlLimitRepository
from waystation.privacy.vault_repository import SqlVault
from waystation.runtime.reencryption import is_row_encrypted, load_row_key_check
from waystation.store.encryption import (
    BYTES_MARK,
    TEXT_MARK,
    UNENCRYPTED,
    EncryptedBytes,
    EncryptedText,
    EncryptionConfig,
    RowProofType,
)
from waystation.store.engine import (
    Database,
    parse_database_url,
    read_transaction,
    run_to_completion,
    translate_database_errors,
    write_transaction,
)
from waystation.store.schema import REVISION, identity, metadata
from waystation.store.schema_version import SchemaState, open_ready_store, read_schema_state, upgrade_schema
from waystation.tasks.audit_repository import (
    SqlAuditRepository,
    SqlDocumentsUpdateRepository,
    SqlEventRepository,
    SqlTraceRepository,
)
from waystation.tasks.report_link_repository import SqlReportLinkRepository
from waystation.tasks.session_repository import SqlSessionRepository
from waystation.tasks.task_repository import SqlCostRepository, SqlForkRepository, SqlPlanRepository, SqlTaskRepository


def generate_store_id() -> str:
    """Return 64 random bits in hexadecimal."""
    return secrets.token_hex(8)


class SqlStore(
    SqlTranscriptRepository,
    SqlOutbox,
    SqlResultOutbox,
    SqlTextStore,
    SqlWorkRepository,
    SqlPartialReplyRepository,
    SqlTaskRepository,
    SqlSessionRepository,
    SqlForkRepository,
    SqlPlanRepository,
    SqlAuditRepository,
    SqlEventRepository,
    SqlTraceRepository,
    SqlDocumentsUpdateRepository,
    SqlCostRepository,
    SqlReportLinkRepository,
    SqlForgetStore,
    SqlPersonErasure,
):
    """Every port to the store, on one SQLite or PostgreSQL database."""

    row_key_check: str | None = None
    """Check of the key under which everything was last rewritten, as the database named it when it was opened."""

    @classmethod
    async def open(
        cls,
        url: str,
        clock: Clock,
        new_store_id: Callable[[], str] = generate_store_id,
        at_rest: EncryptionConfig = UNENCRYPTED,
    ) -> "SqlStore":
        """Open the database of a SQLAlchemy URL. A missing SQLite file is created, with folders and tables.

        `at_rest` says whether texts are encrypted, and with which key. Reading one without it raises WrongKey.

        Raises:
            BadInput: The URL cannot be used.
            StoreUnavailable: The database does not answer.
            StoreError: The database cannot be used, is newer than this version of Waystation, or is an empty or older
                PostgreSQL database, which `waystation store migrate` prepares.
        """
        async with AsyncExitStack() as on_failure:
            with translate_database_errors():
                database = Database(url, at_rest=at_rest)
                on_failure.push_async_callback(database.aclose)
                store_id = await run_to_completion(open_ready_store(database, clock, new_store_id))
                if await run_to_completion(is_row_encrypted(database, clock, seals=at_rest.encrypts)):
                    database.enforce_encryption()
                row_key_check = await run_to_completion(load_row_key_check(database))
            on_failure.pop_all()
        store = cls(database, clock, store_id)
        store.row_key_check = row_key_check
        return store

    @write_transaction
    async def claim_key(self, connection: AsyncConnection, check: str) -> bool:
        """Return whether the key with this check is the store's. The first one claimed becomes it."""
        first = update(identity).values(key_check=func.coalesce(identity.c.key_check, check))
        return (await connection.execute(first.returning(identity.c.key_check))).scalar_one() == check

    @write_transaction
    async def adopt_key(self, connection: AsyncConnection, check: str, row_key_check: str | None = None) -> str | None:
        """Make the key with this check the store's, whatever it was before. Returns the previous check.

        A `row_key_check` replaces the check of the key under which everything was last rewritten.
        """
        before = (await connection.execute(select(identity.c.key_check))).scalar_one()
        rows = {} if row_key_check is None else {"row_key_check": row_key_check}
        await connection.execute(update(identity).values(key_check=check, **rows))
        return before

    def build_vault(self, cipher: Cipher) -> SqlVault:
        """Return the vault of originals, which this cipher encrypts."""
        return SqlVault(self.database, self._clock, self._store_id, cipher)

    def build_slow_text_store(self, rules: str) -> SqlSlowTextStore:
        """Return the record of texts that take too long to redact under these rules."""
        return SqlSlowTextStore(self.database, self._clock, self._store_id, rules)

    def build_limit_repository(self) -> SqlLimitRepository:
        """Return the rate limits of providers that the workers of this store share."""
        return SqlLimitRepository(self.database, self._clock, self._store_id)

    @read_transaction
    async def get_key_check(self, connection: AsyncConnection) -> str | None:
        """Return the check of the store's key; None while no worker has claimed it."""
        return (await connection.execute(select(identity.c.key_check))).scalar_one()

    @property
    def is_row_encrypted(self) -> bool:
        """Whether everything in the store is encrypted to its row, and nothing else is accepted."""
        return self.database.requires_encryption

    async def aclose(self) -> None:
        """Close every connection."""
        await self.database.aclose()


async def count_encrypted_values(database: Database) -> tuple[int, int]:
    """Return the number of encrypted and of plain values; NULL and empty values are neither."""
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
    """Return the condition that a column's value has the mark of encrypted text; None for a column without texts."""
    if isinstance(column.type, EncryptedText) and not isinstance(column.type, RowProofType):
        return func.substr(type_coerce(column, Text), 1, 1) == TEXT_MARK
    if isinstance(column.type, EncryptedBytes):
        return func.substr(type_coerce(column, LargeBinary), 1, 1) == type_coerce(BYTES_MARK, LargeBinary)
    return None


class StoreStatus(Value):
    """A database as an operator sees it, without credentials."""

    backend: str
    """`sqlite` or `postgresql`."""
    place: str
    """File, or host, port and database."""
    store_id: str | None
    """None for a database that is empty or another program's."""
    schema_here: str
    """Revision of the database; empty if it has none."""
    schema_needed: str = REVISION
    """Revision that this version of Waystation needs."""
    ready: bool
    encrypted: int = 0
    """Number of encrypted texts in all tables."""
    plain: int = 0
    """Number of texts that were written while encryption was off."""
    finding: str
    """`ready`, or what to do."""


class MigrationResult(Value):
    """The result of a migration."""

    before: str
    """Previous revision; empty for an empty database."""
    after: str
    store_id: str


async def load_store_status(url: str) -> StoreStatus:
    """Inspect the database without changing it. Raises BadInput, StoreError, StoreUnavailable."""
    with translate_database_errors():
        async with aclosing(Database(url)) as database:
            found = await run_to_completion(read_schema_state(database))
            encrypted, plain = await run_to_completion(count_encrypted_values(database)) if found.is_ready else (0, 0)
    return StoreStatus(
        backend=database.backend,
        place=format_database_location(database.url),
        store_id=found.store_id,
        schema_here=found.revision,
        ready=found.is_ready,
        encrypted=encrypted,
        plain=plain,
        finding=_finding(found),
    )


def has_database(url: str) -> bool:
    """Return whether the database exists: inspecting a missing SQLite file would create it. Raises BadInput."""
    parsed = parse_database_url(url)
    return parsed.get_backend_name() != "sqlite" or Path(str(parsed.database)).exists()


async def migrate(url: str, clock: Clock) -> MigrationResult:
    """Migrate the database to this version's schema; a current one is left unchanged.

    Raises:
        BadInput: The URL cannot be used.
        StoreUnavailable: The database does not answer.
        StoreError: The database is newer or another program's.
    """
    with translate_database_errors():
        # Migrating large tables takes time.
        async with aclosing(Database(url, answer_timeout_s=None)) as database:
            before, after = await run_to_completion(upgrade_schema(database, clock, generate_store_id))
    return MigrationResult(before=before.revision, after=after.revision, store_id=str(after.store_id))


def format_database_location(url: URL) -> str:
    """Format where the database is, without user and password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return f"{url.host or url.query.get('host', 'localhost')}:{url.port or 5432}/{url.database or ''}"


def _finding(found: SchemaState) -> str:
    try:
        found.require_ready()
    except StoreError as unready:
        return str(unready)
    return "ready"
