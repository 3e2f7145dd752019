"""One person in everything that the store keeps of a tenant: counted, and erased.

Contents are named by their hashes. One that changes gets another hash, and whatever named it names that: another tenant
that has the same document keeps it, and the document as it was may be handed in again.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Table, and_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.documents.text_repository import (
    CONTENT_HASH,
    add_texts,
    content_hash,
    drop_owned,
    drop_redacted_texts,
    drop_slow,
)
from waystation.erasure.removal import PersonOrder, Sought, Trace, Whereabouts, texts_of
from waystation.erasure.removal_repository import Cell, Content, cells, contents
from waystation.kernel.scopes import TaskScope
from waystation.kernel.value import map_strings
from waystation.memory.memory import Passage
from waystation.store.engine import (
    StorePart,
    read_transaction,
    to_its_end,
    translate_database_errors,
    write_transaction,
)
from waystation.store.schema import documents, passages, text_owners
from waystation.store.seals import bind_to_row

_PASSAGES = frozenset({Whereabouts.REMEMBERED, Whereabouts.OUTBOX})


class SqlPersons(StorePart):
    """The port `Store`: one person in all that a tenant has."""

    @read_transaction
    async def traces(self, connection: AsyncConnection, tenant: str, sought: Sought) -> tuple[Trace, ...]:
        """Where the tenant's tasks have it, and how often. Raises WrongKey."""
        counts = Counter[tuple[str, Whereabouts]]()
        async for cell in cells(connection, tenant):
            for place, count in _counted(cell, sought).items():
                counts[cell.task_id, place] += count
        async for content in contents(connection, tenant):
            count = sought.count(content.text)
            place = Whereabouts.DOCUMENT if content.is_document else Whereabouts.TEXT
            counts.update(dict.fromkeys([(owner.task_id, place) for owner in content.owners], count))
        return tuple(
            Trace(place=place, task_id=task_id, count=count)
            for (task_id, place), count in sorted(counts.items())
            if count
        )

    @read_transaction
    async def lines(self, connection: AsyncConnection, tenant: str, sought: Sought) -> tuple[str, ...]:
        """The different lines that have it in what the tenant's tasks have. Raises WrongKey."""
        found = set[str]()
        async for cell in cells(connection, tenant):
            for text in _words(cell):
                found.update(sought.lines(text))
        async for content in contents(connection, tenant):
            found.update(sought.lines(content.text))
        return tuple(sorted(found))

    async def erase(self, order: PersonOrder, sought: Sought) -> None:
        """Put `<ERASED>` in its place, in one transaction. Carried out again, it finds nothing more.

        Passages that had it wait again, so that memory gets them as they are now. Raises WrongStore, WrongKey.
        """
        await self._erase(order, sought)
        with translate_database_errors():
            await to_its_end(self.database.empty_log())

    @write_transaction
    async def _erase(self, connection: AsyncConnection, order: PersonOrder, sought: Sought) -> None:
        self.require_own(order.store_id)
        held = [one async for one in contents(connection, order.tenant) if _may_change(one, sought)]
        rewritten = _settled({one.blob: one.text for one in held}, sought)
        moved = {blob: content_hash(text) for blob, text in rewritten.items()}
        changed = [
            (cell, text)
            async for cell in cells(connection, order.tenant)
            if (text := _without(cell, sought, moved)) != cell.text
        ]
        await _rehash(connection, held, rewritten)
        for cell, text in changed:
            await _replace(connection, cell, text)
        for one in held:
            if one.is_document and one.blob in moved:
                await _relist(connection, one, moved[one.blob], len(rewritten[one.blob]))
        await drop_owned(connection, moved, text_owners.c.tenant == order.tenant)
        # What is shown has the person's placeholders, also where a text has only their spelling of the name: it is made
        # anew from what is there now.
        await drop_redacted_texts(connection, order.tenant)
        await drop_slow(connection, order.tenant)


async def _replace(connection: AsyncConnection, cell: Cell, text: str) -> None:
    table = cell.source.column.table
    assert isinstance(table, Table)
    this = and_(*[column == value for column, value in zip(table.primary_key, cell.key, strict=True)])
    await connection.execute(update(table).where(this).values({cell.source.column.name: bind_to_row(text, *cell.row)}))
    if cell.source.place in _PASSAGES:
        # Under the same id, memory writes over what it has.
        again = update(passages).where(this, passages.c.gone_at.is_(None))
        await connection.execute(again.values(stored_at=None, refused_at=None))


async def _rehash(connection: AsyncConnection, held: Sequence[Content], rewritten: Mapping[str, str]) -> None:
    """Whoever has a content that changes has it as it is now, under its new hash."""
    now: dict[TaskScope, dict[str, str]] = {}
    for one in held:
        if (text := rewritten.get(one.blob)) is not None:
            for owner in one.owners:
                now.setdefault(owner, {})[content_hash(text)] = text
    for owner, by_hash in now.items():
        await add_texts(connection, owner, sorted(by_hash.items()))


async def _relist(connection: AsyncConnection, content: Content, blob: str, characters: int) -> None:
    """Documents that were this content are this one now; their names are bound to it."""
    theirs = documents.c.task_id.in_([owner.task_id for owner in content.owners])
    listed = select(documents).where(documents.c.blob == content.blob, theirs)
    for row in (await connection.execute(listed)).all():
        now = {"name": bind_to_row(row.name, row.task_id, row.position, blob, ""), "blob": blob, "source": ""}
        this = (documents.c.task_id == row.task_id, documents.c.position == row.position)
        await connection.execute(update(documents).where(*this).values(**now, characters=characters))


def _counted(cell: Cell, sought: Sought) -> Mapping[Whereabouts, int]:
    if not cell.source.is_json:
        return {cell.source.place: sought.count(cell.text)}
    body = json.loads(cell.text)
    return {cell.source.place: sought.in_words(body), Whereabouts.IDENTIFIER: sought.in_names(body)}


def _words(cell: Cell) -> Iterable[str]:
    return texts_of(json.loads(cell.text)) if cell.source.is_json else [cell.text]


def _may_change(content: Content, sought: Sought) -> bool:
    return bool(sought.count(content.text) or CONTENT_HASH.search(content.text))


def _settled(held: Mapping[str, str], sought: Sought) -> Mapping[str, str]:
    """By old hash, every content that changes: it has the person, or names one that changes."""
    moved = dict[str, str]()
    while True:
        again = {blob: _renamed(sought.without(text), moved) for blob, text in held.items()}
        changed = {blob: text for blob, text in again.items() if text != held[blob]}
        now = {blob: content_hash(text) for blob, text in changed.items()}
        if now == moved:
            return changed
        moved = now


def _without(cell: Cell, sought: Sought, moved: Mapping[str, str]) -> str:
    if not cell.source.is_json:
        return sought.without(cell.text)
    before = json.loads(cell.text)
    after = map_strings(sought.erased(before), lambda text: _renamed(text, moved))
    if after == before:
        return cell.text
    text = json.dumps(after, ensure_ascii=False, separators=(",", ":"))
    return _passage(text) if cell.source.place in _PASSAGES else text


def _passage(body: str) -> str:
    passage = Passage.model_validate_json(body)
    return passage.replace(content_hash=content_hash(passage.text)).model_dump_json()


def _renamed(text: str, moved: Mapping[str, str]) -> str:
    return CONTENT_HASH.sub(lambda found: moved.get(found[0], found[0]), text)
