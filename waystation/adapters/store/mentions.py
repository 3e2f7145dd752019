"""Which placeholders are mentioned where, in everything that the store keeps."""

from collections.abc import AsyncGenerator

from sqlalchemy import ColumnElement, Select, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.belongings import COLUMNS, rows_with
from waystation.adapters.store.engine import batches
from waystation.adapters.store.schema import documents, passages, runs, tasks, text_owners, texts
from waystation.adapters.store.texts import shown_rows
from waystation.domain.redaction import PLACEHOLDER


def runs_of(task_ids: tuple[str, ...]) -> Select[tuple[str]]:
    """Ids of the agent runs of these tasks."""
    return select(runs.c.run_id).where(runs.c.task_id.in_(task_ids))


async def mentioned_in_passages(connection: AsyncConnection, task_ids: tuple[str, ...]) -> set[str]:
    """Placeholders in the passages of these tasks."""
    found: set[str] = set()
    bodies = select(passages.c.body).where(passages.c.run_id.in_(runs_of(task_ids)))
    async for text in await connection.stream_scalars(bodies):
        found.update(PLACEHOLDER.findall(text))
    return found


async def mentioned(connection: AsyncConnection, tenant: str, task_ids: tuple[str, ...]) -> set[str]:
    """Placeholders in everything that is kept of these tasks of a tenant, and in the texts that they have, also as they
    are shown.
    """
    found: set[str] = set()
    async for text in _kept(connection, tasks.c.task_id.in_(task_ids)):
        found.update(PLACEHOLDER.findall(text))
    blobs = await blobs_of(connection, task_ids)
    for batch in batches([*blobs, *await shown_rows(connection, tenant, set(blobs))]):
        had = select(texts.c.content).where(texts.c.blob.in_(batch))
        async for content in await connection.stream_scalars(had):
            found.update(PLACEHOLDER.findall(content.decode()))
    return found


async def blobs_of(connection: AsyncConnection, task_ids: tuple[str, ...]) -> tuple[str, ...]:
    """Content hashes of the texts that these tasks have."""
    had = select(text_owners.c.blob).where(text_owners.c.task_id.in_(task_ids)).distinct()
    return tuple((await connection.execute(had)).scalars())


async def mentioned_no_more(connection: AsyncConnection, candidates: set[str]) -> set[str]:
    """Those of these placeholders that nothing in the store mentions any more."""
    left = set(candidates)
    if not left:
        return left
    async for text in _kept(connection, true()):
        left.difference_update(PLACEHOLDER.findall(text))
    async for content in await connection.stream_scalars(select(texts.c.content)):
        left.difference_update(PLACEHOLDER.findall(content.decode()))
    return left


async def _kept(connection: AsyncConnection, of_tasks: ColumnElement[bool]) -> AsyncGenerator[str]:
    """All texts of these tasks but names of documents; of tasks without a row nothing."""
    for column in COLUMNS:
        if column is not documents.c.name:
            async for row in await connection.stream(rows_with(column, of_tasks)):
                yield row[1]
