"""Stores texts by content hash, each once, with their redacted forms; the documents of tasks; and slow redactions.

Of texts whose redaction took too long it records how often and under which rules, but no content.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from sqlalchemy import ColumnElement, Select, bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.documents.descriptions import MAX_HEAD_CHARACTERS, describe_document
from waystation.documents.documents import Document, SourceDocument
from waystation.kernel.clock import Clock
from waystation.kernel.errors import StoreError, TextNotFoundError
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.scopes import ReadScope, TaskScope, TenantScope
from waystation.kernel.value import replace_surrogates
from waystation.privacy.policy import RedactedText, RedactedTextKey
from waystation.store.encryption import add_row_proof, bind_to_row
from waystation.store.engine import (
    Database,
    SqlRepository,
    bind_reader,
    build_bound_owner_filter,
    build_owner_filter,
    insert_missing,
    iter_batches,
    read_transaction,
    write_transaction,
)
from waystation.store.schema import documents, slow_texts, tasks, text_owners, texts

CONTENT_HASH_PATTERN = compile_bounded(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""Content hashes by which texts refer to one another."""
HASH_DIGITS = 64
REDACTED_ROW_MARK = "/"
"""Occurs in the key of a redacted text, and in no content hash."""

_DOCUMENT_FIELDS = tuple(Document.model_fields)


def content_hash(text: str) -> str:
    """Return the SHA-256 over the text's UTF-8 bytes, in hex.

    Lone surrogates are replaced first, as in the stored text.
    """
    return hashlib.sha256(replace_surrogates(text).encode()).hexdigest()


def make_document(source: SourceDocument) -> Document:
    """Describe the document as a task lists it. An empty text counts as one line."""
    return Document(
        name=source.name,
        blob=content_hash(source.text),
        lines=max(1, len(source.text.splitlines())),
        characters=len(source.text),
        source=source.source,
        date=describe_document(source.text[:MAX_HEAD_CHARACTERS].split("\n")).date or source.date,
        file_name=source.file_name,
    )


def decode_stored_text(blob: str, content: bytes) -> str:
    """Decode the text stored under this hash, or in this row of a redacted text, which names its row in its first line.

    Raises:
        StoreError: the content belongs to another hash or row.
    """
    row, _, shown = content.partition(b"\n") if REDACTED_ROW_MARK in blob else (b"", b"", content)
    if row != blob.encode() if REDACTED_ROW_MARK in blob else hashlib.sha256(content).hexdigest() != blob:
        raise StoreError(
            f"the text {blob[:12]}… in the store is not the one that was stored under this id: another program has "
            "changed it. Restore the database from a backup"
        )
    return shown.decode()


async def add_texts(connection: AsyncConnection, owner: TaskScope, by_hash: Iterable[tuple[str, str]]) -> None:
    """Store missing texts, given with their content hashes, and record their owner."""
    given = dict(by_hash)
    rows = [{"blob": blob, "content": replace_surrogates(text).encode()} for blob, text in given.items()]
    await insert_missing(connection, texts, rows)
    await insert_missing(connection, text_owners, [build_owner_row(blob, owner) for blob in given])


def build_owner_row(blob: str, owner: TaskScope) -> dict[str, object]:
    """Build the row that records that this task has this text."""
    return add_row_proof(text_owners, {"blob": blob, **owner.model_dump()})


async def release_texts(connection: AsyncConnection, blobs: Iterable[str], whose: ColumnElement[bool]) -> int:
    """Remove these texts from these owners and return how many texts were deleted because no one else has them."""
    gone, had = 0, select(text_owners.c.blob).where(text_owners.c.blob == texts.c.blob).exists()
    listed = select(documents.c.blob).where(documents.c.blob == texts.c.blob).exists()
    for batch in iter_batches(blobs):
        await connection.execute(delete(text_owners).where(text_owners.c.blob.in_(batch), whose))
        unowned = delete(texts).where(texts.c.blob.in_(batch), ~had, ~listed)
        gone += (await connection.execute(unowned)).rowcount
    return gone


async def find_unowned_texts(connection: AsyncConnection, tenant: str, blobs: Sequence[str]) -> set[str]:
    """Return those of the texts that no task of the tenant has any more."""
    left = set(blobs)
    for batch in iter_batches(blobs):
        had = select(text_owners.c.blob).where(text_owners.c.blob.in_(batch), text_owners.c.tenant == tenant)
        left.difference_update((await connection.execute(had)).scalars())
    return left


