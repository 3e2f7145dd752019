"""Forgets tasks in the SQL store (what memory could find of them, or every word), and finds all texts and
placeholders.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Column, ColumnElement, FromClause, Label, Select, Table, and_, case, delete, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.documents.text_repository import (
    decode_stored_text,
    delete_redacted_texts,
    delete_slow_texts,
    find_unowned_texts,
    list_redacted_text_row_ids,
    release_texts,
)
from waystation.erasure.erasure import ForgetCounts, ForgetOrder, build_forgotten_row
from waystation.kernel.scopes import TaskScope
from waystation.memory.outbox_repository import SqlDocumentPassageOutbox
from waystation.privacy.policy import PLACEHOLDER_PATTERN
from waystation.store.encryption import EncryptedText
from waystation.store.engine import (
    fetch_bodies,
    iter_batches,
    run_to_completion,
    translate_database_errors,
    write_transaction,
)
from waystation.store.event_numbering import queue_event
from waystation.store.events import UnnumberedEvent
from waystation.store.schema import (
    documents,
    passage_states,
    passages,
    runs,
    tasks,
    text_owners,
    texts,
    vault,
    vault_sessions,
)
from waystation.store.stored_tables import ForgetCategory, TextColumn
from waystation.tasks.task_repository import build_task_columns, parse_task_row
from waystation.tasks.task_tables import STORED_TABLES


class TextCell(NamedTuple):
    """One text of a task."""

    source: TextColumn
    key: tuple[object, ...]
    """Values of its table's primary key."""
    task_id: str
    text: str
    row: tuple[str | int, ...]
    """Values that its column's type binds it to."""


class StoredContent(NamedTuple):
    """A stored content by its hash."""

    blob: str
    text: str
    owners: tuple[TaskScope, ...]
    """Tasks of the tenant that have it."""
    is_document: bool


SEARCHED_COLUMNS = tuple(text for stored in STORED_TABLES for text in stored.texts)
"""Where a person is searched for, besides the contents of documents, reports and long results."""
TEXT_COLUMNS = tuple(dict.fromkeys(source.column for source in SEARCHED_COLUMNS))
"""Each is read in one statement, whatever the location of its texts: PostgreSQL shows every statement the newest rows,
and a passage that leaves the outbox between two statements would be in neither.
"""


async def iter_task_row_texts(connection: AsyncConnection, tenant: str) -> AsyncGenerator[TextCell]:
    """Yield all non-empty texts of the tenant's tasks, except contents.

    Raises:
        WrongKey: no available key decrypts a text.
        StoreError: a text is plain although everything must be encrypted.
    """
    await fetch_bodies(connection, select(tasks.c.task_id, tasks.c.terms).where(tasks.c.tenant == tenant))
    joined = select(runs.c.run_id, runs.c.proof).join(tasks, tasks.c.task_id == runs.c.task_id)
    await fetch_bodies(connection, joined.where(tasks.c.tenant == tenant))
    for column in TEXT_COLUMNS:
        sources = [source for source in SEARCHED_COLUMNS if source.column is column]
        which = case(*[(source.where, number) for number, source in enumerate(sources)])
        bound_to = get_bound_columns(column)
        chosen = build_text_rows_query(column, tasks.c.tenant == tenant).add_columns(*bound_to, which)
        async for task_id, text, *key, number in await connection.stream(chosen):
            ends = len(key) - len(bound_to)
            yield TextCell(sources[number], tuple(key[:ends]), task_id, text, tuple(key[ends:]))


async def iter_stored_contents(connection: AsyncConnection, tenant: str) -> AsyncGenerator[StoredContent]:
    """Yield the texts that the tenant's tasks have by content hash.

    Raises:
        WrongKey: no available key decrypts a text.
        StoreError: a text is plain although everything must be encrypted.
    """
    mine = select(text_owners).where(text_owners.c.tenant == tenant).order_by(text_owners.c.task_id)
    owners: dict[str, list[TaskScope]] = {}
    for row in (await connection.execute(mine)).mappings():
        owners.setdefault(row["blob"], []).append(
            TaskScope(tenant=tenant, session=row["session"], task_id=row["task_id"])
        )
    listed = select(documents.c.blob).join(tasks, tasks.c.task_id == documents.c.task_id)
    of_documents = set((await connection.execute(listed.where(tasks.c.tenant == tenant))).scalars())
    for batch in iter_batches(owners):
        found = select(texts.c.blob, texts.c.content).where(texts.c.blob.in_(batch))
        async for blob, content in await connection.stream(found):
            yield StoredContent(blob, decode_stored_text(blob, content), tuple(owners[blob]), blob in of_documents)


