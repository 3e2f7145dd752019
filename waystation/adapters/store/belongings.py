"""Everything that the store keeps of a tenant: each text with its column and row, and the contents that they name."""

from collections.abc import AsyncGenerator, Iterator
from typing import NamedTuple

from sqlalchemy import Column, ColumnElement, FromClause, Select, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.mentions import CONTENT_HASH
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
from waystation.domain.persons import Whereabouts

BATCH = 500
"""Values a statement."""


class Source(NamedTuple):
    """A column with texts."""

    column: Column[str]
    place: Whereabouts
    where: ColumnElement[bool] | None = None
    is_json: bool = True


class Cell(NamedTuple):
    """One text of a tenant."""

    source: Source
    key: tuple[object, ...]
    """The values of its table's primary key."""
    task_id: str
    text: str


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


async def cells(connection: AsyncConnection, tenant: str) -> AsyncGenerator[Cell]:
    """All texts of the tenant's tasks but contents; empty ones are left out. Raises WrongKey."""
    for source in SOURCES:
        async for row in await connection.stream(_select(source, tenant)):
            yield Cell(source, tuple(row[2:]), row[0], row[1])


async def contents(connection: AsyncConnection, tenant: str) -> AsyncGenerator[Content]:
    """Everything that the tenant's texts name by content hash, and what that names in turn."""
    of_documents = await _documents(connection, tenant)
    owners = {blob: set(task_ids) for blob, task_ids in of_documents.items()}
    async for cell in cells(connection, tenant):
        for blob in CONTENT_HASH.findall(cell.text):
            owners.setdefault(blob, set()).add(cell.task_id)
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


def batches(values: set[str]) -> Iterator[list[str]]:
    """In order, so many at once as a statement takes."""
    ordered = sorted(values)
    return (ordered[first : first + BATCH] for first in range(0, len(ordered), BATCH))


async def _documents(connection: AsyncConnection, tenant: str) -> dict[str, set[str]]:
    listed = select(documents.c.blob, documents.c.task_id).select_from(_of_tasks(documents))
    found = dict[str, set[str]]()
    for blob, task_id in await connection.execute(listed.where(tasks.c.tenant == tenant)):
        found.setdefault(blob, set()).add(task_id)
    return found


def _select(source: Source, tenant: str) -> Select[str, str]:
    table = source.column.table
    chosen = select(tasks.c.task_id, source.column, *table.primary_key).select_from(_of_tasks(table))
    chosen = chosen.where(tasks.c.tenant == tenant, source.column.is_not(None), source.column != "")
    return chosen if source.where is None else chosen.where(source.where)


def _of_tasks(table: Table) -> FromClause:
    if table is tasks:
        return tasks
    if "run_id" in table.c:
        return table.join(runs, runs.c.run_id == table.c.run_id).join(tasks, tasks.c.task_id == runs.c.task_id)
    return table.join(tasks, tasks.c.task_id == table.c.task_id)
