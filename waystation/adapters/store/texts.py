"""Texts by content hash, each kept once, and the documents of tasks."""

import hashlib
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import delete, exists, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_missing, batches
from waystation.adapters.store.part import StorePart, reading, writing
from waystation.adapters.store.schema import documents, tasks, texts
from waystation.domain.documents import Document
from waystation.domain.errors import TextMissing
from waystation.domain.procedures import is_named_like_one
from waystation.domain.redaction import ShownKey, ShownText
from waystation.domain.task import SourceDocument, TaskTerms
from waystation.patterns import proven

CONTENT_HASH = proven(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""How texts name one another."""
_ORIGINAL = texts.alias("original")


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


def shown_row(key: ShownKey) -> str:
    """In the place of a content hash: under what a text is kept as it is shown, beside its original."""
    return "/".join((key.blob, key.tenant, str(int(key.treatment)), key.version))


async def shown_rows(connection: AsyncConnection, tenant: str, blobs: Collection[str] | None = None) -> list[str]:
    """Under what the tenant's texts are kept as they are shown: all of them, or those made from these originals."""
    rows = (await connection.execute(select(texts.c.blob).where(texts.c.blob.like("%/%")))).scalars()
    return [row for row in rows if shown_for(row, tenant, blobs)]


def shown_for(row: str, tenant: str, blobs: Collection[str] | None = None) -> bool:
    """Whether this is the row of a text as it is shown to the tenant, made from any of these originals."""
    blob, _, rest = row.partition("/")
    return rest.partition("/")[0] == tenant and (blobs is None or blob in blobs)


async def drop_shown(connection: AsyncConnection, tenant: str, blobs: Collection[str] | None = None) -> None:
    """Remove the tenant's texts as they are shown, after their originals: who keeps one more waits for those."""
    for batch in batches(await shown_rows(connection, tenant, blobs)):
        await connection.execute(delete(texts).where(texts.c.blob.in_(batch)))


class SqlTexts(StorePart):
    """The ports `DocumentStore` and `ShownTexts`."""

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
    async def shown(self, connection: AsyncConnection, key: ShownKey) -> ShownText | None:
        """The text as it was kept under this key; None: it was not, or its original is gone. Raises WrongKey."""
        original = exists().where(_ORIGINAL.c.blob == key.blob)
        found = await connection.execute(select(texts.c.content).where(texts.c.blob == shown_row(key), original))
        content: bytes | None = found.scalar_one_or_none()
        return None if content is None else ShownText.model_validate_json(content)

    @writing
    async def keep_shown(self, connection: AsyncConnection, key: ShownKey, text: ShownText) -> None:
        """Keep it with its original. The first one stays; of an original that was forgotten meanwhile nothing does."""
        # Locked where the database locks rows: who forgets the original waits, and then sees what was made from it.
        original = select(texts.c.blob).where(texts.c.blob == key.blob).with_for_update(read=True, key_share=True)
        if (await connection.execute(original)).first() is not None:
            await add_texts(connection, [(shown_row(key), text.model_dump_json())])

    @reading
    async def documents(self, connection: AsyncConnection, task_id: str) -> tuple[Document, ...]:
        """A task's documents in the order in which they were given."""
        return await documents_of(connection, task_id)
