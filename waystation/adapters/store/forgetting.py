"""Tasks are forgotten: what memory could find of them, or every word of them."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, Table, and_, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import batches, to_its_end
from waystation.adapters.store.errors import translated
from waystation.adapters.store.mentions import blobs_of, mentioned, mentioned_in_passages, mentioned_no_more, runs_of
from waystation.adapters.store.part import writing
from waystation.adapters.store.remembering import SqlDocumentOutbox
from waystation.adapters.store.schema import (
    audit,
    compactions,
    deliverables,
    documents,
    messages,
    notes,
    outcomes,
    passages,
    plan_revisions,
    runs,
    tasks,
    text_owners,
    tool_intents,
    vault,
    vault_sessions,
)
from waystation.adapters.store.slow_texts import drop_slow
from waystation.adapters.store.tasks import task_columns, task_row
from waystation.adapters.store.texts import drop_owned, drop_shown, without_owner
from waystation.domain.forgetting import ForgetOrder, Forgotten, forgotten_row


class SqlForgetting(SqlDocumentOutbox):
    """The port `Forgetting`."""

    async def forget(self, order: ForgetOrder) -> Forgotten:
        """Remove what the order names, in one transaction. Carried out again, it finds nothing more.

        Passages leave the outbox, and their points are to be taken out of memory after this. Raises WrongStore.
        """
        forgotten = await self._forget(order)
        with translated():
            await to_its_end(self.database.empty_log())
        return forgotten

    @writing
    async def _forget(self, connection: AsyncConnection, order: ForgetOrder) -> Forgotten:
        self.require_own(order.store_id)
        own = select(tasks.c.task_id).where(tasks.c.tenant == order.tenant, tasks.c.task_id.in_(order.task_ids))
        ids = tuple((await connection.execute(own)).scalars())
        candidates = (
            await mentioned(connection, order.tenant, ids)
            if order.everything
            else await mentioned_in_passages(connection, ids)
        )
        blobs = await blobs_of(connection, ids) if order.everything else ()
        await self._forget_documents(connection, ids)
        there = await _with_passages(connection, ids)
        if order.everything:
            there.update(await _with_words(connection, ids))
        forgotten = Forgotten(tasks=len(there), passages=await self._without_passages(connection, ids))
        if order.everything:
            forgotten = forgotten.model_copy(update=await _without_words(connection, ids, self._clock()))
        gone_texts = await drop_owned(connection, blobs, text_owners.c.task_id.in_(ids))
        await drop_shown(connection, order.tenant, await without_owner(connection, order.tenant, blobs))
        unmentioned = await mentioned_no_more(connection, candidates)
        for table in (vault_sessions, vault):
            # The last count is of originals.
            own = table.c.tenant == order.tenant
            originals = await _deleted(connection, table, table.c.placeholder, unmentioned, own)
        if order.everything:
            await _without_sessions(connection, ids)
            await drop_slow(connection, order.tenant)
        return forgotten.model_copy(update={"texts": gone_texts, "originals": originals})

    async def _without_passages(self, connection: AsyncConnection, ids: tuple[str, ...]) -> int:
        # The row stays, empty, until memory has the point no more: the outbox brings it out.
        now = self._clock()
        there = (passages.c.run_id.in_(runs_of(ids)), passages.c.body != "")
        changed = await connection.execute(update(passages).where(*there).values(body="", gone_at=now, stored_at=now))
        return changed.rowcount


async def _with_passages(connection: AsyncConnection, ids: tuple[str, ...]) -> set[str]:
    """Those of the tasks that memory could find something of."""
    found = select(runs.c.task_id).join(passages, passages.c.run_id == runs.c.run_id)
    return set((await connection.execute(found.where(runs.c.task_id.in_(ids), passages.c.body != ""))).scalars())


async def _with_words(connection: AsyncConnection, ids: tuple[str, ...]) -> set[str]:
    """Those of the tasks that were not forgotten as a whole."""
    found = select(tasks.c.task_id).where(tasks.c.task_id.in_(ids), tasks.c.forgotten_at.is_(None))
    return set((await connection.execute(found)).scalars())


async def _without_words(connection: AsyncConnection, ids: tuple[str, ...], now: datetime) -> dict[str, int]:
    """Counts by the fields of `Forgotten`. What the tasks cost and how they ended stays."""
    agents = runs_of(ids)
    counts = {
        field: sum([await _emptied(connection, table, column.in_(which)) for table, column, which in places])
        for field, places in {
            "messages": [(table, table.c.run_id, agents) for table in (messages, compactions, outcomes)],
            "work": [(table, table.c.run_id, agents) for table in (notes, deliverables)],
            "documents": [(documents, documents.c.task_id, ids)],
            "audits": [(audit, audit.c.task_id, ids)],
        }.items()
    }
    await _emptied(connection, tool_intents, tool_intents.c.run_id.in_(agents))
    await _emptied(connection, plan_revisions, plan_revisions.c.task_id.in_(ids))
    for row in (await connection.execute(select(tasks).where(tasks.c.task_id.in_(ids)))).all():
        scrubbed = task_columns(forgotten_row(task_row(row)))
        this = tasks.c.task_id == row.task_id
        await connection.execute(update(tasks).where(this).values(**scrubbed, plan=None, forgotten_at=now))
    return counts


async def _without_sessions(connection: AsyncConnection, ids: tuple[str, ...]) -> None:
    """Sessions of these tasks of which no word is left have met nothing any more."""
    own = select(tasks.c.session).where(tasks.c.task_id.in_(ids)).distinct()
    left = select(tasks.c.session).where(tasks.c.forgotten_at.is_(None))
    gone = vault_sessions.c.session.in_(own) & vault_sessions.c.session.not_in(left)
    await _emptied(connection, vault_sessions, gone)


async def _emptied(connection: AsyncConnection, table: Table, where: ColumnElement[bool]) -> int:
    return (await connection.execute(delete(table).where(where))).rowcount


async def _deleted(
    connection: AsyncConnection,
    table: Table,
    column: ColumnElement[str],
    values: Iterable[str],
    *where: ColumnElement[bool],
) -> int:
    return sum([await _emptied(connection, table, and_(column.in_(batch), *where)) for batch in batches(values)])