def build_text_proof_query(blob: str, reader: ReadScope) -> Select[str]:
    """Select the proofs that tasks within the reader's scope have this text; none if no such task has it.

    Reading one raises WrongKey or StoreError if it was written without the key.
    """
    return select(text_owners.c.proof).where(text_owners.c.blob == blob, build_owner_filter(text_owners, reader))


async def _content(connection: AsyncConnection, row: str, blob: str, reader: ReadScope) -> bytes | None:
    """Of this row, which is the text or is made from it; None where no task that the reader may see has the text."""
    parameters = {"blob": blob, "row": row, **bind_reader(reader)}
    found = (await connection.execute(_content_query(type(reader)), parameters)).one_or_none()
    return None if found is None else found.content


@cache
def _content_query(kind: type[ReadScope]) -> Select[str, bytes]:
    owned = select(text_owners.c.proof, texts.c.content).join(texts, texts.c.blob == bindparam("row"))
    own = owned.where(text_owners.c.blob == bindparam("blob"), build_bound_owner_filter(text_owners, kind))
    return own.limit(1)


async def add_documents(connection: AsyncConnection, task_id: str, added: Sequence[Document], first: int = 0) -> None:
    """Add documents, whose texts are stored, to the task from this position on."""
    if added:
        rows = [build_document_row(task_id, position, document) for position, document in enumerate(added, first)]
        await connection.execute(insert(documents), rows)


def build_document_row(task_id: str, position: int, document: Document) -> dict[str, object]:
    """Build the row of a document at its position in a task."""
    name = bind_to_row(document.name, task_id, position, document.blob, document.source, document.date)
    file_name = bind_to_row(document.file_name, task_id, position)
    row = {**document.model_dump(), "name": name, "file_name": file_name}
    return {"task_id": task_id, "position": position, **row}


_DOCUMENTS = (
    select(*[documents.c[name] for name in _DOCUMENT_FIELDS])
    .where(documents.c.task_id == bindparam("task"))
    .order_by(documents.c.position)
)


@cache
def _task_proof_query(kind: type[ReadScope]) -> Select[str]:
    return select(tasks.c.terms).where(tasks.c.task_id == bindparam("task"), build_bound_owner_filter(tasks, kind))


async def load_task_documents(connection: AsyncConnection, task_id: str, reader: ReadScope) -> tuple[Document, ...]:
    """A task's documents in the order in which they were given; none of a task that is not the reader's."""
    whose = {"task": task_id, **bind_reader(reader)}
    if (await connection.execute(_task_proof_query(type(reader)), whose)).scalar_one_or_none() is None:
        return ()
    rows = (await connection.execute(_DOCUMENTS, {"task": task_id})).all()
    # Not by mappings: those take as long as all the rest, and an agent of many documents asks before every call.
    return tuple([Document.model_validate(dict(zip(_DOCUMENT_FIELDS, row, strict=True))) for row in rows])


def make_redacted_text_row_id(key: RedactedTextKey) -> str:
    """Return the row id of a redacted text, used instead of a content hash."""
    return REDACTED_ROW_MARK.join((key.blob, key.tenant, str(int(key.level)), key.version))


async def list_redacted_text_row_ids(
    connection: AsyncConnection, tenant: str, blobs: Collection[str] | None = None
) -> list[str]:
    """Return the row ids of the tenant's redacted texts: all of them, or those made from these originals."""
    rows = (await connection.execute(select(texts.c.blob).where(texts.c.blob.contains(REDACTED_ROW_MARK)))).scalars()
    return [row for row in rows if is_redacted_text_row_for(row, tenant, blobs)]


def is_redacted_text_row_for(row: str, tenant: str, blobs: Collection[str] | None = None) -> bool:
    """Whether this is the row of a redacted text of the tenant, made from any of these originals."""
    blob, _, rest = row.partition(REDACTED_ROW_MARK)
    return rest.partition(REDACTED_ROW_MARK)[0] == tenant and (blobs is None or blob in blobs)


async def delete_redacted_texts(connection: AsyncConnection, tenant: str, blobs: Collection[str] | None = None) -> None:
    """Delete the tenant's redacted texts, after their originals: writers of another one wait for those."""
    for batch in iter_batches(await list_redacted_text_row_ids(connection, tenant, blobs)):
        await connection.execute(delete(texts).where(texts.c.blob.in_(batch)))


