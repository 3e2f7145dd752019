"""New versions of a task's documents: put in place in one transaction with their entry in the audit trail, where the
versions before stay named, so that they are kept, forgotten and erased with the task.
"""

from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.audit import UPDATED, entries, entry_row
from waystation.adapters.store.engine import add_once
from waystation.adapters.store.part import StorePart, reading, writing
from waystation.adapters.store.schema import audit, documents, tasks
from waystation.adapters.store.tasks import unknown_task
from waystation.adapters.store.texts import add_documents, document_row, documents_of
from waystation.domain.document_changes import (
    DocumentChange,
    DocumentSet,
    DocumentsUpdate,
    KeptUpdate,
    changes,
    updated,
)
from waystation.domain.documents import Document
from waystation.domain.ownership import Installation, Reader


class SqlUpdates(StorePart):
    """The part of the port `TaskStore` by which documents change."""

    @writing
    async def update_documents(
        self, connection: AsyncConnection, task_id: str, update: DocumentsUpdate, given: DocumentSet
    ) -> KeptUpdate:
        """Put these versions in the place of the task's documents. The same number twice changes nothing.

        The texts are there. Raises UnknownTask.
        """
        locked = select(tasks.c.ordinal).where(tasks.c.task_id == task_id).with_for_update()
        if (await connection.execute(locked)).one_or_none() is None:
            raise unknown_task(task_id)
        known = {one.number: one for one in await _updates(connection, task_id, Installation())}
        if update.number in known:
            return known[update.number]
        before = await documents_of(connection, task_id, Installation())
        after = updated(before, given)
        kept = _kept(update, changes(before, after))
        await _put(connection, task_id, before, after)
        await add_once(connection, audit, entry_row(task_id, kept))
        return kept

    @reading
    async def document_updates(
        self, connection: AsyncConnection, task_id: str, reader: Reader
    ) -> tuple[KeptUpdate, ...]:
        """What became of the task's documents while it worked, in the order of the numbers."""
        return await _updates(connection, task_id, reader)


async def _updates(connection: AsyncConnection, task_id: str, reader: Reader) -> tuple[KeptUpdate, ...]:
    kept = map(KeptUpdate.model_validate_json, await entries(connection, task_id, UPDATED, reader))
    return tuple(sorted(kept, key=lambda one: one.number))


def _kept(update: DocumentsUpdate, made: Sequence[DocumentChange]) -> KeptUpdate:
    kinds = [change.kind for change in made]
    counts = {kind: kinds.count(kind) for kind in ("changed", "added", "removed")}
    return KeptUpdate.model_validate({**update.model_dump(), **counts, "kept": True, "changes": tuple(made)})


async def _put(
    connection: AsyncConnection, task_id: str, before: Sequence[Document], after: Sequence[Document]
) -> None:
    for position, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            this = update(documents).where(documents.c.task_id == task_id, documents.c.position == position)
            await connection.execute(this.values(document_row(task_id, position, new)))
    await add_documents(connection, task_id, after[len(before) :], len(before))
