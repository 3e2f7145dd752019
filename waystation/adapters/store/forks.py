"""Tasks that begin with finished work of another one: copied under their own ids in the transaction that adds them."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Table, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import BATCH, StorePart, add_once, bodies, owned, writing
from waystation.adapters.store.schema import (
    audit,
    compactions,
    deliverables,
    documents,
    messages,
    notes,
    runs,
    tasks,
    text_owners,
)
from waystation.adapters.store.seals import SealedText, bound
from waystation.adapters.store.tasks import request_digest, require_same_request, task_columns, unknown_task
from waystation.adapters.store.texts import documents_of
from waystation.domain.errors import BadInput
from waystation.domain.events import Happening
from waystation.domain.ownership import OfTenant
from waystation.domain.plan import Plan
from waystation.domain.signals import TOLD, UPDATED
from waystation.domain.task import Reused, TaskProgress, TaskRow
from waystation.domain.work import Note


class SqlForking(StorePart):
    """The part of the port `Store` that adds forked tasks."""

    @writing
    async def register_fork(
        self, connection: AsyncConnection, row: TaskRow, plan: Plan, reused: Reused, state: str
    ) -> bool:
        """Store a new task with this plan and the documents of another one, and what these agents of it have done.

        `state` is the content hash of the state in which that one ended, as it was looked at; nothing is charged.
        False: the same request is there already. Raises RequestConflict as `register` does; UnknownTask; BadInput
        where the other task has gone on meanwhile.
        """
        source = reused.task_id
        tenants = OfTenant(tenant=row.ref.tenant)
        whose = (tasks.c.task_id == source, owned(tasks, tenants), tasks.c.progress.is_not(None))
        ended = await bodies(connection, select(tasks.c.progress, tasks.c.terms).where(*whose).with_for_update())
        if not ended:
            raise unknown_task(source)
        if TaskProgress.model_validate_json(ended[0]).state != state:
            raise BadInput(f"{source} has gone on meanwhile: fork it when it has ended again")
        digest = request_digest(row.request, await documents_of(connection, source, tenants))
        planned = bound(plan.model_dump_json(), row.ref.task_id)
        columns = {**task_columns(row), "plan": planned, "digest": digest}
        if not await add_once(connection, tasks, columns):
            await require_same_request(connection, row, digest)
            return False
        own = row.ref.reader.model_dump()
        await _copy(connection, text_owners, text_owners.c.task_id == source, own)
        await _copy(connection, documents, documents.c.task_id == source, own)
        for kind in (TOLD, UPDATED):
            await _copy(connection, audit, (audit.c.task_id == source) & audit.c.entry_id.startswith(kind), own)
        for agent in reused.agents:
            await _copy_run(connection, f"{source}/{agent}", f"{row.ref.task_id}/{agent}", own)
        self._tell(connection, row.ref.task_id, Happening(kind="submitted", reference=source, detail="fork"))
        return True


async def _copy_run(connection: AsyncConnection, source: str, run_id: str, own: Mapping[str, str]) -> None:
    """What the agent said and handed over. Its charges, intents and outcomes of legs stay where they were made."""
    for table in (runs, messages, compactions, deliverables):
        await _copy(connection, table, table.c.run_id == source, {**own, "run_id": run_id})
    taken = select(notes.c.note_id, notes.c.body).where(notes.c.run_id == source).order_by(notes.c.ordinal)
    for note_id, body in (await connection.execute(taken)).all():
        own_id = f"{run_id}{note_id.removeprefix(source)}"
        note = Note.model_validate_json(body).model_copy(update={"id": own_id, "run_id": run_id})
        again = bound(note.model_dump_json(), run_id, own_id)
        row = {"run_id": run_id, "task_id": own["task_id"], "note_id": own_id, "body": again}
        await connection.execute(insert(notes).values(row))


async def _copy(connection: AsyncConnection, table: Table, where: ColumnElement[bool], own: Mapping[str, str]) -> None:
    """The rows that fit, with those of these columns changed that the table has, in their order.

    What is sealed is opened, and sealed again for its new row.
    """
    columns = [column for column in table.columns if column.name != "ordinal"]
    ordered = table.c.ordinal if "ordinal" in table.c else columns[0]
    found = await connection.execute(select(*columns).where(where).order_by(ordered))
    rows = [{**row, **{name: value for name, value in own.items() if name in row}} for row in found.mappings()]
    sealed = [(column.name, column.type.key) for column in columns if isinstance(column.type, SealedText)]
    for row in rows:
        row.update({name: bound(row[name], *(row[part] for part in key)) for name, key in sealed})
    for first in range(0, len(rows), BATCH):
        await connection.execute(insert(table), rows[first : first + BATCH])
