"""What agents note and hand in."""

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_once
from waystation.adapters.store.fences import hold
from waystation.adapters.store.part import StorePart, owned, reading, writing
from waystation.adapters.store.schema import deliverables, notes, runs
from waystation.adapters.store.sealed import bound
from waystation.domain.ownership import Reader
from waystation.domain.rewind import Rewind
from waystation.domain.turn import Fence
from waystation.domain.work import Deliverable, Note

_DELIVERABLE: TypeAdapter[Deliverable] = TypeAdapter(Deliverable)


async def take_work_back(connection: AsyncConnection, run_id: str, rewind: Rewind) -> None:
    """Notes of calls that count no more go, and what was handed in is again what it was."""
    ids = [f"{run_id}/{call_id}" for call_id in rewind.calls]
    await connection.execute(delete(notes).where(notes.c.run_id == run_id, notes.c.note_id.in_(ids)))
    own = deliverables.c.run_id == run_id
    if rewind.handed_in is None:
        await connection.execute(delete(deliverables).where(own))
    else:
        await connection.execute(
            update(deliverables).where(own).values(body=bound(rewind.handed_in.model_dump_json(), run_id))
        )


class SqlWork(StorePart):
    """The port `WorkStore`."""

    @writing
    async def add_note(self, connection: AsyncConnection, fence: Fence, task_id: str, note: Note) -> None:
        """Keep a note; the same id twice is one note. Raises FenceLost."""
        body = bound(note.model_dump_json(), fence.run_id, note.id)
        row = {"run_id": fence.run_id, "note_id": note.id, "task_id": task_id, "body": body}
        await hold(connection, fence)
        await add_once(connection, notes, row)

    @reading
    async def notes(
        self, connection: AsyncConnection, task_id: str, reader: Reader, run_id: str | None = None
    ) -> tuple[Note, ...]:
        """Notes of a task or of one agent run, in the order in which they were taken."""
        own = select(notes.c.body).join(runs, runs.c.run_id == notes.c.run_id).where(owned(runs, reader))
        taken = own.where(notes.c.task_id == task_id).order_by(notes.c.ordinal)
        if run_id is not None:
            taken = taken.where(notes.c.run_id == run_id)
        bodies = (await connection.execute(taken)).scalars().all()
        return tuple(Note.model_validate_json(body) for body in bodies)

    @writing
    async def hand_in(self, connection: AsyncConnection, fence: Fence, task_id: str, deliverable: Deliverable) -> None:
        """Keep what the agent run hands in; a later hand-in of the same run replaces it. Raises FenceLost."""
        row = {"run_id": fence.run_id, "task_id": task_id, "body": bound(deliverable.model_dump_json(), fence.run_id)}
        await hold(connection, fence)
        await connection.execute(delete(deliverables).where(deliverables.c.run_id == fence.run_id))
        await connection.execute(insert(deliverables).values(row))

    @reading
    async def deliverable(self, connection: AsyncConnection, run_id: str, reader: Reader) -> Deliverable | None:
        """What the run handed in."""
        own = select(deliverables.c.body).join(runs, runs.c.run_id == deliverables.c.run_id)
        handed_in = own.where(deliverables.c.run_id == run_id, owned(runs, reader))
        body: str | None = (await connection.execute(handed_in)).scalar_one_or_none()
        return None if body is None else _DELIVERABLE.validate_json(body)

    @reading
    async def deliverables(self, connection: AsyncConnection, task_id: str, reader: Reader) -> dict[str, Deliverable]:
        """What all agent runs of a task handed in, by run id."""
        handed_in = select(deliverables.c.run_id, deliverables.c.body).where(deliverables.c.task_id == task_id)
        own = handed_in.join(runs, runs.c.run_id == deliverables.c.run_id).where(owned(runs, reader))
        rows = (await connection.execute(own)).all()
        return {row.run_id: _DELIVERABLE.validate_json(row.body) for row in rows}
