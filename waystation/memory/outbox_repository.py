"""The outbox in the SQL store: passages on their way into memory and out of it.

Passages of conversations are written with their compaction. Those of documents belong to a run of their own and are
stored once for all tasks of a session that have the document; a run's version says whether its task remembers, and a
forgotten task never does again. Those of results have a run of their own too, and are replaced if a task ends again.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Select, bindparam, false, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import ReadScope, TaskScope
from waystation.kernel.text import FORGOTTEN
from waystation.memory.passage_builder import (
    DOCUMENTS_ID,
    RESULTS_ID,
    make_document_passage_id,
    make_documents_run_id,
    make_results_run_id,
)
from waystation.memory.passages import Passage
from waystation.memory.ports import OutboxBatch
from waystation.store.encryption import add_row_proof, bind_to_row
from waystation.store.engine import (
    SqlRepository,
    build_owner_filter,
    build_task_filter,
    fetch_bodies,
    insert_if_absent,
    insert_missing,
    iter_batches,
    read_transaction,
    write_transaction,
)
from waystation.store.schema import documents, passage_states, passages, runs, tasks

_ID_PREFIX = compile_bounded(r"[0-9a-f]{8}[0-9a-f-]{0,28}")
_WITH_STATES = passages.join(passage_states)
_IS_VALID = passage_states.c.gone_at.is_(None)
_WAITS = (passage_states.c.stored_at.is_(None), _IS_VALID, passage_states.c.refused_at.is_(None))


async def add_passages(connection: AsyncConnection, added: Sequence[Passage]) -> None:
    """Add these passages to the outbox."""
    rows = [
        {
            "passage_id": passage.id,
            "run_id": passage.run_id,
            "task_id": passage.task_id,
            "body": bind_to_row(passage.model_dump_json(), passage.id, passage.run_id),
        }
        for passage in added
    ]
    await insert_missing(connection, passages, rows)
    await insert_missing(connection, passage_states, [{"passage_id": passage.id} for passage in added])


async def withdraw_passages(connection: AsyncConnection, run_id: str, gone: Set[str], now: datetime) -> None:
    """Withdraw passages that begin or end with one of these messages. Memory may contain any of them."""
    kept = select(passages.c.body).select_from(_WITH_STATES).where(passages.c.run_id == run_id, _IS_VALID)
    found = [Passage.model_validate_json(body) for body in (await connection.execute(kept)).scalars()]
    ids = sorted(passage.id for passage in found if gone & {passage.first_message, passage.last_message})
    await _set_states(connection, ids, gone_at=now, stored_at=now)


_WAITING: Mapping[str, None] = {"stored_at": None, "gone_at": None, "refused_at": None}
"""State of a passage that waits for memory."""


async def _set_states(connection: AsyncConnection, passage_ids: Sequence[str], **values: datetime | None) -> None:
    """Set these columns of the passages' states."""
    this = update(passage_states).where(passage_states.c.passage_id == bindparam("which")).values(values)
    if passage_ids:
        # Sorted, so that two workers that empty the outbox do not wait for each other.
        await connection.execute(this, [{"which": passage_id} for passage_id in sorted(passage_ids)])


async def _settle(connection: AsyncConnection, passage_ids: Sequence[str], **values: datetime) -> None:
    """As `_set_states`, of passages that are not in memory."""
    waits = (passage_states.c.passage_id == bindparam("which"), passage_states.c.stored_at.is_(None))
    if passage_ids:
        settled = update(passage_states).where(*waits).values(values)
        await connection.execute(settled, [{"which": passage_id} for passage_id in sorted(passage_ids)])


def _of(reader: ReadScope) -> Select[str, str]:
    """Select the bodies of the reader's valid passages, with the proofs that they are the reader's."""
    return (
        select(passages.c.body, runs.c.proof)
        .select_from(_WITH_STATES.join(runs, runs.c.run_id == passages.c.run_id))
        .where(build_owner_filter(runs, reader), _IS_VALID)
    )


