"""What is mentioned where: content hashes of texts, and placeholders, in everything that the store keeps."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.belongings import COLUMNS, rows_with
from waystation.adapters.store.engine import batches
from waystation.adapters.store.schema import documents, passages, runs, tasks, texts
from waystation.adapters.store.texts import CONTENT_HASH, shown_for, shown_rows
from waystation.domain.redaction import PLACEHOLDER


@dataclass
class Mentions:
    """Content hashes of texts, and placeholders."""

    blobs: set[str] = field(default_factory=set[str])
    placeholders: set[str] = field(default_factory=set[str])
    unshown: set[str] = field(default_factory=set[str])
    """Content hashes that no other task of the tenant mentions, though one of another tenant may."""

    def add(self, text: str) -> None:
        """What this text mentions, too."""
        self.blobs.update(CONTENT_HASH.findall(text))
        self.placeholders.update(PLACEHOLDER.findall(text))

    def remove(self, text: str) -> None:
        """What this text mentions no more."""
        self.blobs.difference_update(CONTENT_HASH.findall(text))
        self.placeholders.difference_update(PLACEHOLDER.findall(text))


def runs_of(task_ids: tuple[str, ...]) -> Select[tuple[str]]:
    """Ids of the agent runs of these tasks."""
    return select(runs.c.run_id).where(runs.c.task_id.in_(task_ids))


async def mentioned_in_passages(connection: AsyncConnection, task_ids: tuple[str, ...]) -> Mentions:
    """By the passages of these tasks."""
    found = Mentions()
    bodies = select(passages.c.body).where(passages.c.run_id.in_(runs_of(task_ids)))
    async for text in await connection.stream_scalars(bodies):
        found.add(text)
    found.blobs.clear()
    return found


async def mentioned(connection: AsyncConnection, tenant: str, task_ids: tuple[str, ...]) -> Mentions:
    """By everything that is kept of these tasks of a tenant, and in the texts whose content hashes that names, also as
    they are shown.
    """
    found = Mentions()
    async for text in _kept(connection, tasks.c.task_id.in_(task_ids)):
        found.add(text)
    shown = await shown_rows(connection, tenant, found.blobs)
    for batch in batches([*found.blobs, *shown]):
        named = select(texts.c.content).where(texts.c.blob.in_(batch))
        async for content in await connection.stream_scalars(named):
            found.add(content.decode())
    return found


async def without_mentioned(connection: AsyncConnection, tenant: str, candidates: Mentions) -> None:
    """Take from a tenant's candidates all that anything in the store mentions: texts of candidates do not count."""
    async for text in _kept(connection, tasks.c.tenant == tenant):
        candidates.remove(text)
    candidates.unshown = set(candidates.blobs)
    async for text in _kept(connection, tasks.c.tenant != tenant):
        candidates.remove(text)
    if candidates.placeholders:
        async for blob, content in await connection.stream(select(texts.c.blob, texts.c.content)):
            if blob not in candidates.blobs and not shown_for(blob, tenant, candidates.unshown):
                candidates.remove(content.decode())


async def _kept(connection: AsyncConnection, of_tasks: ColumnElement[bool]) -> AsyncGenerator[str]:
    """All texts of these tasks but names of documents, whose content hashes come instead; of tasks without a row
    nothing.
    """
    for column in COLUMNS:
        if column is documents.c.name:
            continue
        async for row in await connection.stream(rows_with(column, of_tasks)):
            yield row[1]
    ids = select(tasks.c.task_id).where(of_tasks)
    async for blob in await connection.stream_scalars(select(documents.c.blob).where(documents.c.task_id.in_(ids))):
        yield blob
