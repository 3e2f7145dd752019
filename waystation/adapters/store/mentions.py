"""What is mentioned where: content hashes of texts, and placeholders, in everything that the store keeps."""

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Select, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

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
from waystation.domain.redaction import PLACEHOLDER

CONTENT_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_OF_RUNS = (messages, compactions, outcomes, notes, deliverables, passages)
_OF_TASKS = (tasks.c.request, tasks.c.title, tasks.c.plan, tasks.c.progress)


@dataclass
class Mentions:
    """Content hashes of texts, and placeholders."""

    blobs: set[str] = field(default_factory=set[str])
    placeholders: set[str] = field(default_factory=set[str])

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


async def mentioned(connection: AsyncConnection, task_ids: tuple[str, ...]) -> Mentions:
    """By everything that is kept of these tasks, and in the texts whose content hashes that names."""
    found = Mentions()
    async for text in _kept(connection, tasks.c.task_id.in_(task_ids)):
        found.add(text)
    named = select(texts.c.content).where(texts.c.blob.in_(sorted(found.blobs)))
    async for content in await connection.stream_scalars(named):
        found.add(content.decode())
    return found


async def without_mentioned(connection: AsyncConnection, candidates: Mentions) -> None:
    """Take from the candidates all that anything in the store mentions: other candidates' texts do not count."""
    async for text in _kept(connection, true()):
        candidates.remove(text)
    if candidates.placeholders:
        async for blob, content in await connection.stream(select(texts.c.blob, texts.c.content)):
            if blob not in candidates.blobs:
                candidates.remove(content.decode())


async def _kept(connection: AsyncConnection, of_tasks: ColumnElement[bool]) -> AsyncGenerator[str]:
    """All bodies of these tasks, and the content hashes of their documents; of tasks without a row nothing."""
    ids = select(tasks.c.task_id).where(of_tasks)
    agents = select(runs.c.run_id).where(runs.c.task_id.in_(ids))
    bodies = [select(table.c.body).where(table.c.run_id.in_(agents)) for table in _OF_RUNS]
    bodies += [select(column).where(of_tasks, column.is_not(None)) for column in _OF_TASKS]
    bodies += [select(table.c.body).where(table.c.task_id.in_(ids)) for table in (audit, plan_revisions)]
    bodies.append(select(documents.c.blob).where(documents.c.task_id.in_(ids)))
    for query in bodies:
        async for text in await connection.stream_scalars(query):
            yield text
