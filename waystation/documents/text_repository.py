"""Texts by content hash, each kept once, and the documents of tasks.

Texts that took too long to redact: how often, under which rules, and nothing of what they say.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, Select, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.documents.documents import Document, SourceDocument
from waystation.kernel.clock import Clock
from waystation.kernel.errors import StoreError, TextMissing
from waystation.kernel.patterns import proven
from waystation.kernel.scopes import OfTask, OfTenant, Reader
from waystation.kernel.value import whole_text
from waystation.privacy.policy import ShownKey, ShownText
from waystation.store.engine import Database, StorePart, add_missing, batches, owned, reading, writing
from waystation.store.schema import documents, slow_texts, tasks, text_owners, texts
from waystation.store.seals import bound, proved

CONTENT_HASH = proven(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""How texts name one another."""
HASH_DIGITS = 64
SHOWN = "/"
"""In the key of a text that is kept as it is shown, and in no content hash."""

_KEPT = tuple(Document.model_fields)


def content_hash(text: str) -> str:
    """SHA-256 over the text's UTF-8 bytes, in hex; over those that are kept where half of a surrogate pair is in it."""
    return hashlib.sha256(whole_text(text).encode()).hexdigest()


def described(source: SourceDocument) -> Document:
    """The document as a task lists it. An empty text counts as one line."""
    return Document(
        name=source.name,
        blob=content_hash(source.text),
        lines=max(1, len(source.text.splitlines())),
        characters=len(source.text),
        source=source.source,
    )


def opened_text(blob: str, content: bytes) -> str:
    """The text that is kept under this hash, or in this row of a text as it is shown, which says so in its first line.

    Raises StoreError where it is another one.
    """
    row, _, shown = content.partition(b"\n") if SHOWN in blob else (b"", b"", content)
    if row != blob.encode() if SHOWN in blob else hashlib.sha256(content).hexdigest() != blob:
        raise StoreError(
            f"the text {blob[:12]}… in the store is not what was kept under that hash: something else than Waystation "
            "has changed it. Restore the database from a backup"
        )
    return shown.decode()


async def add_texts(connection: AsyncConnection, owner: OfTask, by_hash: Iterable[tuple[str, str]]) -> None:
    """Keep those texts that are not there, given with their content hashes, and whose they are."""
    given = dict(by_hash)
    rows = [{"blob": blob, "content": whole_text(text).encode()} for blob, text in given.items()]
    await add_missing(connection, texts, rows)
    await add_missing(connection, text_owners, [owner_row(blob, owner) for blob in given])


def owner_row(blob: str, owner: OfTask) -> dict[str, object]:
    """That this task has this text."""
    return proved(text_owners, {"blob": blob, **owner.model_dump()})


async def drop_owned(connection: AsyncConnection, blobs: Iterable[str], whose: ColumnElement[bool]) -> int:
    """These owners have these texts no more; how many texts went, since nobody else has them."""
    gone, had = 0, select(text_owners.c.blob).where(text_owners.c.blob == texts.c.blob).exists()
    listed = select(documents.c.blob).where(documents.c.blob == texts.c.blob).exists()
    for batch in batches(blobs):
        await connection.execute(delete(text_owners).where(text_owners.c.blob.in_(batch), whose))
        unowned = delete(texts).where(texts.c.blob.in_(batch), ~had, ~listed)
        gone += (await connection.execute(unowned)).rowcount
    return gone


async def without_owner(connection: AsyncConnection, tenant: str, blobs: Sequence[str]) -> set[str]:
    """Those of these texts that no task of the tenant has any more."""
    left = set(blobs)
    for batch in batches(blobs):
        had = select(text_owners.c.blob).where(text_owners.c.blob.in_(batch), text_owners.c.tenant == tenant)
        left.difference_update((await connection.execute(had)).scalars())
    return left


