"""Everything that the store keeps of tasks: each text with its column and row, and the contents that they name."""

from collections.abc import AsyncGenerator
from typing import NamedTuple

from sqlalchemy import Column, ColumnElement, FromClause, Select, Table, case, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import batches
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
    texts,
)
from waystation.adapters.store.texts import CONTENT_HASH
from waystation.domain.persons import Whereabouts

Owners = dict[str, set[str]]
"""Tasks that have a content, by its hash."""


class Source(NamedTuple):
    """A column with texts."""

    column: Column[str]
    place: Whereabouts
    where: ColumnElement[bool] = true()
    """Of several sources of one column, which rows are whose."""
    is_json: bool = True


class Cell(NamedTuple):
    """One text of a task."""

    source: Source
    key: tuple[object, ...]
    """The values of its table's primary key."""
    task_id: str
    text: str

    def add_to(self, owners: Owners) -> None:
        """The text's task has every content that the text names."""
        for blob in CONTENT_HASH.findall(self.text):
            owners.setdefault(blob, set()).add(self.task_id)


class Content(NamedTuple):
    """What a content hash stands for."""

    blob: str
    text: str
    task_ids: frozenset[str]
    """Tasks that have it."""
    is_document: bool


SOURCES = (
    Source(tasks.c.request, Whereabouts.REQUEST),
    Source(tasks.c.title, Whereabouts.TITLE, is_json=False),
    Source(tasks.c.plan, Whereabouts.PLAN),
    Source(plan_revisions.c.body, Whereabouts.PLAN),
    Source(tasks.c.progress, Whereabouts.PROGRESS),
    Source(documents.c.name, Whereabouts.DOCUMENT_NAME, is_json=False),
    Source(audit.c.body, Whereabouts.AUDIT),
    Source(messages.c.body, Whereabouts.TRANSCRIPT),
    Source(compactions.c.body, Whereabouts.SUMMARY),
    Source(outcomes.c.body, Whereabouts.OUTCOME),
    Source(notes.c.body, Whereabouts.NOTE),
    Source(deliverables.c.body, Whereabouts.FINDING),
    Source(passages.c.body, Whereabouts.REMEMBERED, passages.c.stored_at.is_not(None)),
    Source(passages.c.body, Whereabouts.OUTBOX, passages.c.stored_at.is_(None)),
)

COLUMNS = tuple(dict.fromkeys(source.column for source in SOURCES))
"""Each is read in one statement, whatever the places of its texts: PostgreSQL shows every statement the newest rows,
and a passage that leaves the outbox between two of them would be in neither.
"""


async def cells(connection: AsyncConnection, tenant: str) -> AsyncGenerator[Cell]:
    """All texts of the tenant's tasks but contents; empty ones are left out. Raises WrongKey."""
    for column in COLUMNS:
        sources = [source for source in SOURCES if source.column is column]
        which = case(*[(source.where, number) for number, source in enumerate(sources)])
        chosen = rows_with(column, tasks.c.tenant == tenant).add_columns(which)
        async for task_id, text, *key, number in await connection.stream(chosen):
            yield Cell(sources[number], tuple(key), task_id, text)


async def owners_of(connection: AsyncConnection, tenant: str) -> Owners:
    """Of the contents that the tenant's texts name. Raises WrongKey."""
    owners: Owners = {}
    async for cell in cells(connection, tenant):
        cell.add_to(owners)
    return owners


async def contents(connection: AsyncConnection, tenant: str, owners: Owners) -> AsyncGenerator[Content]:
    """The tenant's documents, everything that its texts name by content hash, and what that names in turn.

    `owners` are those of what the texts name; those of all the rest are added. Raises WrongKey.
    """
    of_documents = await _documents(connection, tenant)
    for blob, task_ids in of_documents.items():
        owners.setdefault(blob, set()).update(task_ids)
    waiting, seen = set(owners), set[str]()
    while waiting:
        seen |= waiting
        named = set[str]()
        for batch in batches(waiting):
            found = select(texts.c.blob, texts.c.content).where(texts.c.blob.in_(batch))
            async for blob, content in await connection.stream(found):
                text: str = content.decode()
                for mention in set(CONTENT_HASH.findall(text)):
                    owners.setdefault(mention, set()).update(owners[blob])
                    named.add(mention)
                yield Content(blob, text, frozenset(owners[blob]), blob in of_documents)
        waiting = named - seen


async def _documents(connection: AsyncConnection, tenant: str) -> Owners:
    listed = select(documents.c.blob, documents.c.task_id).select_from(_with_tasks(documents))
    found: Owners = {}
    for blob, task_id in await connection.execute(listed.where(tasks.c.tenant == tenant)):
        found.setdefault(blob, set()).add(task_id)
    return found


def rows_with(column: Column[str], of_tasks: ColumnElement[bool]) -> Select[str, str]:
    """Task, text and primary key of these tasks' rows in which this column is not empty."""
    chosen = select(tasks.c.task_id, column, *column.table.primary_key).select_from(_with_tasks(column.table))
    return chosen.where(of_tasks, column.is_not(None), column != "")


def _with_tasks(table: Table) -> FromClause:
    if table is tasks:
        return tasks
    if "run_id" in table.c:
        return table.join(runs, runs.c.run_id == table.c.run_id).join(tasks, tasks.c.task_id == runs.c.task_id)
    return table.join(tasks, tasks.c.task_id == table.c.task_id)
