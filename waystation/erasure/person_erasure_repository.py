"""Counts and erases one person in everything that the SQL store holds of a tenant.

Contents are named by their hashes. A changed content gets another hash, and everything that referred to it is updated:
another tenant with the same document keeps it, and the original document may be submitted again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError
from sqlalchemy import Table, and_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.documents.text_repository import (
    CONTENT_HASH_PATTERN,
    add_texts,
    content_hash,
    delete_redacted_texts,
    delete_slow_texts,
    release_texts,
)
from waystation.erasure.erasure import (
    ErasureMatch,
    ErasureQuery,
    PersonErasureOrder,
    iter_erasable_texts,
)
from waystation.erasure.forget_repository import StoredContent, TextCell, iter_stored_contents, iter_task_row_texts
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.errors import StoreError
from waystation.kernel.scopes import TaskScope
from waystation.kernel.value import Value
from waystation.memory.passages import Passage
from waystation.store.encryption import bind_to_row
from waystation.store.engine import (
    SqlRepository,
    read_transaction,
    run_to_completion,
    translate_database_errors,
    write_transaction,
)
from waystation.store.schema import documents, passage_states, text_owners

_PASSAGES = frozenset({ErasureLocation.REMEMBERED, ErasureLocation.OUTBOX})


class SqlPersonErasure(SqlRepository):
    """`PersonErasureRepository` in SQL."""

    @read_transaction
    async def find_erasure_matches(
        self, connection: AsyncConnection, tenant: str, query: ErasureQuery
    ) -> tuple[ErasureMatch, ...]:
        """Return where the tenant's tasks contain what the query looks for, and how often.

        Raises:
            WrongKey: no available key decrypts a text.
        """
        counts = Counter[tuple[str, ErasureLocation]]()
        async for cell in iter_task_row_texts(connection, tenant):
            for place, count in _counted(cell, query).items():
                counts[cell.task_id, place] += count
        async for content in iter_stored_contents(connection, tenant):
            count = query.count_matches(content.text)
            place = ErasureLocation.DOCUMENT if content.is_document else ErasureLocation.TEXT
            counts.update(dict.fromkeys([(owner.task_id, place) for owner in content.owners], count))
        return tuple(
            ErasureMatch(place=place, task_id=task_id, count=count)
            for (task_id, place), count in sorted(counts.items())
            if count
        )

    @read_transaction
    async def list_matching_lines(
        self, connection: AsyncConnection, tenant: str, query: ErasureQuery
    ) -> tuple[str, ...]:
        """Return the different lines of the tenant's tasks that contain it.

        Raises:
            WrongKey: no available key decrypts a text.
        """
        found = set[str]()
        async for cell in iter_task_row_texts(connection, tenant):
            for text in _words(cell):
                found.update(query.iter_matching_lines(text))
        async for content in iter_stored_contents(connection, tenant):
            found.update(query.iter_matching_lines(content.text))
        return tuple(sorted(found))

    async def erase_person(self, order: PersonErasureOrder, query: ErasureQuery) -> None:
        """Replace it by `<ERASED>` in one transaction. A repetition finds nothing more.

        Passages that contained it wait again, so that memory gets them as they are now.

        Raises:
            WrongStore: the order is for another store.
            WrongKey: no available key decrypts a text.
        """
        await self._erase(order, query)
        with translate_database_errors():
            await run_to_completion(self.database.truncate_write_ahead_log())

    @write_transaction
    async def _erase(self, connection: AsyncConnection, order: PersonErasureOrder, query: ErasureQuery) -> None:
        self.require_own_store(order.store_id)
        held = [one async for one in iter_stored_contents(connection, order.tenant) if _may_change(one, query)]
        rewritten = _compute_new_hashes({one.blob: one.text for one in held}, query)
        moved = {blob: content_hash(text) for blob, text in rewritten.items()}
        changed = [
            (cell, text)
            async for cell in iter_task_row_texts(connection, order.tenant)
            if (text := _without(cell, query, moved)) != cell.text
        ]
        await _replace_contents(connection, held, rewritten)
        for cell, text in changed:
            await _replace(connection, cell, text)
        for one in held:
            if one.is_document and one.blob in moved:
                await _rebind_documents(connection, one, moved[one.blob], len(rewritten[one.blob]))
        await release_texts(connection, moved, text_owners.c.tenant == order.tenant)
        # Redacted texts contain the person's placeholders, even if the text has another spelling of the name: they are
        # built again from the current text.
        await delete_redacted_texts(connection, order.tenant)
        await delete_slow_texts(connection, order.tenant)


async def _replace(connection: AsyncConnection, cell: TextCell, text: str) -> None:
    table = cell.source.column.table
    assert isinstance(table, Table)
    this = and_(*[column == value for column, value in zip(table.primary_key, cell.key, strict=True)])
    await connection.execute(update(table).where(this).values({cell.source.column.name: bind_to_row(text, *cell.row)}))
    if cell.source.place in _PASSAGES:
        # Memory overwrites what it has under the same id.
        passage_id, *_ = cell.row
        waits = (passage_states.c.passage_id == passage_id, passage_states.c.gone_at.is_(None))
        again = update(passage_states).where(*waits)
        await connection.execute(again.values(stored_at=None, refused_at=None))


async def _replace_contents(
    connection: AsyncConnection, held: Sequence[StoredContent], rewritten: Mapping[str, str]
) -> None:
    """Replace changed contents for all their owners, under the new hashes."""
    now: dict[TaskScope, dict[str, str]] = {}
    for one in held:
        if (text := rewritten.get(one.blob)) is not None:
            for owner in one.owners:
                now.setdefault(owner, {})[content_hash(text)] = text
    for owner, by_hash in now.items():
        await add_texts(connection, owner, sorted(by_hash.items()))


async def _rebind_documents(connection: AsyncConnection, content: StoredContent, blob: str, characters: int) -> None:
    """Make documents with this content refer to the new one; their names are bound to it."""
    theirs = documents.c.task_id.in_([owner.task_id for owner in content.owners])
    listed = select(documents).where(documents.c.blob == content.blob, theirs)
    for row in (await connection.execute(listed)).all():
        now = {"name": bind_to_row(row.name, row.task_id, row.position, blob, "", row.date), "blob": blob, "source": ""}
        this = (documents.c.task_id == row.task_id, documents.c.position == row.position)
        await connection.execute(update(documents).where(*this).values(**now, characters=characters))


def _counted(cell: TextCell, query: ErasureQuery) -> Mapping[ErasureLocation, int]:
    if (value := _parse(cell)) is None:
        return {cell.source.place: query.count_matches(cell.text)}
    return {
        cell.source.place: query.count_in_texts(value),
        ErasureLocation.IDENTIFIER: query.count_in_identifiers(value),
    }


def _words(cell: TextCell) -> Iterable[str]:
    value = _parse(cell)
    return [cell.text] if value is None else iter_erasable_texts(value)


def _parse(cell: TextCell) -> Value | None:
    """Return the stored value; None for plain text.

    Raises:
        StoreError: the text is not the JSON of such a value. The message does not repeat it.
    """
    if cell.source.parse is None:
        return None
    try:
        return cell.source.parse(cell.text)
    except ValidationError as error:
        column = cell.source.column
        place = f"the column {column.table.name}.{column.name} of task {cell.task_id}"
        wrong = "; ".join(".".join(map(str, fault["loc"])) or fault["type"] for fault in error.errors())
        raise StoreError(
            f"{place} cannot be read, so no person can be erased from it (invalid: {wrong}): a newer version of "
            "Waystation may have written it. Erase the person with that version"
        ) from None


def _may_change(content: StoredContent, query: ErasureQuery) -> bool:
    return bool(query.count_matches(content.text) or CONTENT_HASH_PATTERN.search(content.text))


def _compute_new_hashes(held: Mapping[str, str], query: ErasureQuery) -> Mapping[str, str]:
    """Return, by old hash, every content that changes: it contains the person, or refers to one that changes."""
    moved = dict[str, str]()
    while True:
        again = {blob: _renamed(query.erase_text(text), moved) for blob, text in held.items()}
        changed = {blob: text for blob, text in again.items() if text != held[blob]}
        now = {blob: content_hash(text) for blob, text in changed.items()}
        if now == moved:
            return changed
        moved = now


def _without(cell: TextCell, query: ErasureQuery, moved: Mapping[str, str]) -> str:
    """Return the text without the person, and with the new hashes of contents that change."""
    if (value := _parse(cell)) is None:
        return query.erase_text(cell.text)
    # In an unchanged value, hashes are the only thing that may change: the stored text stays as it is.
    erased = query.erase_value(value)
    text = cell.text if erased == value else erased.model_dump_json()
    after = _renamed(text, moved)
    return _with_own_hash(after) if after != cell.text and cell.source.place in _PASSAGES else after


def _with_own_hash(body: str) -> str:
    passage = Passage.model_validate_json(body)
    return passage.replace(content_hash=content_hash(passage.text)).model_dump_json()


def _renamed(text: str, moved: Mapping[str, str]) -> str:
    return CONTENT_HASH_PATTERN.sub(lambda found: moved.get(found[0], found[0]), text)
