"""The store as the rest of the program sees it: one database behind five ports."""

import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.audit import SqlAudit
from waystation.adapters.store.bills import SqlBills
from waystation.adapters.store.engine import Database, to_its_end
from waystation.adapters.store.errors import translated
from waystation.adapters.store.forgetting import SqlForgetting
from waystation.adapters.store.forking import SqlForking
from waystation.adapters.store.outbox import SqlOutbox
from waystation.adapters.store.owners import drop_unowned, find_owners
from waystation.adapters.store.part import reading, writing
from waystation.adapters.store.persons import SqlPersons
from waystation.adapters.store.plans import SqlPlans
from waystation.adapters.store.resealing import is_strict
from waystation.adapters.store.results import SqlResultOutbox
from waystation.adapters.store.schema import identity
from waystation.adapters.store.sealed import PLAIN, AtRest
from waystation.adapters.store.slow_texts import SqlSlowTexts
from waystation.adapters.store.tasks import SqlTasks
from waystation.adapters.store.texts import SqlTexts
from waystation.adapters.store.transcripts import SqlTranscripts
from waystation.adapters.store.updates import SqlUpdates
from waystation.adapters.store.upgrading import open_schema
from waystation.adapters.store.vault import SqlVault
from waystation.adapters.store.work import SqlWork
from waystation.ports import Cipher, Clock


def random_store_id() -> str:
    """64 random bits, in hex."""
    return secrets.token_hex(8)


class SqlStore(
    SqlTranscripts,
    SqlOutbox,
    SqlResultOutbox,
    SqlTexts,
    SqlWork,
    SqlTasks,
    SqlForking,
    SqlPlans,
    SqlAudit,
    SqlUpdates,
    SqlBills,
    SqlForgetting,
    SqlPersons,
):
    """TranscriptStore, Outbox, DocumentStore, WorkStore and TaskStore on SQLite or PostgreSQL."""

    @classmethod
    async def open(
        cls, url: str, clock: Clock, new_store_id: Callable[[], str] = random_store_id, at_rest: AtRest = PLAIN
    ) -> "SqlStore":
        """Open the database of a SQLAlchemy URL. A SQLite file is made, with folders and tables, where it is missing.

        `at_rest` says whether texts are encrypted, and with which key. Reading one without it raises WrongKey.

        Raises:
            BadInput: the URL cannot be used.
            StoreUnavailable: the database does not answer.
            StoreError: the database cannot be used, is newer than this version of Waystation, or is a PostgreSQL
                database that is empty or older: `waystation store migrate` makes it ready.
        """
        async with AsyncExitStack() as on_failure:
            with translated():
                database = Database(url, at_rest=at_rest)
                on_failure.push_async_callback(database.aclose)
                store_id = await to_its_end(open_schema(database, clock, new_store_id))
                await to_its_end(find_owners(database, clock))
                if await to_its_end(is_strict(database, clock, seals=at_rest.seals)):
                    database.seal_strictly()
            on_failure.pop_all()
        return cls(database, clock, store_id)

    @writing
    async def claim_key(self, connection: AsyncConnection, check: str) -> bool:
        """Whether the key with this check is the store's. The first that is claimed becomes it."""
        first = update(identity).values(key_check=func.coalesce(identity.c.key_check, check))
        return (await connection.execute(first.returning(identity.c.key_check))).scalar_one() == check

    @writing
    async def adopt_key(self, connection: AsyncConnection, check: str) -> str | None:
        """Make the key with this check the store's, whichever it was. Returns the check of the one before."""
        before = (await connection.execute(select(identity.c.key_check))).scalar_one()
        await connection.execute(update(identity).values(key_check=check))
        return before

    def vault(self, cipher: Cipher) -> SqlVault:
        """The originals behind placeholders, as this cipher encrypts them."""
        return SqlVault(self.database, self._clock, self._store_id, cipher)

    def slow_texts(self, rules: str) -> SqlSlowTexts:
        """Which texts take too long to redact under these rules."""
        return SqlSlowTexts(self.database, self._clock, self._store_id, rules)

    @reading
    async def key_check(self, connection: AsyncConnection) -> str | None:
        """The check of the store's key; None while no worker has claimed it."""
        return (await connection.execute(select(identity.c.key_check))).scalar_one()

    async def drop_unowned(self) -> int:
        """Remove the texts that belong to nobody; how many there were. Raises StoreError while owners are unknown."""
        with translated():
            dropped = await to_its_end(drop_unowned(self.database))
            await to_its_end(self.database.empty_log())
        return dropped

    @property
    def sealed(self) -> bool:
        """Whether everything in the store is encrypted to its row, and nothing else is taken."""
        return self.database.strict

    async def aclose(self) -> None:
        """Close every connection."""
        await self.database.aclose()
