"""Passages of what tasks came to: kept under a run of their own, and replaced when a task ends once more."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_once
from waystation.adapters.store.outbox import add_passages
from waystation.adapters.store.part import StorePart, writing
from waystation.adapters.store.schema import passages, runs, tasks
from waystation.domain.forgetting import FORGOTTEN
from waystation.domain.memory import Passage
from waystation.domain.results import RESULTS_ID, results_run
from waystation.domain.task import TaskRef


class SqlResultOutbox(StorePart):
    """The port `ResultOutbox`."""

    @writing
    async def commit_results(self, connection: AsyncConnection, ref: TaskRef, results: Sequence[Passage]) -> None:
        """Let these passages wait for memory, and those of an earlier end of the task leave it.

        The same passages twice change nothing; of a forgotten task nothing is kept. Raises WrongStore.
        """
        self.require_own(ref.store_id)
        title = select(tasks.c.title).where(tasks.c.task_id == ref.task_id).with_for_update()
        if (await connection.execute(title)).scalar_one_or_none() in {None, FORGOTTEN}:
            return
        run = {
            "run_id": results_run(ref.task_id),
            "task_id": ref.task_id,
            "step_id": RESULTS_ID,
            "tenant": ref.tenant,
            "session": ref.session,
        }
        await add_once(connection, runs, {**run, "role": "", "fence": 0, "version": 0, "opened_at": self._clock()})
        await _replace(connection, run["run_id"], frozenset(one.id for one in results), self._clock())
        await add_passages(connection, results)


async def _replace(connection: AsyncConnection, run_id: str, kept: frozenset[str], now: datetime) -> None:
    """Of the run's passages those that are not kept count no more; those that had gone, and are kept, wait again."""
    known = select(passages.c.passage_id, passages.c.gone_at).where(passages.c.run_id == run_id)
    gone = {row.passage_id: row.gone_at for row in await connection.execute(known)}
    past = [{"which": one} for one, at in gone.items() if one not in kept and at is None]
    back = [{"which": one} for one, at in gone.items() if one in kept and at is not None]
    changed = update(passages).where(passages.c.passage_id == bindparam("which"))
    if past:
        await connection.execute(changed.values(gone_at=now, stored_at=now), past)
    if back:
        await connection.execute(changed.values(gone_at=None, stored_at=None, refused_at=None), back)