def get_bound_columns(column: Column[str]) -> Sequence[Label[str | int]]:
    """Return the columns of its table that the column's texts are bound to."""
    assert isinstance(column.type, EncryptedText)
    return [column.table.c[name].label(f"bound_{name}") for name in column.type.key]


def build_text_rows_query(column: Column[str], of_tasks: ColumnElement[bool]) -> Select[str, str]:
    """Select task, text and primary key of these tasks' rows in which this column is not empty."""
    chosen = select(tasks.c.task_id, column, *column.table.primary_key).select_from(_with_tasks(column.table))
    return chosen.where(of_tasks, column.is_not(None), column != "")


def _with_tasks(table: Table) -> FromClause:
    if table is tasks:
        return tasks
    if "run_id" in table.c:
        return table.join(runs, runs.c.run_id == table.c.run_id).join(tasks, tasks.c.task_id == runs.c.task_id)
    return table.join(tasks, tasks.c.task_id == table.c.task_id)


def build_run_ids_query(task_ids: tuple[str, ...]) -> Select[tuple[str]]:
    """Select the ids of the agent runs of these tasks."""
    return select(runs.c.run_id).where(runs.c.task_id.in_(task_ids))


async def find_placeholders_in_passages(connection: AsyncConnection, task_ids: tuple[str, ...]) -> set[str]:
    """Find the placeholders in the passages of these tasks."""
    found: set[str] = set()
    bodies = select(passages.c.body).where(passages.c.run_id.in_(build_run_ids_query(task_ids)))
    async for text in await connection.stream_scalars(bodies):
        found.update(PLACEHOLDER_PATTERN.findall(text))
    return found


async def find_placeholders(connection: AsyncConnection, tenant: str, task_ids: tuple[str, ...]) -> set[str]:
    """Find the placeholders in everything that is stored of these tasks of a tenant, including their contents and the
    redacted forms of those.
    """
    found: set[str] = set()
    async for text in _iter_texts(connection, tasks.c.task_id.in_(task_ids)):
        found.update(PLACEHOLDER_PATTERN.findall(text))
    blobs = await list_blobs(connection, task_ids)
    for batch in iter_batches([*blobs, *await list_redacted_text_row_ids(connection, tenant, set(blobs))]):
        had = select(texts.c.content).where(texts.c.blob.in_(batch))
        async for content in await connection.stream_scalars(had):
            found.update(PLACEHOLDER_PATTERN.findall(content.decode()))
    return found


