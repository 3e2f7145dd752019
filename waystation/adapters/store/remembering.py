"""Passages of documents: kept once for all tasks of a session that have the document, and as long as one of them has.

A task's come under a run of their own. Its version is how many slices are done; a forgotten task takes no more.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_missing, batches
from waystation.adapters.store.outbox import add_passages
from waystation.adapters.store.part import StorePart, writing
from waystation.adapters.store.schema import documents, passages, runs, tasks
from waystation.domain.memory import Passage
from waystation.domain.remembering import DOCUMENTS_ID, documents_run
from waystation.domain.task import TaskRef

FORGOTTEN = -1
"""In the place of a version."""


class SqlDocumentOutbox(StorePart):
    """The port `DocumentOutbox`."""

    @writing
    async def commit_document_passages(
        self, connection: AsyncConnection, ref: TaskRef, number: int, passages: Sequence[Passage]
    ) -> bool:
        """Let these passages wait for memory, and slice `number` of the task's documents count as done, at once.

        Passages that another task brought are left as they are. The same number twice changes nothing. False: the task
        was forgotten meanwhile, and nothing is kept. Raises WrongStore.
        """
        self.require_own(ref.store_id)
        await self._open(connection, [ref.task_id])
        this = runs.c.run_id == documents_run(ref.task_id)
        done: int = (await connection.execute(select(runs.c.version).where(this).with_for_update())).scalar_one()
        if done == number:
            await _revived(connection, passages)
            await add_passages(connection, passages)
            await connection.execute(update(runs).where(this).values(version=number + 1))
        return done != FORGOTTEN

    async def _forget_documents(self, connection: AsyncConnection, task_ids: Sequence[str]) -> None:
        """The passages of these tasks' documents go to other tasks of the session that have them, and are remembered;
        what is left goes with its task.
        """
        await self._open(connection, task_ids)
        forgotten = [documents_run(task_id) for task_id in task_ids]
        await connection.execute(update(runs).where(runs.c.run_id.in_(forgotten)).values(version=FORGOTTEN))
        heirs = await _heirs(connection, task_ids)
        kept = select(passages.c.body).where(passages.c.run_id.in_(forgotten), passages.c.body != "")
        found = [Passage.model_validate_json(body) for body in (await connection.execute(kept)).scalars()]
        rows = [
            {
                "inherited": passage.id,
                "task_id": heir,
                "run_id": documents_run(heir),
                "body": passage.model_copy(update={"task_id": heir, "run_id": documents_run(heir)}).model_dump_json(),
            }
            for passage in found
            if (heir := heirs.get((passage.task_id, passage.blob)))
        ]
        # Memory gets them again, under the same ids: whoever searches in the heir's passages alone finds them, too.
        handed = update(passages).where(passages.c.passage_id == bindparam("inherited"))
        if rows:
            await connection.execute(handed.values(stored_at=None), rows)

    async def _open(self, connection: AsyncConnection, task_ids: Sequence[str]) -> None:
        row = {"step_id": DOCUMENTS_ID, "role": "", "fence": 0, "version": 0, "opened_at": self._clock()}
        await add_missing(
            connection, runs, [{**row, "run_id": documents_run(task_id), "task_id": task_id} for task_id in task_ids]
        )


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
                "body": by_id[passage_id].model_dump_json(),
            }
            for passage_id in (await connection.execute(gone)).scalars()
        ]
        waits = update(passages).where(passages.c.passage_id == bindparam("revived"))
        if rows:
            await connection.execute(waits.values(stored_at=None, gone_at=None, refused_at=None), rows)


async def _heirs(connection: AsyncConnection, task_ids: Sequence[str]) -> Mapping[tuple[str, str], str]:
    """By forgotten task and content, another task of its session with the document under the same name."""
    own = (
        select(documents.c.task_id, documents.c.blob, documents.c.name, tasks.c.tenant, tasks.c.session)
        .join(tasks, tasks.c.task_id == documents.c.task_id)
        .where(documents.c.task_id.in_(task_ids))
    )
    wanted = (await connection.execute(own)).all()
    others = (
        select(documents.c.task_id, documents.c.blob, documents.c.name, tasks.c.tenant, tasks.c.session)
        .join(tasks, tasks.c.task_id == documents.c.task_id)
        .join(runs, runs.c.task_id == documents.c.task_id)
        .where(runs.c.step_id == DOCUMENTS_ID, runs.c.version > 0)
        .where(tasks.c.session.in_({row.session for row in wanted}))
    )
    remembered = {
        (row.tenant, row.session, row.blob, row.name): row.task_id for row in (await connection.execute(others)).all()
    }
    found = {(row.task_id, row.blob): remembered.get((row.tenant, row.session, row.blob, row.name)) for row in wanted}
    return {place: heir for place, heir in found.items() if heir}