def owned_text(blob: str, reader: Reader) -> Select[str]:
    """The proofs that tasks which the reader may see have this text: none where no such task has it. Reading one raises
    WrongKey, or StoreError, where the database says so and nobody with the key did.
    """
    return select(text_owners.c.proof).where(text_owners.c.blob == blob, owned(text_owners, reader))


async def _content(connection: AsyncConnection, row: str, blob: str, reader: Reader) -> bytes | None:
    """Of this row, which is the text or is made from it; None where no task that the reader may see has the text."""
    chosen = owned_text(blob, reader).join(texts, texts.c.blob == row).add_columns(texts.c.content).limit(1)
    found = (await connection.execute(chosen)).one_or_none()
    return None if found is None else found.content


async def add_documents(connection: AsyncConnection, task_id: str, added: Sequence[Document], first: int = 0) -> None:
    """Give the task these documents, whose texts are there, from this position on."""
    if added:
        rows = [document_row(task_id, position, document) for position, document in enumerate(added, first)]
        await connection.execute(insert(documents), rows)


def document_row(task_id: str, position: int, document: Document) -> dict[str, object]:
    """The document at its place in a task."""
    name = bound(document.name, task_id, position, document.blob, document.source)
    return {"task_id": task_id, "position": position, **document.model_dump(), "name": name}


async def documents_of(connection: AsyncConnection, task_id: str, reader: Reader) -> tuple[Document, ...]:
    """A task's documents in the order in which they were given; none of a task that is not the reader's."""
    columns = [documents.c[name] for name in _KEPT]
    whose = select(tasks.c.terms).where(tasks.c.task_id == task_id, owned(tasks, reader))
    if (await connection.execute(whose)).scalar_one_or_none() is None:
        return ()
    listed = select(*columns).where(documents.c.task_id == task_id).order_by(documents.c.position)
    rows = (await connection.execute(listed)).all()
    # Not by mappings: those take as long as all the rest, and an agent of many documents asks before every call.
    return tuple([Document.model_validate(dict(zip(_KEPT, row, strict=True))) for row in rows])


def shown_row(key: ShownKey) -> str:
    """In the place of a content hash: under what a text is kept as it is shown, beside its original."""
    return SHOWN.join((key.blob, key.tenant, str(int(key.treatment)), key.version))


async def shown_rows(connection: AsyncConnection, tenant: str, blobs: Collection[str] | None = None) -> list[str]:
    """Under what the tenant's texts are kept as they are shown: all of them, or those made from these originals."""
    rows = (await connection.execute(select(texts.c.blob).where(texts.c.blob.contains(SHOWN)))).scalars()
    return [row for row in rows if shown_for(row, tenant, blobs)]


def shown_for(row: str, tenant: str, blobs: Collection[str] | None = None) -> bool:
    """Whether this is the row of a text as it is shown to the tenant, made from any of these originals."""
    blob, _, rest = row.partition(SHOWN)
    return rest.partition(SHOWN)[0] == tenant and (blobs is None or blob in blobs)


async def drop_shown(connection: AsyncConnection, tenant: str, blobs: Collection[str] | None = None) -> None:
    """Remove the tenant's texts as they are shown, after their originals: who keeps one more waits for those."""
    for batch in batches(await shown_rows(connection, tenant, blobs)):
        await connection.execute(delete(texts).where(texts.c.blob.in_(batch)))


