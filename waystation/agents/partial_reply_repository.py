"""SQL repository of partial replies, and of who watches which task. Both are short-lived: a partial reply is deleted
with the commit of the whole one.
"""

from datetime import datetime

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.agents.partial_replies import PartialReply
from waystation.agents.run_repository import delete_partial_reply, lock_run
from waystation.context.transcript import Fence
from waystation.kernel.scopes import ReadScope
from waystation.store.encryption import bind_to_row
from waystation.store.engine import (
    SqlRepository,
    build_owner_filter,
    fetch_bodies,
    insert_if_absent,
    read_transaction,
    write_transaction,
)
from waystation.store.schema import partial_replies, runs, task_watches, tasks


class SqlPartialReplyRepository(SqlRepository):
    """`PartialReplyRepository` in SQL, and what clients need of it."""

    @write_transaction
    async def watch_task(self, connection: AsyncConnection, task_id: str, until: datetime, reader: ReadScope) -> None:
        """Record that someone watches the task until then. Does nothing for a task that is not the reader's."""
        own = select(tasks.c.task_id, tasks.c.terms).where(tasks.c.task_id == task_id)
        if not await fetch_bodies(connection, own.where(build_owner_filter(tasks, reader))):
            return
        if not await insert_if_absent(connection, task_watches, {"task_id": task_id, "watched_until": until}):
            later = update(task_watches).where(task_watches.c.task_id == task_id, task_watches.c.watched_until < until)
            await connection.execute(later.values(watched_until=until))

    @read_transaction
    async def is_watched(self, connection: AsyncConnection, task_id: str, reader: ReadScope) -> bool:
        """Return whether someone watches the task; False for a task that is not the reader's."""
        watched = (
            select(tasks.c.task_id, tasks.c.terms)
            .join(task_watches, task_watches.c.task_id == tasks.c.task_id)
            .where(tasks.c.task_id == task_id, task_watches.c.watched_until > self._clock())
        )
        return bool(await fetch_bodies(connection, watched.where(build_owner_filter(tasks, reader))))

    @write_transaction
    async def save_partial_reply(
        self, connection: AsyncConnection, fence: Fence, task_id: str, reply: PartialReply
    ) -> bool:
        """Store what an agent's model says now, in place of what it said before, if someone watches its task.

        Returns:
            Whether someone does. Otherwise what was stored before is deleted.

        Raises:
            StaleFenceError: Another attempt has taken over.
        """
        await lock_run(connection, fence)
        await delete_partial_reply(connection, fence.run_id)
        watched = select(task_watches.c.task_id).where(
            task_watches.c.task_id == task_id, task_watches.c.watched_until > self._clock()
        )
        if (await connection.execute(watched)).first() is None:
            return False
        row = {"run_id": fence.run_id, "body": bind_to_row(reply.model_dump_json(), fence.run_id)}
        await connection.execute(insert(partial_replies).values(row))
        return True

    @write_transaction
    async def drop_partial_reply(self, connection: AsyncConnection, fence: Fence) -> None:
        """Delete what was stored of a reply that never came. Raises StaleFenceError."""
        await lock_run(connection, fence)
        await delete_partial_reply(connection, fence.run_id)

    @read_transaction
    async def list_partial_replies(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope
    ) -> tuple[PartialReply, ...]:
        """Return what the models of a task's agents say now, by agent."""
        own = (
            select(partial_replies.c.body, runs.c.proof)
            .join(runs, runs.c.run_id == partial_replies.c.run_id)
            .where(runs.c.task_id == task_id, build_owner_filter(runs, reader))
            .order_by(runs.c.step_id)
        )
        return tuple(PartialReply.model_validate_json(body) for body in await fetch_bodies(connection, own))


async def delete_watch(connection: AsyncConnection, task_id: str) -> None:
    """Delete what is stored for those who watch a task: it is over."""
    of_task = select(runs.c.run_id).where(runs.c.task_id == task_id)
    await connection.execute(delete(partial_replies).where(partial_replies.c.run_id.in_(of_task)))
    await connection.execute(delete(task_watches).where(task_watches.c.task_id == task_id))
