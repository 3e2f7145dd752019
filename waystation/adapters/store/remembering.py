"""Passages of documents: kept once for all tasks of a session that have the document, and as long as one of them has.

A task's come under a run of their own. Its version says whether the task remembers; a forgotten one never does again.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, bindparam, false, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_missing, batches
from waystation.adapters.store.outbox import add_passages
from waystation.adapters.store.part import StorePart, writing
from waystation.adapters.store.schema import documents, passages, runs, tasks
from waystation.adapters.store.sealed import bound
from waystation.domain.memory import Passage
from waystation.domain.remembering import DOCUMENTS_ID, documents_run, passage_id
from waystation.domain.task import TaskRef

FORGOTTEN, REMEMBERING = -1, 1
"""In the place of a version. Earlier releases counted slices from 1 on."""


class _Owned(NamedTuple):
    """A version of a document and whose it is."""

    task_id: str
    tenant: str
    session: str
    blob: str
    name: str
    """As handed in."""


class SqlDocumentOutbox(StorePart):
    """The port `DocumentOutbox`."""

    @writing
    async def begin_documents(self, connection: AsyncConnection, ref: TaskRef, shown: Mapping[str, str]) -> bool:
        """Count the task among those that have its documents in memory; passages of versions that it has no more go to
        another task of the session that still has them, or leave memory. Doing it again changes nothing.

        `shown` is by name of a document the name that its passages bear. False: the task was forgotten. Raises
        WrongStore.
        """
        self.require_own(ref.store_id)
        if not await self._remembers(connection, ref.task_id):
            return False
        this = runs.c.run_id == documents_run(ref.task_id)
        await connection.execute(update(runs).where(this).values(version=REMEMBERING))
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

    @writing
    async def commit_document_passages(
        self, connection: AsyncConnection, ref: TaskRef, passages: Sequence[Passage]
    ) -> bool:
        """Let these passages wait for memory, but for those of a version that was replaced meanwhile.

        Those that are there are left as they are, whichever task brought them. False: the task was forgotten meanwhile,
        and nothing is kept. Raises WrongStore.
        """
        self.require_own(ref.store_id)
        if not await self._remembers(connection, ref.task_id):
            return False
        present = {one.blob for one in await _present(connection, ref)}
        added = [passage for passage in passages if passage.blob in present]
        await _revived(connection, added)
        await add_passages(connection, added)
        return True

    async def _forget_documents(self, connection: AsyncConnection, task_ids: Sequence[str]) -> None:
        """The passages of these tasks' documents go to other tasks of the session that have them, and are remembered;
        what is left goes with its task.
        """
        await self._open(connection, task_ids)
        forgotten = [documents_run(task_id) for task_id in task_ids]
        await connection.execute(update(runs).where(runs.c.run_id.in_(forgotten)).values(version=FORGOTTEN))
        heirs = await _heirs(connection, await _owned(connection, tasks.c.task_id.in_(task_ids)))
        await _handed_on(connection, await _kept(connection, task_ids), heirs)

    async def _remembers(self, connection: AsyncConnection, task_id: str) -> bool:
        """Whether it may; others wait until the transaction is over."""
        await self._open(connection, [task_id])
        locked = select(runs.c.version).where(runs.c.run_id == documents_run(task_id)).with_for_update()
        return (await connection.execute(locked)).scalar_one() != FORGOTTEN

    async def _gone(self, connection: AsyncConnection, passage_ids: Sequence[str]) -> None:
        """They are to leave memory. What they say stays, so that the originals in it are still forgotten with it."""
        now = self._clock()
        for batch in batches(passage_ids):
            these = update(passages).where(passages.c.passage_id.in_(batch))
            await connection.execute(these.values(gone_at=now, stored_at=now))

    async def _open(self, connection: AsyncConnection, task_ids: Sequence[str]) -> None:
        row = {"step_id": DOCUMENTS_ID, "role": "", "fence": 0, "version": 0, "opened_at": self._clock()}
        whose = select(tasks.c.task_id, tasks.c.tenant, tasks.c.session).where(tasks.c.task_id.in_(task_ids))
        known = {one["task_id"]: one for one in (await connection.execute(whose)).mappings()}
        opened = [{**row, **known[one], "run_id": documents_run(one)} for one in task_ids if one in known]
        await add_missing(connection, runs, opened)


async def _revived(connection: AsyncConnection, again: Sequence[Passage]) -> None:
    """What was forgotten with a task may be handed in again with another one."""
    by_id = {passage.id: passage for passage in again}
    for batch in batches(by_id):
        gone = select(passages.c.passage_id).where(passages.c.passage_id.in_(batch), passages.c.gone_at.is_not(None))
        rows = [
            {
                "revived": passage_id,
                "run_id": by_id[passage_id].run_id,
                "task_id": by_id[passage_id].task_id,
                "body": bound(by_id[passage_id].model_dump_json(), passage_id),
            }
            for passage_id in (await connection.execute(gone)).scalars()
        ]
        waits = update(passages).where(passages.c.passage_id == bindparam("revived"))
        if rows:
            await connection.execute(waits.values(stored_at=None, gone_at=None, refused_at=None), rows)


def _id_of(passage: Passage, ref: TaskRef) -> str:
    """Under which it would be made now: one that a person was erased from was made of another text."""
    return passage_id(ref, passage.document, passage.blob, passage.place)


async def _kept(connection: AsyncConnection, task_ids: Sequence[str]) -> Sequence[Passage]:
    """The passages of their documents that count."""
    theirs = passages.c.run_id.in_([documents_run(task_id) for task_id in task_ids])
    kept = select(passages.c.body).where(theirs, passages.c.gone_at.is_(None), passages.c.body != "")
    return [Passage.model_validate_json(body) for body in (await connection.execute(kept)).scalars()]


async def _handed_on(
    connection: AsyncConnection, found: Sequence[Passage], heirs: Mapping[tuple[str, str], str]
) -> frozenset[str]:
    """Those of them that have an heir, by task and content, are that task's; their ids."""
    rows = [
        {
            "inherited": passage.id,
            "task_id": heir,
            "run_id": documents_run(heir),
            "body": bound(_handed(passage, heir).model_dump_json(), passage.id),
        }
        for passage in found
        if (heir := heirs.get((passage.task_id, passage.blob)))
    ]
    # Memory gets them again, under the same ids: whoever searches in the heir's passages alone finds them, too.
    handed = update(passages).where(passages.c.passage_id == bindparam("inherited"))
    if rows:
        await connection.execute(handed.values(stored_at=None), rows)
    return frozenset(row["inherited"] for row in rows)


