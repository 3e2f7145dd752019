"""Whose the texts of earlier releases are: found once, where the platform itself names them.

What others wrote names nothing, whatever it looks like: a document that has the form of a state, or a passage that is a
content hash, makes nobody the owner of anything.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from pydantic import ValidationError
from sqlalchemy import delete, func, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.audit import DEFINED, ENTRY
from waystation.adapters.store.belongings import rows_with
from waystation.adapters.store.engine import Database, add_missing, batches
from waystation.adapters.store.schema import audit, identity, messages, passages, runs, tasks, text_owners, texts
from waystation.adapters.store.texts import CONTENT_HASH, opened_text, unowned
from waystation.domain.compaction.edit import ContextEdit
from waystation.domain.compaction.offload import preview
from waystation.domain.document_changes import DocumentSet, KeptUpdate
from waystation.domain.errors import StoreError, WrongKey
from waystation.domain.memory import Passage
from waystation.domain.messages import Message
from waystation.domain.task import Approval, AuditEntry, Refusal, Resolution, TaskProgress
from waystation.domain.task_state import TaskState
from waystation.domain.telling import Telling
from waystation.domain.value import Value
from waystation.domain.web_pages import kept_pages
from waystation.ports import Clock

_Named: TypeAlias = dict[str, set[str]]
"""By content hash, the tasks that have it."""
_V = TypeVar("_V", bound=Value)


async def find_owners(database: Database, clock: Clock) -> None:
    """Give every text of an earlier release its owners, once. Without the key nothing happens until somebody has it."""
    async with database.read() as connection:
        if await _are_found(connection):
            return
    try:
        async with database.write() as connection:
            for found in (_ended, _audited, _remembered, _shown_in_messages):
                await _add(connection, await found(connection))
            await connection.execute(update(identity).values(owned_since=clock()))
    except WrongKey:
        return


async def count_unowned(database: Database) -> int:
    """Texts that belong to nobody; none while owners are still to be found."""
    async with database.read() as connection:
        if not await _are_found(connection):
            return 0
        return (await connection.execute(select(func.count()).select_from(texts).where(unowned()))).scalar_one()


async def drop_unowned(database: Database) -> int:
    """Remove the texts that belong to nobody; how many there were. Raises StoreError while owners are to be found."""
    async with database.write() as connection:
        if not await _are_found(connection):
            raise StoreError(
                "whose the texts of an earlier release are is not known yet: run this with the key that they are "
                "encrypted with (WAYSTATION_KEY, or the file `key` of the home folder)"
            )
        return (await connection.execute(delete(texts).where(unowned()))).rowcount


async def _are_found(connection: AsyncConnection) -> bool:
    return (await connection.execute(select(identity.c.owned_since))).scalar_one() is not None


async def _ended(connection: AsyncConnection) -> _Named:
    """What is named by how tasks ended, and by the states in which they did."""
    found: _Named = {}
    ends: _Named = {}
    async for task_id, body, *_ in await connection.stream(rows_with(tasks.c.progress, true())):
        if (progress := _read(TaskProgress, body)) is not None:
            _name(found, task_id, _of_progress(progress))
            _name(ends, task_id, [progress.state])
    _name_again(found, ends, {blob: _of_state(state) for blob, state in await _all(connection, TaskState, ends)})
    return found


async def _audited(connection: AsyncConnection) -> _Named:
    """What people said, and versions of documents."""
    found: _Named = {}
    sets: _Named = {}
    decisions = rows_with(audit.c.body, ~audit.c.entry_id.startswith(DEFINED))
    async for task_id, body, *_ in await connection.stream(decisions):
        entry = ENTRY.validate_json(body)
        _name(found, task_id, _of_entry(entry))
        _name(sets, task_id, [entry.given] if isinstance(entry, KeptUpdate) else [])
    given = await _all(connection, DocumentSet, sets)
    _name_again(found, sets, {blob: [one.blob for one in each.documents] for blob, each in given})
    return found


async def _remembered(connection: AsyncConnection) -> _Named:
    """The reports and documents of which passages are."""
    found: _Named = {}
    async for task_id, body, *_ in await connection.stream(rows_with(passages.c.body, true())):
        _name(found, task_id, [Passage.model_validate_json(body).blob])
    return found


def _of_progress(progress: TaskProgress) -> Iterator[str | None]:
    yield from (progress.report, progress.state)
    yield from (version.report for version in progress.reports)
    yield from (telling.text for telling in progress.tellings)
    yield from (edit.instructions for edit in progress.edits)
    yield from (update.given for update in progress.updates)
    yield from (review.found for review in progress.reviews)


def _of_state(state: TaskState) -> Sequence[str | None]:
    return [
        state.report,
        *(version.report for version in state.reports),
        *(telling.text for telling in state.tellings),
        *(update.given for update in state.updates),
        *(review.found for review in state.oversight.reviews),
    ]


def _of_entry(entry: AuditEntry) -> Sequence[str]:
    match entry:
        case Telling():
            return [entry.text]
        case ContextEdit():
            return [entry.instructions]
        case KeptUpdate():
            return [entry.given, *(blob for change in entry.changes for blob in (change.before, change.after))]
        case Approval() | Refusal() | Resolution():
            return []


def _name(found: _Named, task_id: str, blobs: Iterable[str | None]) -> None:
    for blob in blobs:
        if blob:
            found.setdefault(blob, set()).add(task_id)


def _name_again(found: _Named, through: _Named, named: Mapping[str, Sequence[str | None]]) -> None:
    """Whoever has a text that names others has those, too."""
    for blob, inner in named.items():
        for task_id in through[blob]:
            _name(found, task_id, inner)


async def _all(connection: AsyncConnection, kind: type[_V], named: _Named) -> Sequence[tuple[str, _V]]:
    """Those of the texts that are such a value."""
    read = [(blob, _read(kind, text)) for blob, text in (await _texts(connection, named)).items()]
    return [(blob, value) for blob, value in read if value is not None]


def _read(kind: type[_V], text: str) -> _V | None:
    """None where a release that nobody has any more wrote it otherwise."""
    try:
        return kind.model_validate_json(text)
    except ValidationError:
        return None


async def _shown_in_messages(connection: AsyncConnection) -> _Named:
    """Pages that an agent has fetched, and results that were put away: whoever shows the very ends of a text had it.

    Of a text that is no longer than its ends these say nothing: it can be guessed, and was never put away.
    """
    found: _Named = {}
    for run_id, task_id in (await connection.execute(select(runs.c.run_id, runs.c.task_id))).all():
        said = select(messages.c.body).where(messages.c.run_id == run_id).order_by(messages.c.version)
        log = [Message.model_validate_json(body) for body in (await connection.execute(said)).scalars()]
        _name(found, task_id, [page.blob for page in kept_pages(log).values()])
        results = {result.content for message in log for result in message.tool_results}
        mentioned = dict.fromkeys(blob for content in results for blob in CONTENT_HASH.findall(content))
        whole = await _texts(connection, mentioned)
        _name(found, task_id, [blob for blob, text in whole.items() if _was_put_away(text, blob, results)])
    return found


async def _texts(connection: AsyncConnection, blobs: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for batch in batches(blobs):
        kept = select(texts.c.blob, texts.c.content).where(texts.c.blob.in_(batch))
        found |= {blob: opened_text(blob, content) for blob, content in await connection.execute(kept)}
    return found


async def _add(connection: AsyncConnection, named: _Named) -> None:
    """Those of them that are there."""
    whose = select(tasks.c.task_id, tasks.c.tenant, tasks.c.session)
    refs = {row.task_id: row for row in await connection.execute(whose)}
    for batch in batches(named):
        there = (await connection.execute(select(texts.c.blob).where(texts.c.blob.in_(batch)))).scalars()
        rows = [
            {"blob": blob, "task_id": task_id, "tenant": refs[task_id].tenant, "session": refs[task_id].session}
            for blob in there
            for task_id in sorted(named[blob] & refs.keys())
        ]
        await add_missing(connection, text_owners, rows)


def _was_put_away(text: str, blob: str, results: Collection[str]) -> bool:
    shown = preview(text, blob)
    return len(shown) < len(text) and shown in results