async def list_blobs(connection: AsyncConnection, task_ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the content hashes of the texts that these tasks have."""
    had = select(text_owners.c.blob).where(text_owners.c.task_id.in_(task_ids)).distinct()
    return tuple((await connection.execute(had)).scalars())


async def find_unreferenced_placeholders(connection: AsyncConnection, candidates: set[str]) -> set[str]:
    """Return those of the placeholders that nothing in the store mentions any more."""
    left = set(candidates)
    if not left:
        return left
    async for text in _iter_texts(connection, true()):
        left.difference_update(PLACEHOLDER_PATTERN.findall(text))
    async for content in await connection.stream_scalars(select(texts.c.content)):
        left.difference_update(PLACEHOLDER_PATTERN.findall(content.decode()))
    return left


async def _iter_texts(connection: AsyncConnection, of_tasks: ColumnElement[bool]) -> AsyncGenerator[str]:
    """Yield all texts of these tasks except document names; nothing for tasks without a row."""
    for column in TEXT_COLUMNS:
        if column not in {documents.c.name, documents.c.file_name}:
            async for row in await connection.stream(build_text_rows_query(column, of_tasks)):
                yield row[1]


class SqlForgetStore(SqlDocumentPassageOutbox):
    """`ForgetRepository` in SQL."""

    async def forget_tasks(self, order: ForgetOrder) -> ForgetCounts:
        """Remove what the order names, in one transaction. A repetition finds nothing more.

        Passages leave the outbox; their points have to be removed from memory afterwards.

        Raises:
            WrongStore: the order is for another store.
        """
        forgotten = await self._forget(order)
        with translate_database_errors():
            await run_to_completion(self.database.truncate_write_ahead_log())
        return forgotten

    @write_transaction
    async def _forget(self, connection: AsyncConnection, order: ForgetOrder) -> ForgetCounts:
        self.require_own_store(order.store_id)
        own = select(tasks.c.task_id).where(tasks.c.tenant == order.tenant, tasks.c.task_id.in_(order.task_ids))
        ids = tuple((await connection.execute(own)).scalars())
        candidates = (
            await find_placeholders(connection, order.tenant, ids)
            if order.everything
            else await find_placeholders_in_passages(connection, ids)
        )
        blobs = await list_blobs(connection, ids) if order.everything else ()
        await self._forget_documents(connection, ids)
        there = await _find_tasks_with_passages(connection, ids)
        if order.everything:
            there.update(await _find_tasks_with_texts(connection, ids))
        forgotten = ForgetCounts(tasks=len(there), passages=await self._delete_passages(connection, ids))
        if order.everything:
            forgotten = await _delete_task_texts(connection, forgotten, ids, self._clock())
        gone_texts = await release_texts(connection, blobs, text_owners.c.task_id.in_(ids))
        await delete_redacted_texts(connection, order.tenant, await find_unowned_texts(connection, order.tenant, blobs))
        unmentioned = await find_unreferenced_placeholders(connection, candidates)
        for table in (vault_sessions, vault):
            # The last number counts originals.
            own = table.c.tenant == order.tenant
            originals = await _delete_by_ids(connection, table, table.c.placeholder, unmentioned, own)
        if order.everything:
            await _delete_empty_sessions(connection, ids)
            await delete_slow_texts(connection, order.tenant)
        return forgotten.replace(texts=gone_texts, originals=originals)

    async def _delete_passages(self, connection: AsyncConnection, ids: tuple[str, ...]) -> int:
        # The row stays, empty, until memory no longer has the point: the outbox removes it.
        now = self._clock()
        there = (passages.c.run_id.in_(build_run_ids_query(ids)), passages.c.body != "")
        theirs = passage_states.c.passage_id.in_(select(passages.c.passage_id).where(*there))
        await connection.execute(update(passage_states).where(theirs).values(gone_at=now, stored_at=now))
        return (await connection.execute(update(passages).where(*there).values(body=""))).rowcount


async def _find_tasks_with_passages(connection: AsyncConnection, ids: tuple[str, ...]) -> set[str]:
    """Return the tasks of which memory could find something."""
    found = select(runs.c.task_id).join(passages, passages.c.run_id == runs.c.run_id)
    return set((await connection.execute(found.where(runs.c.task_id.in_(ids), passages.c.body != ""))).scalars())


async def _find_tasks_with_texts(connection: AsyncConnection, ids: tuple[str, ...]) -> set[str]:
    """Return the tasks that were not forgotten completely."""
    found = select(tasks.c.task_id).where(tasks.c.task_id.in_(ids), tasks.c.forgotten_at.is_(None))
    return set((await connection.execute(found)).scalars())


async def _delete_task_texts(
    connection: AsyncConnection, forgotten: ForgetCounts, ids: tuple[str, ...], now: datetime
) -> ForgetCounts:
    """Delete the texts of the tasks and return the counts. What they cost and how they ended stays."""
    counts = Counter[ForgetCategory | None]()
    for stored in STORED_TABLES:
        if stored.forget == "deleted":
            of_tasks = stored.owner.in_(build_run_ids_query(ids) if stored.is_of_run else ids)
            counts[stored.counted_as] += await _delete_where(connection, stored.table, of_tasks)
    forgotten = forgotten.replace(
        messages=counts["messages"], work=counts["work"], documents=counts["documents"], audits=counts["audits"]
    )
    for row in (await connection.execute(select(tasks).where(tasks.c.task_id.in_(ids)))).all():
        scrubbed = build_task_columns(build_forgotten_row(parse_task_row(row)))
        this = tasks.c.task_id == row.task_id
        await connection.execute(update(tasks).where(this).values(**scrubbed, plan=None, forgotten_at=now))
        queue_event(connection, row.task_id, UnnumberedEvent(kind="forgotten"), now)
    return forgotten


async def _delete_empty_sessions(connection: AsyncConnection, ids: tuple[str, ...]) -> None:
    """Delete the encounters of these tasks' sessions of which no word is left."""
    own = select(tasks.c.session).where(tasks.c.task_id.in_(ids)).distinct()
    left = select(tasks.c.session).where(tasks.c.forgotten_at.is_(None))
    gone = vault_sessions.c.session.in_(own) & vault_sessions.c.session.not_in(left)
    await _delete_where(connection, vault_sessions, gone)


async def _delete_where(connection: AsyncConnection, table: Table, where: ColumnElement[bool]) -> int:
    return (await connection.execute(delete(table).where(where))).rowcount


async def _delete_by_ids(
    connection: AsyncConnection,
    table: Table,
    column: ColumnElement[str],
    values: Iterable[str],
    *where: ColumnElement[bool],
) -> int:
    return sum(
        [await _delete_where(connection, table, and_(column.in_(batch), *where)) for batch in iter_batches(values)]
    )
