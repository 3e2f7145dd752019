"""Everything that the store keeps of tasks: each text with its column and row, and the contents that they own."""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from sqlalchemy import Column, ColumnElement, FromClause, Label, Select, Table, case, select, true
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
    text_owners,
    texts,
)
from waystation.adapters.store.sealed import SealedText
from waystation.adapters.store.texts import opened_text
from waystation.domain.ownership import OfTask
from waystation.domain.persons import Whereabouts


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
    row: tuple[str | int, ...]
    """What its column's type binds it to."""


class Content(NamedTuple):
    """What a content hash stands for."""

    blob: str
    text: str
    owners: tuple[OfTask, ...]
    """Tasks of the tenant that have it."""
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
        bound_to = bound_columns(column)
        chosen = rows_with(column, tasks.c.tenant == tenant).add_columns(*bound_to, which)
        async for task_id, text, *key, number in await connection.stream(chosen):
            ends = len(key) - len(bound_to)
            yield Cell(sources[number], tuple(key[:ends]), task_id, text, tuple(key[ends:]))


async def contents(connection: AsyncConnection, tenant: str) -> AsyncGenerator[Content]:
    """What the tenant's tasks have of texts by content hash. Raises WrongKey, StoreError."""
    mine = select(text_owners).where(text_owners.c.tenant == tenant).order_by(text_owners.c.task_id)
    owners: dict[str, list[OfTask]] = {}
    for row in (await connection.execute(mine)).mappings():
        owners.setdefault(row["blob"], []).append(OfTask(tenant=tenant, session=row["session"], task_id=row["task_id"]))
    listed = select(documents.c.blob).join(tasks, tasks.c.task_id == documents.c.task_id)
    of_documents = set((await connection.execute(listed.where(tasks.c.tenant == tenant))).scalars())
    for batch in batches(owners):
        found = select(texts.c.blob, texts.c.content).where(texts.c.blob.in_(batch))
        async for blob, content in await connection.stream(found):
            yield Content(blob, opened_text(blob, content), tuple(owners[blob]), blob in of_documents)


def bound_columns(column: Column[str]) -> Sequence[Label[str | int]]:
    """The columns of its table to which the column's texts are bound."""
    assert isinstance(column.type, SealedText)
    return [column.table.c[name].label(f"bound_{name}") for name in column.type.key]


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