class SqlTextStore(SqlRepository):
    """`DocumentStore` and `RedactedTextRepository` in SQL."""

    @write_transaction
    async def put_text(self, connection: AsyncConnection, text: str, owner: TaskScope) -> str:
        """Store a text of this task and return its content hash."""
        blob = content_hash(text)
        await add_texts(connection, owner, [(blob, text)])
        return blob

    @write_transaction
    async def release_task_texts(self, connection: AsyncConnection, owner: TaskScope) -> None:
        """Remove all texts of the owner; those that no one else has are deleted."""
        own = build_owner_filter(text_owners, owner)
        blobs = (await connection.execute(select(text_owners.c.blob).where(own))).scalars().all()
        await release_texts(connection, blobs, own)
        await delete_redacted_texts(connection, owner.tenant, await find_unowned_texts(connection, owner.tenant, blobs))

    @read_transaction
    async def get_text(self, connection: AsyncConnection, blob: str, reader: ReadScope) -> str:
        """Return the text of a content hash.

        Raises:
            TextNotFoundError: no task that the reader may see has it.
            StoreError: it was changed in the database.
        """
        content = await _content(connection, blob, blob, reader)
        if content is None:
            raise TextNotFoundError(blob)
        return decode_stored_text(blob, content)

    @read_transaction
    async def get_redacted_text(
        self, connection: AsyncConnection, key: RedactedTextKey, reader: ReadScope
    ) -> RedactedText | None:
        """Return the text stored under this key; None if there is none, or if no task of the reader has its original.

        Raises:
            WrongKey: no available key decrypts it.
            StoreError: it was changed in the database.
        """
        row = make_redacted_text_row_id(key)
        content = await _content(connection, row, key.blob, reader)
        return None if content is None else RedactedText.model_validate_json(decode_stored_text(row, content))

    @write_transaction
    async def save_redacted_text(self, connection: AsyncConnection, key: RedactedTextKey, text: RedactedText) -> None:
        """Store the text with its original.

        The first one stays; nothing is stored if the original was forgotten meanwhile.
        """
        # Locked if the database locks rows: code that forgets the original waits, and then sees what was made from it.
        had = build_text_proof_query(key.blob, TenantScope(tenant=key.tenant)).with_for_update(
            read=True, key_share=True
        )
        if (await connection.execute(had)).first() is not None:
            row = make_redacted_text_row_id(key)
            content = f"{row}\n{text.model_dump_json()}".encode()
            await insert_missing(connection, texts, [{"blob": row, "content": content}])

    @read_transaction
    async def list_documents(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope
    ) -> tuple[Document, ...]:
        """Return a task's documents in the order in which they were submitted; none if the task is not the reader's."""
        return await load_task_documents(connection, task_id, reader)


MAX_SLOW_TEXTS = 10_000
"""Maximum number of slow texts that are loaded, the most recent ones."""


async def delete_slow_texts(connection: AsyncConnection, tenant: str) -> None:
    """Delete the records of the tenant's slow texts: each is tried again if it recurs."""
    await connection.execute(delete(slow_texts).where(slow_texts.c.tenant == tenant))


class SqlSlowTextStore(SqlRepository):
    """Implements the port `SlowTextStore`."""

    def __init__(self, database: Database, clock: Clock, store_id: str, rules: str) -> None:
        super().__init__(database, clock, store_id)
        self._rules = rules

    @read_transaction
    async def load_slow_texts(self, connection: AsyncConnection) -> Mapping[str, int]:
        """Return the number of time-outs by fingerprint."""
        known = select(slow_texts.c.fingerprint, slow_texts.c.times).where(slow_texts.c.rules == self._rules)
        newest = known.order_by(slow_texts.c.last_at.desc()).limit(MAX_SLOW_TEXTS)
        return {row.fingerprint: row.times for row in await connection.execute(newest)}

    @write_transaction
    async def record_timeout(self, connection: AsyncConnection, tenant: str, fingerprint: str) -> int:
        """Count one more time-out and return the number so far."""
        row = {"fingerprint": fingerprint, "rules": self._rules, "tenant": tenant, "times": 0, "last_at": self._clock()}
        await insert_missing(connection, slow_texts, [row])
        once_more = update(slow_texts).where(*self._this(fingerprint))
        counted = once_more.values(times=slow_texts.c.times + 1, last_at=self._clock()).returning(slow_texts.c.times)
        return (await connection.execute(counted)).scalar_one()

    @write_transaction
    async def reset_timeouts(self, connection: AsyncConnection, tenant: str, fingerprint: str) -> None:
        """Delete the count of time-outs of this text."""
        this = (*self._this(fingerprint), slow_texts.c.tenant == tenant)
        await connection.execute(delete(slow_texts).where(*this))

    def _this(self, fingerprint: str) -> tuple[ColumnElement[bool], ...]:
        return slow_texts.c.fingerprint == fingerprint, slow_texts.c.rules == self._rules