class SqlOutbox(SqlRepository):
    """`PassageOutbox` and `PassageReader` in SQL."""

    @read_transaction
    async def load_outbox_batch(
        self, connection: AsyncConnection, limit: int, run_id: str | None = None
    ) -> OutboxBatch:
        """Return up to `limit` of the passages that wait, of one agent run or of all, and of those to delete of all."""
        oldest = select(passages.c.body).select_from(_WITH_STATES).where(*_WAITS).order_by(passage_states.c.ordinal)
        if run_id is not None:
            oldest = oldest.where(passages.c.run_id == run_id)
        found = (await connection.execute(oldest.limit(limit))).scalars().all()
        pending = tuple(Passage.model_validate_json(body) for body in found)
        return OutboxBatch(pending, await _list_withdrawn(connection, limit))

    @read_transaction
    async def count_pending_passages(self, connection: AsyncConnection, task_id: str | None = None) -> int:
        """Count the waiting passages of one task or of all."""
        counted = select(func.count()).select_from(_WITH_STATES).where(*_WAITS)
        if task_id is not None:
            counted = counted.where(passages.c.task_id == task_id)
        return (await connection.execute(counted)).scalar_one()

    @read_transaction
    async def get_oldest_pending_time(self, connection: AsyncConnection) -> datetime | None:
        """Return when the oldest waiting passage was made; None if none waits."""
        oldest = select(passages.c.body).select_from(_WITH_STATES).where(*_WAITS).order_by(passage_states.c.ordinal)
        body = (await connection.execute(oldest.limit(1))).scalar_one_or_none()
        return None if body is None else Passage.model_validate_json(body).created

    @write_transaction
    async def mark_passages_stored(self, connection: AsyncConnection, passage_ids: Sequence[str]) -> None:
        """Mark the passages as stored in memory. Ids that do not wait are left unchanged."""
        await _settle(connection, passage_ids, stored_at=self._clock())

    @write_transaction
    async def mark_passages_rejected(self, connection: AsyncConnection, passage_ids: Sequence[str]) -> None:
        """Mark passages that memory rejects: they wait no longer, but stay in the store."""
        await _settle(connection, passage_ids, refused_at=self._clock())

    @read_transaction
    async def list_rejected_passage_ids(
        self, connection: AsyncConnection, task_id: str | None = None
    ) -> tuple[str, ...]:
        """Return the ids of rejected passages of one task or of all."""
        aside = (passage_states.c.refused_at.is_not(None), passage_states.c.stored_at.is_(None), _IS_VALID)
        found = select(passages.c.passage_id).select_from(_WITH_STATES).where(*aside).order_by(passage_states.c.ordinal)
        if task_id is not None:
            found = found.where(passages.c.task_id == task_id)
        return tuple((await connection.execute(found)).scalars())

    @read_transaction
    async def list_passage_ids_to_delete(self, connection: AsyncConnection, limit: int) -> tuple[str, ...]:
        """Return the ids of withdrawn passages that may still be in memory."""
        return await _list_withdrawn(connection, limit)

    @write_transaction
    async def mark_passages_deleted(self, connection: AsyncConnection, passage_ids: Sequence[str]) -> None:
        """Mark the passages as removed from memory."""
        await _set_states(connection, passage_ids, stored_at=None)

    @read_transaction
    async def find_passages(self, connection: AsyncConnection, prefix: str, reader: ReadScope) -> tuple[Passage, ...]:
        """Return the reader's passages whose ids begin with this prefix of at least eight hexadecimal digits."""
        if not _ID_PREFIX.fullmatch(prefix):
            return ()
        # A range, since LIKE uses no index if the database's collation is not plain.
        begins = (passages.c.passage_id >= prefix, passages.c.passage_id < f"{prefix}g")
        found = _of(reader).where(*begins)
        return tuple(Passage.model_validate_json(body) for body in await fetch_bodies(connection, found))

    @read_transaction
    async def list_passage_ids(self, connection: AsyncConnection, *, refused: bool = False) -> frozenset[str]:
        """Return the ids of all valid passages of all tenants; rejected ones only with `refused`."""
        counts = select(passage_states.c.passage_id).where(_IS_VALID)
        if not refused:
            counts = counts.where(passage_states.c.refused_at.is_(None) | passage_states.c.stored_at.is_not(None))
        return frozenset((await connection.execute(counts)).scalars())

    @read_transaction
    async def list_deleted_passage_ids(self, connection: AsyncConnection) -> frozenset[str]:
        """Return the ids of all withdrawn passages of all tenants."""
        gone = select(passage_states.c.passage_id).where(passage_states.c.gone_at.is_not(None))
        return frozenset((await connection.execute(gone)).scalars())

    @read_transaction
    async def count_stored_passages(self, connection: AsyncConnection, reader: ReadScope) -> int:
        """Count the reader's valid passages that were written to memory: each is a point there."""
        written = (_IS_VALID, passage_states.c.stored_at.is_not(None))
        found = select(runs.c.run_id, runs.c.proof, func.count().label("stored"))
        found = found.select_from(_WITH_STATES.join(runs, runs.c.run_id == passages.c.run_id)).where(
            build_owner_filter(runs, reader), *written
        )
        rows = await connection.execute(found.group_by(runs.c.run_id, runs.c.proof))
        return sum(row.stored for row in rows)

    @read_transaction
    async def get_passages(
        self, connection: AsyncConnection, passage_ids: Sequence[str], reader: ReadScope
    ) -> tuple[Passage, ...]:
        """Return the valid ones among these passages, of which there may be a few hundred."""
        found = await fetch_bodies(connection, _of(reader).where(passages.c.passage_id.in_(passage_ids)))
        return tuple(Passage.model_validate_json(body) for body in found)

    @read_transaction
    async def list_task_passages(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope
    ) -> tuple[Passage, ...]:
        """Return all passages of a task, including those in memory: everything of it that a search can find."""
        kept = _of(reader).where(build_task_filter(passages, task_id)).order_by(passages.c.ordinal)
        return tuple(Passage.model_validate_json(body) for body in await fetch_bodies(connection, kept))