def _handed(passage: Passage, heir: str) -> Passage:
    return passage.model_copy(update={"task_id": heir, "run_id": documents_run(heir)})


async def _present(connection: AsyncConnection, ref: TaskRef) -> Sequence[_Owned]:
    """What the task has of documents now."""
    return await _owned(connection, tasks.c.task_id == ref.task_id, documents.c.removed == false())


async def _owned(connection: AsyncConnection, *where: ColumnElement[bool]) -> Sequence[_Owned]:
    """The documents of tasks, with as many conditions as are given."""
    columns = (tasks.c.task_id, tasks.c.tenant, tasks.c.session, documents.c.blob, documents.c.name)
    joined = select(*columns).join(documents, documents.c.task_id == tasks.c.task_id).where(*where)
    return [_Owned(*row) for row in (await connection.execute(joined)).all()]


async def _heirs(connection: AsyncConnection, wanted: Collection[_Owned]) -> Mapping[tuple[str, str], str]:
    """By task and content, another task of its session that remembers the document under the same name."""
    remembering = (
        runs.c.step_id == DOCUMENTS_ID,
        runs.c.version > 0,
        tasks.c.session.in_({one.session for one in wanted}),
    )
    # Locked, so that none of them is forgotten before it has what it inherits.
    locked = select(runs.c.task_id).join(tasks, tasks.c.task_id == runs.c.task_id).where(*remembering)
    ids = (await connection.execute(locked.order_by(runs.c.run_id).with_for_update(of=runs))).scalars().all()
    others = await _owned(connection, tasks.c.task_id.in_(ids), documents.c.removed == false()) if ids else ()
    remembered = {one[1:]: one.task_id for one in others}
    found = {(one.task_id, one.blob): remembered.get(one[1:]) for one in wanted}
    return {place: heir for place, heir in found.items() if heir}
