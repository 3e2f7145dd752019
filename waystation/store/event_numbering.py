"""Events are written by the transaction that they describe, and numbered at its very end.

Numbers of transactions that run side by side must not become visible out of order: a reader of 8 would never see 7.
So a tenant's newest number is a row that the transaction holds until it is committed, and takes last: its
holder waits for nothing else, and readers see no number before all smaller ones.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import NamedTuple

from sqlalchemy import Insert, bindparam, insert, literal_column, select, union_all
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.store.events import UnnumberedEvent
from waystation.store.schema import event_heads, runs, task_events, tasks


class EventOwner(NamedTuple):
    """Owner of a task or an agent run."""

    tenant: str
    task_id: str
    agent: str = ""
    """Empty for a task."""


class _Untold(NamedTuple):
    place: str
    """Of a task, or of an agent run."""
    event: UnnumberedEvent
    at: datetime


_PENDING_EVENTS = "waystation_untold"
"""Connection key: events of the transaction so far, in order."""
_OWNERS = "waystation_owners"
"""Connection key: owners of the tasks and runs that the transaction has read."""


def queue_event(connection: AsyncConnection, place: str, happening: UnnumberedEvent, at: datetime) -> None:
    """Queue an event of this task or agent run; it is written only if the transaction commits."""
    connection.info.setdefault(_PENDING_EVENTS, []).append(_Untold(place, happening, at))


def note_owner(connection: AsyncConnection, place: str, owner: EventOwner) -> None:
    """Remember the owner of this task or run, if the transaction has read its row anyway."""
    connection.info.setdefault(_OWNERS, {})[place] = owner


def discard_queued_events(connection: AsyncConnection) -> None:
    """Drop what an earlier transaction left on a pooled connection."""
    connection.info.pop(_PENDING_EVENTS, None)
    connection.info.pop(_OWNERS, None)


async def insert_queued_events(connection: AsyncConnection) -> None:
    """Number and insert the transaction's events, as its last statements: see above."""
    untold: list[_Untold] = connection.info.pop(_PENDING_EVENTS, [])
    owners: dict[str, EventOwner] = connection.info.pop(_OWNERS, {})
    if not untold:
        return
    if unknown := {one.place for one in untold} - owners.keys():
        owners.update(await _load_owners(connection, unknown))
    by_tenant: defaultdict[str, list[Mapping[str, object]]] = defaultdict(list)
    for one in untold:
        if (owner := owners.get(one.place)) is not None:
            by_tenant[owner.tenant].append(_row(owner, one))
    # In one order everywhere: two transactions of several tenants must not wait for each other.
    for tenant, rows in sorted(by_tenant.items()):
        if connection.dialect.name == "sqlite":
            await _insert_numbered(connection, tenant, rows)
        else:
            for first in range(0, len(rows), _MAX_ROWS):
                some = rows[first : first + _MAX_ROWS]
                values = {f"{name}_{place}": value for place, row in enumerate(some) for name, value in row.items()}
                await connection.execute(_numbering(len(some)), {"tenant": tenant, "count": len(some), **values})


async def _load_owners(connection: AsyncConnection, places: set[str]) -> Mapping[str, EventOwner]:
    """Load the owners of these tasks and runs, without those that do not exist."""
    of_runs = [place for place in places if "/" in place]
    of_tasks = [place for place in places if "/" not in place]
    found: dict[str, EventOwner] = {}
    if of_runs:
        opened = select(runs.c.run_id, runs.c.tenant, runs.c.task_id, runs.c.step_id).where(runs.c.run_id.in_(of_runs))
        found.update({row[0]: EventOwner(*row[1:]) for row in (await connection.execute(opened)).all()})
    if of_tasks:
        known = select(tasks.c.task_id, tasks.c.tenant).where(tasks.c.task_id.in_(of_tasks))
        found.update({row[0]: EventOwner(row[1], row[0]) for row in (await connection.execute(known)).all()})
    return found


_COLUMNS = tuple(column.name for column in task_events.columns if column.name not in {"tenant", "number"})
_MAX_ROWS = 50
"""Maximum rows per statement. A transaction rarely has more than three events."""

_NEXT_ON_SQLITE = sqlite.insert(event_heads).values(tenant=bindparam("tenant"), number=bindparam("count"))
_TAKE_ON_SQLITE = _NEXT_ON_SQLITE.on_conflict_do_update(
    index_elements=[event_heads.c.tenant], set_={"number": event_heads.c.number + _NEXT_ON_SQLITE.excluded.number}
).returning(event_heads.c.number)
_WRITE = insert(task_events)


async def _insert_numbered(connection: AsyncConnection, tenant: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Number and insert in two statements: SQLite has no INSERT inside a CTE."""
    taken = await connection.execute(_TAKE_ON_SQLITE, {"tenant": tenant, "count": len(rows)})
    first: int = taken.scalar_one() - len(rows) + 1
    numbered = [{"tenant": tenant, "number": number, **row} for number, row in enumerate(rows, first)]
    await connection.execute(_WRITE, numbered[0] if len(numbered) == 1 else numbered)


@cache
def _numbering(count: int) -> Insert:
    """Build the PostgreSQL statement that takes `count` numbers and inserts as many rows.

    Its parameters: `tenant`, `count`, and each column with the row's place behind it, as `kind_0`.
    """
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - not loaded where SQLite is used

    further = postgresql.insert(event_heads).values(tenant=bindparam("tenant"), number=bindparam("count"))
    head = (
        further.on_conflict_do_update(
            index_elements=[event_heads.c.tenant], set_={"number": event_heads.c.number + further.excluded.number}
        )
        .returning(event_heads.c.tenant, event_heads.c.number)
        .cte("head")
    )
    rows = [
        select(
            head.c.tenant,
            head.c.number - literal_column(str(count - 1 - place)),
            *(bindparam(f"{name}_{place}", type_=task_events.c[name].type) for name in _COLUMNS),
        )
        for place in range(count)
    ]
    return insert(task_events).from_select(["tenant", "number", *_COLUMNS], rows[0] if count == 1 else union_all(*rows))


def _row(owner: EventOwner, one: _Untold) -> Mapping[str, object]:
    told = one.event.model_dump()
    return {**told, "task_id": owner.task_id, "agent": told["agent"] or owner.agent, "at": one.at}
