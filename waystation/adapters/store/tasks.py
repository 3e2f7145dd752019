"""Tasks: what was asked for, under which terms, and how each ended."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Row, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_once
from waystation.adapters.store.part import StorePart, reading, writing
from waystation.adapters.store.schema import tasks
from waystation.adapters.store.texts import add_documents, add_texts, described
from waystation.domain.documents import Document
from waystation.domain.errors import RequestConflict, UnknownTask
from waystation.domain.task import SourceDocument, TaskProgress, TaskRef, TaskRequest, TaskRow, TaskTerms


class SqlTasks(StorePart):
    """The port `TaskStore` without its plans and its audit."""

    async def store_id(self) -> str:
        """The id of this store, made when it was created."""
        return self._store_id

    async def register(self, row: TaskRow, documents: Sequence[SourceDocument]) -> bool:
        """Store a new task with its documents. False: the same request is there already.

        Raises RequestConflict if the request id was used for another question, other documents or other terms.
        """
        # Large texts are hashed before the transaction, while others can write.
        return await self._register(row, documents, [described(source) for source in documents])

    @writing
    async def _register(
        self,
        connection: AsyncConnection,
        row: TaskRow,
        documents: Sequence[SourceDocument],
        listed: Sequence[Document],
    ) -> bool:
        digest = digest_of(row.request, listed)
        if not await add_once(connection, tasks, {**task_columns(row), "digest": digest}):
            await require_same_request(connection, row, digest)
            return False
        by_hash = {document.blob: source.text for document, source in zip(listed, documents, strict=True)}
        # In one order everywhere: two tasks with the same documents must not wait for each other.
        await add_texts(connection, sorted(by_hash.items()))
        await add_documents(connection, row.ref.task_id, listed)
        return True

    @reading
    async def task(self, connection: AsyncConnection, task_id: str) -> TaskRow:
        """Raises UnknownTask."""
        found = (await connection.execute(select(tasks).where(tasks.c.task_id == task_id))).one_or_none()
        if found is None:
            raise unknown_task(task_id)
        return task_row(found)

    @reading
    async def find_tasks(self, connection: AsyncConnection, prefix: str, tenant: str | None = None) -> tuple[str, ...]:
        """Ids that start with the prefix, newest first; `tenant` is the tenant's hash."""
        starts = func.substr(tasks.c.task_id, 1, len(prefix)) == prefix
        found = select(tasks.c.task_id).where(starts).order_by(tasks.c.ordinal.desc())
        if tenant is not None:
            found = found.where(tasks.c.tenant == tenant)
        return tuple((await connection.execute(found)).scalars())

    @reading
    async def tasks(
        self,
        connection: AsyncConnection,
        session: str | None = None,
        limit: int = 50,
        *,
        tenant: str | None = None,
        ended_before: datetime | None = None,
    ) -> tuple[TaskRow, ...]:
        """Newest first; `session` and `tenant` are hashes. Of those that ended before some moment, none is forgotten
        as a whole; one whose end nobody wrote down counts from when it was submitted: it was terminated, or still
        runs.
        """
        newest = select(tasks).order_by(tasks.c.ordinal.desc()).limit(limit)
        if session is not None:
            newest = newest.where(tasks.c.session == session)
        if tenant is not None:
            newest = newest.where(tasks.c.tenant == tenant)
        if ended_before is not None:
            ended = func.coalesce(tasks.c.ended_at, tasks.c.submitted_at) < ended_before
            newest = newest.where(ended, tasks.c.forgotten_at.is_(None))
        rows = (await connection.execute(newest)).all()
        return tuple(task_row(row) for row in rows)

    async def admit(self, task_id: str, title: str) -> None:
        """Keep the redacted title. Raises UnknownTask."""
        await self._set(task_id, title=title)

    async def finish(self, task_id: str, progress: TaskProgress) -> None:
        """Keep how the task ended; what was kept before is replaced. Raises UnknownTask."""
        ended = self._clock() if progress.phase.over else None
        await self._set(task_id, progress=progress.model_dump_json(), ended_at=ended)

    @writing
    async def _set(self, connection: AsyncConnection, task_id: str, **values: object) -> None:
        changed = await connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(**values))
        if changed.rowcount != 1:
            raise unknown_task(task_id)


async def require_task(connection: AsyncConnection, task_id: str) -> None:
    """Raises UnknownTask if the task is not there."""
    found = await connection.execute(select(tasks.c.ordinal).where(tasks.c.task_id == task_id))
    if found.one_or_none() is None:
        raise unknown_task(task_id)


async def require_same_request(connection: AsyncConnection, row: TaskRow, digest: str) -> None:
    """Raises RequestConflict where the request id was used for something else."""
    known = select(tasks.c.digest).where(
        tasks.c.tenant == row.ref.tenant,
        tasks.c.session == row.ref.session,
        tasks.c.request_id == row.request.request_id,
    )
    if (await connection.execute(known)).scalar_one_or_none() != digest:
        raise RequestConflict(
            f"the request id {row.request.request_id!r} was used in this session before, with another question, "
            "other documents or other terms: use a new request id"
        )


def digest_of(request: TaskRequest, documents: Sequence[Document]) -> str:
    """Over what the person gave. Defaults and the task's terms are left out: they change with the software."""
    asked = request.model_dump(mode="json", exclude_defaults=True)
    if asked.get("session") == "default":  # which was left out while every task without a session had this one
        del asked["session"]
    content = [asked, [[document.name, document.blob] for document in documents]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def task_columns(row: TaskRow) -> dict[str, object]:
    """The row as its table has it, digest and plan apart."""
    return {
        **row.ref.model_dump(),
        "request_id": row.request.request_id,
        "request": row.request.model_dump_json(),
        "terms": row.terms.model_dump_json(),
        "title": row.title,
        "submitted_at": row.submitted_at,
        "ended_at": row.ended_at,
        "progress": None if row.progress is None else row.progress.model_dump_json(),
    }


def task_row(row: Row[tuple[object, ...]]) -> TaskRow:
    """The task of a row of its table."""
    return TaskRow(
        ref=TaskRef(store_id=row.store_id, tenant=row.tenant, session=row.session, task_id=row.task_id),
        request=TaskRequest.model_validate_json(row.request),
        terms=TaskTerms.model_validate_json(row.terms),
        title=row.title,
        submitted_at=row.submitted_at,
        ended_at=row.ended_at,
        progress=None if row.progress is None else TaskProgress.model_validate_json(row.progress),
    )


def unknown_task(task_id: str) -> UnknownTask:
    """The error about a task that is not there."""
    return UnknownTask(f"no task {task_id} in this store: list the tasks to see which there are")