async def _list_withdrawn(connection: AsyncConnection, limit: int) -> tuple[str, ...]:
    still_there = (passage_states.c.gone_at.is_not(None), passage_states.c.stored_at.is_not(None))
    found = select(passage_states.c.passage_id).where(*still_there)
    return tuple((await connection.execute(found.limit(limit))).scalars())


RELEASED_MARK, INDEXING_MARK = -1, 1
"""Used instead of a run's version."""


class _Owned(NamedTuple):
    """A version of a document and its owner."""

    task_id: str
    tenant: str
    session: str
    blob: str
    name: str
    """Name as submitted."""


class SqlDocumentPassageOutbox(SqlRepository):
    """`DocumentPassageOutbox` in SQL."""

    @write_transaction
    async def begin_document_indexing(
        self, connection: AsyncConnection, ref: TaskRef, shown: Mapping[str, str]
    ) -> bool:
        """Register the task among those that have its documents in memory.

        Passages of versions that it no longer has move to another task of the session that still has them, or leave
        memory. Repeating this changes nothing.

        Args:
            connection: connection of the transaction.
            ref: the task.
            shown: by document name, the name that its passages bear.

        Returns:
            False if the task was forgotten.

        Raises:
            WrongStore: the task belongs to another store.
        """
        self.require_own_store(ref.store_id)
        if not await self._remembers(connection, ref.task_id):
            return False
        this = runs.c.run_id == make_documents_run_id(ref.task_id)
        await connection.execute(update(runs).where(this).values(version=INDEXING_MARK))
        now = {(shown.get(one.name, one.name), one.blob) for one in await _present(connection, ref)}
        old = [
            passage
            for passage in await _kept(connection, [ref.task_id])
            if (passage.document, passage.blob) not in now or passage.id != _id_of(passage, ref)
        ]
        named = {called: name for name, called in shown.items()}
        wanted = {
            _Owned(ref.task_id, ref.tenant, ref.session, one.blob, named[one.document])
            for one in old
            if one.document in named and one.blob not in {blob for _, blob in now}
        }
        handed = await _handed_on(connection, old, await _heirs(connection, wanted))
        await self._gone(connection, [one.id for one in old if one.id not in handed])
        return True

    @write_transaction
    async def commit_document_passages(
        self, connection: AsyncConnection, ref: TaskRef, passages: Sequence[Passage]
    ) -> bool:
        """Add these passages to the outbox, except those of a version that was replaced meanwhile.

        Existing passages stay unchanged, whichever task added them.

        Returns:
            False if the task was forgotten meanwhile, and nothing is stored.

        Raises:
            WrongStore: the task belongs to another store.
        """
        self.require_own_store(ref.store_id)
        if not await self._remembers(connection, ref.task_id):
            return False
        present = {one.blob for one in await _present(connection, ref)}
        added = [passage for passage in passages if passage.blob in present]
        await _revived(connection, added)
        await add_passages(connection, added)
        return True

    async def _forget_documents(self, connection: AsyncConnection, task_ids: Sequence[str]) -> None:
        """Transfer the passages of these tasks' documents to other tasks of the session that have and remember them;
        the rest is forgotten with its task.
        """
        await self._open(connection, task_ids)
        forgotten = [make_documents_run_id(task_id) for task_id in task_ids]
        await connection.execute(update(runs).where(runs.c.run_id.in_(forgotten)).values(version=RELEASED_MARK))
        heirs = await _heirs(connection, await _owned(connection, tasks.c.task_id.in_(task_ids)))
        await _handed_on(connection, await _kept(connection, task_ids), heirs)

    async def _remembers(self, connection: AsyncConnection, task_id: str) -> bool:
        """Return whether the task may remember; others wait until the transaction is over."""
        await self._open(connection, [task_id])
        locked = select(runs.c.version).where(runs.c.run_id == make_documents_run_id(task_id)).with_for_update()
        return (await connection.execute(locked)).scalar_one() != RELEASED_MARK

    async def _gone(self, connection: AsyncConnection, passage_ids: Sequence[str]) -> None:
        """Mark the passages to leave memory.

        Their text stays, so that originals in it are still forgotten with them.
        """
        now = self._clock()
        await _set_states(connection, passage_ids, gone_at=now, stored_at=now)

    async def _open(self, connection: AsyncConnection, task_ids: Sequence[str]) -> None:
        row = {"step_id": DOCUMENTS_ID, "role": "", "fence": 0, "version": 0, "opened_at": self._clock()}
        whose = select(tasks.c.tenant, tasks.c.session, tasks.c.task_id, tasks.c.terms).where(
            tasks.c.task_id.in_(task_ids)
        )
        known = {
            one.task_id: TaskScope(tenant=one.tenant, session=one.session, task_id=one.task_id).model_dump()
            for one in (await connection.execute(whose)).all()
        }
        opened = [{**row, **known[one], "run_id": make_documents_run_id(one)} for one in task_ids if one in known]
        await insert_missing(connection, runs, [add_row_proof(runs, one) for one in opened])


