"""The store as the rest of the program sees it: one database behind five ports."""

import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack

from sqlalchemy.exc import DBAPIError

from waystation.adapters.store.audit import SqlAudit
from waystation.adapters.store.engine import Database, to_its_end
from waystation.adapters.store.outbox import SqlOutbox
from waystation.adapters.store.tasks import SqlTasks
from waystation.adapters.store.texts import SqlTexts
from waystation.adapters.store.transcripts import SqlTranscripts
from waystation.adapters.store.upgrading import upgrade
from waystation.adapters.store.work import SqlWork
from waystation.domain.errors import StoreError
from waystation.ports import Clock


def random_store_id() -> str:
    """64 random bits, in hex."""
    return secrets.token_hex(8)


class SqlStore(SqlTranscripts, SqlOutbox, SqlTexts, SqlWork, SqlTasks, SqlAudit):
    """TranscriptStore, Outbox, DocumentStore, WorkStore and TaskStore on SQLite or PostgreSQL."""

    @classmethod
    async def open(cls, url: str, clock: Clock, new_store_id: Callable[[], str] = random_store_id) -> "SqlStore":
        """Open the database of a SQLAlchemy URL; make it, its folders and its tables where they are missing.

        Raises:
            BadInput: the URL cannot be used.
            StoreError: the database cannot be opened, or a newer version of Waystation has written it.
        """
        async with AsyncExitStack() as on_failure:
            try:
                database = Database(url)
                on_failure.push_async_callback(database.aclose)
                store_id = await to_its_end(upgrade(database, clock, new_store_id))
            except DBAPIError as error:
                raise StoreError(f"the database cannot be opened: {error.orig}") from error
            except OSError as error:
                raise StoreError(f"the database cannot be opened: {error}") from error
            on_failure.pop_all()
        return cls(database, clock, store_id)

    async def aclose(self) -> None:
        """Close every connection."""
        await self.database.aclose()
