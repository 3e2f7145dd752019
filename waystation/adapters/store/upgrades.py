"""How a database of an earlier release becomes one of this: its schema, its owners, its seals.

Which schema a database has, and how it gets this program's.

Everything in a store sealed anew: to its row, with the newest key; or plain again. Until then old rows are read.

Whose the texts of earlier releases are: found once, where the platform itself names them.

What others wrote names nothing, whatever it looks like: a document that has the form of a state, or a passage that is a
content hash, makes nobody the owner of anything.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

from pydantic import ValidationError
from sqlalchemy import (
    Column,
    Connection,
    Table,
    and_,
    column,
    delete,
    func,
    insert,
    inspect,
    select,
    table,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.audit import DEFINED, ENTRY
from waystation.adapters.store.engine import BATCH, Database, add_missing, batches
from waystation.adapters.store.removal import rows_with
from waystation.adapters.store.schema import (
    REVISION,
    audit,
    identity,
    messages,
    metadata,
    passages,
    runs,
    tasks,
    text_owners,
    texts,
)
from waystation.adapters.store.seals import SealedBytes, SealedProof, SealedText, bound
from waystation.adapters.store.texts import CONTENT_HASH, opened_text, owner_row, unowned
from waystation.domain.compaction.outcome import ContextEdit
from waystation.domain.compaction.rungs import preview
from waystation.domain.documents import DocumentSet, KeptUpdate
from waystation.domain.errors import StoreError, WrongKey
from waystation.domain.memory import Passage
from waystation.domain.ownership import OfTask
from waystation.domain.task import AuditEntry, TaskProgress, Telling
from waystation.domain.task_state import TaskState
from waystation.domain.transcript import Message
from waystation.domain.value import Value
from waystation.domain.web import kept_pages
from waystation.patterns import proven
from waystation.ports import Clock

_UPGRADE_LOCK = 0x57415953
"""Key of the advisory lock under which a PostgreSQL database is upgraded."""

_REVISION = proven(r"\d{4}")
_APPLIED = table("alembic_version", column("version_num"))


class Schema(Value):
    """What a database holds."""

    revision: str
    """The newest migration that was applied; empty for an empty database."""
    store_id: str | None

    @property
    def ready(self) -> bool:
        """Whether this program can work on it."""
        return self.revision == REVISION and self.store_id is not None

    def require_known(self) -> None:
        """Raise StoreError if a newer version, or another program, has written the database."""
        if self.revision and not _REVISION.fullmatch(self.revision):
            raise StoreError("the database belongs to another program: give Waystation a database of its own")
        if self.revision > REVISION:
            raise StoreError(
                f"the database has schema {self.revision}, this version of Waystation knows schemas up to {REVISION}: "
                "update Waystation, or choose another database"
            )
        if self.revision and self.store_id is None:
            raise StoreError(
                "the database does not say any more which store it is: something else than Waystation has emptied its "
                "table `identity`. Restore the database from a backup"
            )

    def require_ready(self) -> None:
        """Raise StoreError if the database has to be upgraded first, or cannot be."""
        self.require_known()
        if not self.ready:
            found = f"has schema {self.revision}" if self.revision else "is empty"
            raise StoreError(
                f"the database {found}, this version of Waystation needs schema {REVISION}: "
                "run `waystation store migrate`"
            )


async def find_schema(database: Database) -> Schema:
    """The schema of the database as it is now."""
    async with database.read() as connection:
        return await _schema(connection)


async def open_schema(database: Database, clock: Clock, new_store_id: Callable[[], str]) -> str:
    """The store id of a database that is ready.

    A SQLite file is made ready at once. A PostgreSQL database is not: workers of another version may be at work on it,
    and when they are replaced is the operator's decision. Raises StoreError.
    """
    found = await find_schema(database)
    if database.backend == "sqlite" and not found.ready:
        found = (await upgrade(database, clock, new_store_id))[1]
    found.require_ready()
    return str(found.store_id)


async def upgrade(database: Database, clock: Clock, new_store_id: Callable[[], str]) -> tuple[Schema, Schema]:
    """Apply every missing migration; the schema before and after.

    Several processes may do this at once: the upgrade is one write transaction, which they take in turn, and a crash
    leaves the database as it was. Raises StoreError for a database that is newer or another program's.
    """
    async with database.write() as connection:
        await _wait_for_turn(connection)
        before = await _schema(connection)
        before.require_known()
        if before.revision != REVISION:
            await connection.run_sync(_migrate)
        if before.store_id is None:
            now = clock()
            await connection.execute(insert(identity).values(store_id=new_store_id(), created_at=now, owned_since=now))
        return before, await _schema(connection)


def _migrate(connection: Connection) -> None:
    # Only a database that is behind needs Alembic, which is a quarter of what opening a store has to import.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, REVISION)


async def _schema(connection: AsyncConnection) -> Schema:
    revision = await connection.run_sync(_revision)
    known = _REVISION.fullmatch(revision)
    store_id = (await connection.execute(select(identity.c.store_id))).scalar_one_or_none() if known else None
    return Schema(revision=revision, store_id=store_id)


def _revision(connection: Connection) -> str:
    if not inspect(connection).has_table(_APPLIED.name):
        return ""
    return connection.execute(select(_APPLIED.c.version_num)).scalar_one_or_none() or ""


async def _wait_for_turn(connection: AsyncConnection) -> None:
    # A write transaction on SQLite has the whole file to itself from its first statement; PostgreSQL needs a lock.
    if connection.dialect.name == "postgresql":
        await connection.execute(select(func.pg_advisory_xact_lock(_UPGRADE_LOCK)))


async def is_strict(database: Database, clock: Clock, *, seals: bool) -> bool:
    """Whether everything is sealed to its row. A store that is empty begins so, where texts are to be sealed."""
    async with database.read() as connection:
        if (await connection.execute(select(identity.c.sealed_since))).scalar_one() is not None:
            return True
        if not seals or await _has_rows(connection):
            return False
    async with database.write() as connection:
        if await _has_rows(connection):  # written meanwhile, by a process that may not seal
            return False
        await connection.execute(update(identity).values(sealed_since=clock()))
    return True


async def reseal(database: Database, clock: Clock, *, seals: bool) -> int:
    """Write every text as this database writes now, in one transaction; how many there were.

    From then on what is not sealed to its row is refused; where nothing is sealed, everything is read. Raises WrongKey,
    and StoreError for a content that does not fit its hash: nothing has changed then.
    """
    count = 0
    async with database.write() as connection:
        for table in metadata.sorted_tables:
            columns = [column for column in table.columns if isinstance(column.type, SealedText | SealedBytes)]
            if columns:
                count += await _rewritten(connection, table, columns)
        await connection.execute(update(identity).values(sealed_since=clock() if seals else None))
    return count


async def _rewritten(connection: AsyncConnection, table: Table, columns: list[Column[object]]) -> int:
    key, count = tuple(table.primary_key), 0
    total = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
    for first in range(0, total, BATCH):
        found = await connection.execute(select(table).order_by(*key).limit(BATCH).offset(first))
        for row in [dict(one) for one in found.mappings()]:
            proofs = {column.name: _anew(column, row) for column in columns if isinstance(column.type, SealedProof)}
            said = {column.name: _anew(column, row) for column in columns if row[column.name]}
            this = and_(*[column == row[column.name] for column in key])
            if values := said | proofs:
                await connection.execute(update(table).where(this).values(values))
            count += len(said.keys() - proofs.keys())
    return count


def _anew(column: Column[object], row: Mapping[str, object]) -> object:
    value = row[column.name]
    if isinstance(column.type, SealedText):
        return bound(str(value), *[str(row[name]) for name in column.type.key])
    if isinstance(value, bytes):
        opened_text(str(row[texts.c.blob.name]), value)
    return value


async def _has_rows(connection: AsyncConnection) -> bool:
    counts = [select(func.count()).select_from(table) for table in (tasks, texts)]
    return any([(await connection.execute(count)).scalar_one() for count in counts])


_Named: TypeAlias = dict[str, set[str]]
"""By content hash, the tasks that have it."""
_V = TypeVar("_V", bound=Value)


async def find_owners(database: Database, clock: Clock) -> None:
    """Give every text of an earlier release its owners, once. Without the key nothing happens until somebody has it."""
    async with database.read() as connection:
        if await _are_found(connection):
            return
    try:
        async with database.write() as connection:
            for found in (_ended, _audited, _remembered, _shown_in_messages):
                await _add(connection, await found(connection))
            await connection.execute(update(identity).values(owned_since=clock()))
    except WrongKey:
        return


async def count_unowned(database: Database) -> int:
    """Texts that belong to nobody; none while owners are still to be found."""
    async with database.read() as connection:
        if not await _are_found(connection):
            return 0
        return (await connection.execute(select(func.count()).select_from(texts).where(unowned()))).scalar_one()


async def drop_unowned(database: Database) -> int:
    """Remove the texts that belong to nobody; how many there were. Raises StoreError while owners are to be found."""
    async with database.write() as connection:
        if not await _are_found(connection):
            raise StoreError(
                "whose the texts of an earlier release are is not known yet: run this with the key that they are "
                "encrypted with (WAYSTATION_KEY, or the file `key` of the home folder)"
            )
        return (await connection.execute(delete(texts).where(unowned()))).rowcount


async def _are_found(connection: AsyncConnection) -> bool:
    return (await connection.execute(select(identity.c.owned_since))).scalar_one() is not None


async def _ended(connection: AsyncConnection) -> _Named:
    """What is named by how tasks ended, and by the states in which they did."""
    found: _Named = {}
    ends: _Named = {}
    async for task_id, body, *_ in await connection.stream(rows_with(tasks.c.progress, true())):
        if (progress := _read(TaskProgress, body)) is not None:
            _name(found, task_id, _of_progress(progress))
            _name(ends, task_id, [progress.state])
    _name_again(found, ends, {blob: _of_state(state) for blob, state in await _all(connection, TaskState, ends)})
    return found


async def _audited(connection: AsyncConnection) -> _Named:
    """What people said, and versions of documents."""
    found: _Named = {}
    sets: _Named = {}
    decisions = rows_with(audit.c.body, ~audit.c.entry_id.startswith(DEFINED))
    async for task_id, body, *_ in await connection.stream(decisions):
        entry = ENTRY.validate_json(body)
        _name(found, task_id, _of_entry(entry))
        _name(sets, task_id, [entry.given] if isinstance(entry, KeptUpdate) else [])
    given = await _all(connection, DocumentSet, sets)
    _name_again(found, sets, {blob: [one.blob for one in each.documents] for blob, each in given})
    return found


async def _remembered(connection: AsyncConnection) -> _Named:
    """The reports and documents of which passages are."""
    found: _Named = {}
    async for task_id, body, *_ in await connection.stream(rows_with(passages.c.body, true())):
        _name(found, task_id, [Passage.model_validate_json(body).blob])
    return found


def _of_progress(progress: TaskProgress) -> Iterator[str | None]:
    yield from (progress.report, progress.state)
    yield from (version.report for version in progress.reports)
    yield from (telling.text for telling in progress.tellings)
    yield from (edit.instructions for edit in progress.edits)
    yield from (update.given for update in progress.updates)
    yield from (review.found for review in progress.reviews)


def _of_state(state: TaskState) -> Sequence[str | None]:
    return [
        state.report,
        *(version.report for version in state.reports),
        *(telling.text for telling in state.tellings),
        *(update.given for update in state.updates),
        *(review.found for review in state.oversight.reviews),
    ]


def _of_entry(entry: AuditEntry) -> Sequence[str]:
    match entry:
        case Telling():
            return [entry.text]
        case ContextEdit():
            return [entry.instructions]
        case KeptUpdate():
            return [entry.given, *(blob for change in entry.changes for blob in (change.before, change.after))]
        case _:  # kinds that name none, or that no earlier release wrote
            return []


def _name(found: _Named, task_id: str, blobs: Iterable[str | None]) -> None:
    for blob in blobs:
        if blob:
            found.setdefault(blob, set()).add(task_id)


def _name_again(found: _Named, through: _Named, named: Mapping[str, Sequence[str | None]]) -> None:
    """Whoever has a text that names others has those, too."""
    for blob, inner in named.items():
        for task_id in through[blob]:
            _name(found, task_id, inner)


async def _all(connection: AsyncConnection, kind: type[_V], named: _Named) -> Sequence[tuple[str, _V]]:
    """Those of the texts that are such a value."""
    read = [(blob, _read(kind, text)) for blob, text in (await _texts(connection, named)).items()]
    return [(blob, value) for blob, value in read if value is not None]


def _read(kind: type[_V], text: str) -> _V | None:
    """None where a release that nobody has any more wrote it otherwise."""
    try:
        return kind.model_validate_json(text)
    except ValidationError:
        return None


async def _shown_in_messages(connection: AsyncConnection) -> _Named:
    """Pages that an agent has fetched, and results that were put away: whoever shows the very ends of a text had it.

    Of a text that is no longer than its ends these say nothing: it can be guessed, and was never put away.
    """
    found: _Named = {}
    for run_id, task_id in (await connection.execute(select(runs.c.run_id, runs.c.task_id))).all():
        said = select(messages.c.body).where(messages.c.run_id == run_id).order_by(messages.c.version)
        log = [Message.model_validate_json(body) for body in (await connection.execute(said)).scalars()]
        _name(found, task_id, [page.blob for page in kept_pages(log).values()])
        results = {result.content for message in log for result in message.tool_results}
        mentioned = dict.fromkeys(blob for content in results for blob in CONTENT_HASH.findall(content))
        whole = await _texts(connection, mentioned)
        _name(found, task_id, [blob for blob, text in whole.items() if _was_put_away(text, blob, results)])
    return found


async def _texts(connection: AsyncConnection, blobs: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for batch in batches(blobs):
        kept = select(texts.c.blob, texts.c.content).where(texts.c.blob.in_(batch))
        found |= {blob: opened_text(blob, content) for blob, content in await connection.execute(kept)}
    return found


async def _add(connection: AsyncConnection, named: _Named) -> None:
    """Those of them that are there."""
    whose = select(tasks.c.task_id, tasks.c.tenant, tasks.c.session, tasks.c.terms)  # these prove the others
    refs = {row.task_id: row for row in await connection.execute(whose)}
    for batch in batches(named):
        there = (await connection.execute(select(texts.c.blob).where(texts.c.blob.in_(batch)))).scalars()
        rows = [
            owner_row(blob, OfTask(tenant=refs[task_id].tenant, session=refs[task_id].session, task_id=task_id))
            for blob in there
            for task_id in sorted(named[blob] & refs.keys())
        ]
        await add_missing(connection, text_owners, rows)


def _was_put_away(text: str, blob: str, results: Collection[str]) -> bool:
    shown = preview(text, blob)
    return len(shown) < len(text) and shown in results
