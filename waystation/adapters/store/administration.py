"""What an operator does with a store as a whole: look at its schema, and upgrade it."""

from contextlib import aclosing
from pathlib import Path

from sqlalchemy.engine import URL

from waystation.adapters.store.engine import Database, parsed_url, to_its_end
from waystation.adapters.store.errors import translated
from waystation.adapters.store.owners import count_unowned
from waystation.adapters.store.schema import REVISION
from waystation.adapters.store.sealed_count import count_sealed
from waystation.adapters.store.sql_store import random_store_id
from waystation.adapters.store.upgrading import Schema, find_schema, upgrade
from waystation.domain.errors import StoreError
from waystation.domain.value import Value
from waystation.ports import Clock


class StoreStatus(Value):
    """A database as an operator sees it. Without credentials."""

    backend: str
    """`sqlite` or `postgresql`."""
    place: str
    """File, or host, port and database."""
    store_id: str | None
    """None for a database that is empty or another program's."""
    schema_here: str
    """Revision of the database; empty for none."""
    schema_needed: str = REVISION
    """Revision that this version of Waystation works with."""
    ready: bool
    encrypted: int = 0
    """Texts that are encrypted, in all tables together."""
    plain: int = 0
    """Texts that are not: encryption was not on when they were written."""
    unowned: int = 0
    """Texts of an earlier release whose owner is unknown: nobody reads them, and no task takes them along."""
    finding: str
    """`ready`, or what to do."""


class Migration(Value):
    """What a migration did."""

    before: str
    """Revision; empty for an empty database."""
    after: str
    store_id: str


async def store_status(url: str) -> StoreStatus:
    """Look at the database, and change nothing. Raises BadInput, StoreError, StoreUnavailable."""
    with translated():
        async with aclosing(Database(url)) as database:
            found = await to_its_end(find_schema(database))
            encrypted, plain = await to_its_end(count_sealed(database)) if found.ready else (0, 0)
            unowned = await to_its_end(count_unowned(database)) if found.ready else 0
    return StoreStatus(
        backend=database.backend,
        place=place_of(database.url),
        store_id=found.store_id,
        schema_here=found.revision,
        ready=found.ready,
        encrypted=encrypted,
        plain=plain,
        unowned=unowned,
        finding=_finding(found),
    )


def is_there(url: str) -> bool:
    """Whether there is a database to look at: a SQLite file would be made by that. Raises BadInput."""
    parsed = parsed_url(url)
    return parsed.get_backend_name() != "sqlite" or Path(str(parsed.database)).exists()


async def migrate(url: str, clock: Clock) -> Migration:
    """Bring the database to this version's schema. Where it is there already, nothing happens.

    Raises BadInput, StoreUnavailable, and StoreError for a database that is newer or another program's.
    """
    with translated():
        # A migration of large tables takes its time.
        async with aclosing(Database(url, answer_timeout_s=None)) as database:
            before, after = await to_its_end(upgrade(database, clock, random_store_id))
    return Migration(before=before.revision, after=after.revision, store_id=str(after.store_id))


def place_of(url: URL) -> str:
    """Where the database is, without user and password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return f"{url.host or url.query.get('host', 'localhost')}:{url.port or 5432}/{url.database or ''}"


def _finding(found: Schema) -> str:
    try:
        found.require_ready()
    except StoreError as unready:
        return str(unready)
    return "ready"