async def _revived(connection: AsyncConnection, again: Sequence[Passage]) -> None:
    """Restore passages: what was forgotten with a task may be submitted again with another one."""
    by_id = {passage.id: passage for passage in again}
    for batch in iter_batches(by_id):
        withdrawn = (passage_states.c.passage_id.in_(batch), passage_states.c.gone_at.is_not(None))
        gone = select(passage_states.c.passage_id).where(*withdrawn)
        rows = [
            {
                "revived": passage_id,
                "run_id": by_id[passage_id].run_id,
                "task_id": by_id[passage_id].task_id,
                "body": bind_to_row(by_id[passage_id].model_dump_json(), passage_id, by_id[passage_id].run_id),
            }
            for passage_id in (await connection.execute(gone)).scalars()
        ]
        rewritten = update(passages).where(passages.c.passage_id == bindparam("revived"))
        if rows:
            await connection.execute(rewritten, rows)
        await _set_states(connection, [str(row["revived"]) for row in rows], **_WAITING)


def _id_of(passage: Passage, ref: TaskRef) -> str:
    """Return the id that the passage would get now: after an erasure, its own id was made from a different text."""
    return make_document_passage_id(ref, passage.document, passage.blob, passage.place)


async def _kept(connection: AsyncConnection, task_ids: Sequence[str]) -> Sequence[Passage]:
    """Return the valid passages of these tasks' documents."""
    theirs = passages.c.run_id.in_([make_documents_run_id(task_id) for task_id in task_ids])
    kept = select(passages.c.body).select_from(_WITH_STATES).where(theirs, _IS_VALID, passages.c.body != "")
    return [Passage.model_validate_json(body) for body in (await connection.execute(kept)).scalars()]


