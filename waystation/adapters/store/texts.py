"""Texts by content hash, each kept once, and the documents of tasks."""

import hashlib
import re
from collections.abc import Iterable, Sequence

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_missing
from waystation.adapters.store.part import StorePart, reading, writing
from waystation.adapters.store.schema import documents, tasks, texts
from waystation.domain.documents import Document
from waystation.domain.errors import TextMissing
from waystation.domain.procedures import is_named_like_one
from waystation.domain.task import SourceDocument, TaskTerms

CONTENT_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""How texts name one another."""


_KEPT = tuple(name for name in Document.model_fields if name in documents.c)


def content_hash(text: str) -> str:
    """SHA-256 over the text's UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def described(source: SourceDocument) -> Document:
    """The document as a task lists it. An empty text counts as one line."""
    return Document(
        name=source.name,
        blob=content_hash(source.text),
        lines=max(1, len(source.text.splitlines())),
        characters=len(source.text),
        source=source.source,
    )


async def add_texts(connection: AsyncConnection, by_hash: Iterable[tuple[str, str]]) -> None:
    """Keep those texts that are not there, given with their content hashes."""
    await add_missing(connection, texts, [{"blob": blob, "content": text.encode()} for blob, text in by_hash])


async def add_documents(connection: AsyncConnection, task_id: str, added: Sequence[Document], first: int = 0) -> None:
    """Give the task these documents, whose texts are there, from this position on."""
    if added:
        rows = [{"task_id": task_id, "position": n, **document.model_dump()} for n, document in enumerate(added, first)]
        await connection.execute(insert(documents), rows)


async def documents_of(connection: AsyncConnection, task_id: str) -> tuple[Document, ...]:
    """A task's documents in the order in which they were given."""
    columns = [documents.c[name] for name in _KEPT]
    listed = select(*columns).where(documents.c.task_id == task_id).order_by(documents.c.position)
    rows = (await connection.execute(listed)).all()
    # Not by mappings: those take as long as all the rest, and an agent of many documents asks before every call.
    found = tuple([Document.model_validate(dict(zip(_KEPT, row, strict=True))) for row in rows])
    return await _with_procedures(connection, task_id, found)


async def _with_procedures(
    connection: AsyncConnection, task_id: str, found: tuple[Document, ...]
) -> tuple[Document, ...]:
    """The same, and which of them the task follows: none, unless it is of before procedures were handed in apart."""
    if not any(is_named_like_one(one.name) for one in found):
        return found
    terms = select(tasks.c.terms).where(tasks.c.task_id == task_id)
    if not TaskTerms.model_validate_json((await connection.execute(terms)).scalar_one()).procedures_among_documents:
        return found
    return tuple(one.model_copy(update={"procedure": True}) if is_named_like_one(one.name) else one for one in found)


class SqlTexts(StorePart):
    """The port `DocumentStore`."""

    @writing
    async def put_text(self, connection: AsyncConnection, text: str) -> str:
        """Store a text; returns its content hash."""
        blob = content_hash(text)
        await add_texts(connection, [(blob, text)])
        return blob

    @reading
    async def get_text(self, connection: AsyncConnection, blob: str) -> str:
        """The text of a content hash. Raises TextMissing if it is not there."""
        found = await connection.execute(select(texts.c.content).where(texts.c.blob == blob))
        content: bytes | None = found.scalar_one_or_none()
        if content is None:
            raise TextMissing(blob)
        return content.decode()

    @reading
    async def documents(self, connection: AsyncConnection, task_id: str) -> tuple[Document, ...]:
        """A task's documents in the order in which they were given."""
        return await documents_of(connection, task_id)