class SqlTexts(StorePart):
    """The port `Store`: texts, and texts as they may be shown."""

    @writing
    async def put_text(self, connection: AsyncConnection, text: str, owner: OfTask) -> str:
        """Store a text of this task; returns its content hash."""
        blob = content_hash(text)
        await add_texts(connection, owner, [(blob, text)])
        return blob

    @writing
    async def drop_texts(self, connection: AsyncConnection, owner: OfTask) -> None:
        """The owner has no text any more; those go that nobody else has."""
        own = owned(text_owners, owner)
        blobs = (await connection.execute(select(text_owners.c.blob).where(own))).scalars().all()
        await drop_owned(connection, blobs, own)
        await drop_shown(connection, owner.tenant, await without_owner(connection, owner.tenant, blobs))

    @reading
    async def get_text(self, connection: AsyncConnection, blob: str, reader: Reader) -> str:
        """The text of a content hash. Raises TextMissing where no task that the reader may see has it; StoreError for
        one that was changed in the database.
        """
        content = await _content(connection, blob, blob, reader)
        if content is None:
            raise TextMissing(blob)
        return opened_text(blob, content)

    @reading
    async def shown(self, connection: AsyncConnection, key: ShownKey, reader: Reader) -> ShownText | None:
        """The text as it was kept under this key; None: it was not, or no task that the reader may see has its
        original. Raises WrongKey; StoreError for one that was changed in the database.
        """
        row = shown_row(key)
        content = await _content(connection, row, key.blob, reader)
        return None if content is None else ShownText.model_validate_json(opened_text(row, content))

    @writing
    async def keep_shown(self, connection: AsyncConnection, key: ShownKey, text: ShownText) -> None:
        """Keep it with its original. The first one stays; of an original that was forgotten meanwhile nothing does."""
        # Locked where the database locks rows: who forgets the original waits, and then sees what was made from it.
        had = owned_text(key.blob, OfTenant(tenant=key.tenant)).with_for_update(read=True, key_share=True)
        if (await connection.execute(had)).first() is not None:
            row = shown_row(key)
            content = f"{row}\n{text.model_dump_json()}".encode()
            await add_missing(connection, texts, [{"blob": row, "content": content}])

    @reading
    async def documents(self, connection: AsyncConnection, task_id: str, reader: Reader) -> tuple[Document, ...]:
        """A task's documents in the order in which they were given; none of a task that is not the reader's."""
        return await documents_of(connection, task_id, reader)


MOST_KNOWN = 10_000
"""Of very many, those that were slow last."""


async def drop_slow(connection: AsyncConnection, tenant: str) -> None:
    """Nothing of the tenant's slow texts stays: each is tried again, should it come again."""
    await connection.execute(delete(slow_texts).where(slow_texts.c.tenant == tenant))


class SqlSlowTexts(StorePart):
    """The port `SlowTexts`."""

    def __init__(self, database: Database, clock: Clock, store_id: str, rules: str) -> None:
        super().__init__(database, clock, store_id)
        self._rules = rules

    @reading
    async def slow_texts(self, connection: AsyncConnection) -> Mapping[str, int]:
        """How often each took too long, by fingerprint."""
        known = select(slow_texts.c.fingerprint, slow_texts.c.times).where(slow_texts.c.rules == self._rules)
        newest = known.order_by(slow_texts.c.last_at.desc()).limit(MOST_KNOWN)
        return {row.fingerprint: row.times for row in await connection.execute(newest)}

    @writing
    async def took_too_long(self, connection: AsyncConnection, tenant: str, fingerprint: str) -> int:
        """Count one time more; how often it was by now."""
        row = {"fingerprint": fingerprint, "rules": self._rules, "tenant": tenant, "times": 0, "last_at": self._clock()}
        await add_missing(connection, slow_texts, [row])
        once_more = update(slow_texts).where(*self._this(fingerprint))
        counted = once_more.values(times=slow_texts.c.times + 1, last_at=self._clock()).returning(slow_texts.c.times)
        return (await connection.execute(counted)).scalar_one()

    @writing
    async def try_again(self, connection: AsyncConnection, tenant: str, fingerprint: str) -> None:
        """What was counted of this text counts no more."""
        this = (*self._this(fingerprint), slow_texts.c.tenant == tenant)
        await connection.execute(delete(slow_texts).where(*this))

    def _this(self, fingerprint: str) -> tuple[ColumnElement[bool], ...]:
        return slow_texts.c.fingerprint == fingerprint, slow_texts.c.rules == self._rules