async def _handed_on(
    connection: AsyncConnection, found: Sequence[Passage], heirs: Mapping[tuple[str, str], str]
) -> frozenset[str]:
    """Transfer passages to the tasks that inherit them, by task and content, and return their ids."""
    rows = [
        {
            "inherited": passage.id,
            "task_id": heir,
            "run_id": make_documents_run_id(heir),
            "body": bind_to_row(_handed(passage, heir).model_dump_json(), passage.id, make_documents_run_id(heir)),
        }
        for passage in found
        if (heir := heirs.get((passage.task_id, passage.blob)))
    ]
    # Memory gets them again under the same ids, so that a search in the heir's passages alone finds them too.
    handed = update(passages).where(passages.c.passage_id == bindparam("inherited"))
    if rows:
        await connection.execute(handed, rows)
    ids = [row["inherited"] for row in rows]
    await _set_states(connection, ids, stored_at=None)
    return frozenset(ids)


def _handed(passage: Passage, heir: str) -> Passage:
    return passage.replace(task_id=heir, run_id=make_documents_run_id(heir))


async def _present(connection: AsyncConnection, ref: TaskRef) -> Sequence[_Owned]:
    """Return the documents that the task has now."""
    return await _owned(connection, tasks.c.task_id == ref.task_id, documents.c.removed == false())


async def _owned(connection: AsyncConnection, *where: ColumnElement[bool]) -> Sequence[_Owned]:
    """Return documents of tasks that match all conditions."""
    columns = (tasks.c.task_id, tasks.c.tenant, tasks.c.session, documents.c.blob, documents.c.name)
    joined = select(*columns).join(documents, documents.c.task_id == tasks.c.task_id).where(*where)
    return [_Owned(*row) for row in (await connection.execute(joined)).all()]


async def _heirs(connection: AsyncConnection, wanted: Collection[_Owned]) -> Mapping[tuple[str, str], str]:
    """Return, by task and content, another task of its session that remembers the document under the same name."""
    remembering = (
        runs.c.step_id == DOCUMENTS_ID,
        runs.c.version > 0,
        tasks.c.session.in_({one.session for one in wanted}),
    )
    # Locked, so that none of them is forgotten before it has inherited.
    locked = select(runs.c.task_id).join(tasks, tasks.c.task_id == runs.c.task_id).where(*remembering)
    ids = (await connection.execute(locked.order_by(runs.c.run_id).with_for_update(of=runs))).scalars().all()
    others = await _owned(connection, tasks.c.task_id.in_(ids), documents.c.removed == false()) if ids else ()
    remembered = {one[1:]: one.task_id for one in others}
    found = {(one.task_id, one.blob): remembered.get(one[1:]) for one in wanted}
    return {place: heir for place, heir in found.items() if heir}


class SqlResultOutbox(SqlRepository):
    """`ResultPassageOutbox` in SQL."""

    @write_transaction
    async def commit_result_passages(
        self, connection: AsyncConnection, ref: TaskRef, results: Sequence[Passage]
    ) -> None:
        """Add these passages to the outbox, and remove those of an earlier end of the task from memory.

        The same passages a second time change nothing; nothing is stored for a forgotten task.

        Raises:
            WrongStore: the task belongs to another store.
        """
        self.require_own_store(ref.store_id)
        title = select(tasks.c.title).where(tasks.c.task_id == ref.task_id).with_for_update()
        if (await connection.execute(title)).scalar_one_or_none() in {None, FORGOTTEN}:
            return
        run = {
            "run_id": make_results_run_id(ref.task_id),
            "task_id": ref.task_id,
            "step_id": RESULTS_ID,
            "tenant": ref.tenant,
            "session": ref.session,
        }
        opened = {**run, "role": "", "fence": 0, "version": 0, "opened_at": self._clock()}
        await insert_if_absent(connection, runs, add_row_proof(runs, opened))
        await _replace(connection, run["run_id"], frozenset(one.id for one in results), self._clock())
        await add_passages(connection, results)


async def _replace(connection: AsyncConnection, run_id: str, kept: frozenset[str], now: datetime) -> None:
    """Withdraw passages of the run that are not in `kept`; withdrawn ones that are in it wait again."""
    known = select(passages.c.passage_id, passage_states.c.gone_at).select_from(_WITH_STATES)
    rows = await connection.execute(known.where(passages.c.run_id == run_id))
    gone = {row.passage_id: row.gone_at for row in rows}
    past = [one for one, at in gone.items() if one not in kept and at is None]
    back = [one for one, at in gone.items() if one in kept and at is not None]
    await _set_states(connection, past, gone_at=now, stored_at=now)
    await _set_states(connection, back, **_WAITING)
