"""Numbers events at the very end of the transaction that they report.

Numbers of concurrent transactions must not become visible out of order: a reader that has seen 8 would never read 7. So
a tenant's newest number is a row that the transaction locks last and holds until it is committed: its holder waits for
nothing else, and readers see no number before all smaller ones.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.store.schema import event_heads, runs, task_events, tasks
from waystation.tasks.events import UnnumberedEvent

_UNTOLD = "waystation_untold"
"""Key of the events queued by the connection's current transaction, in order."""


class _Untold(NamedTuple):
    place: str
    """ID of a task or of an agent run."""
    happening: UnnumberedEvent
    at: datetime


class _Whose(NamedTuple):
    tenant: str
    task_id: str
    agent: str


def queue_event(connection: AsyncConnection, place: str, happening: UnnumberedEvent, at: datetime) -> None:
    """Queue an event of this task or agent run for the commit; it is dropped if the transaction is rolled back."""
    connection.info.setdefault(_UNTOLD, []).append(_Untold(place, happening, at))


def discard_queued_events(connection: AsyncConnection) -> None:
    """Discard events of an earlier transaction when a connection returns from the pool."""
    connection.info.pop(_UNTOLD, None)


async def insert_queued_events(connection: AsyncConnection) -> None:
    """Number and insert the transaction's events. Must be its last statement; see the module's docstring."""
    untold: list[_Untold] = connection.info.pop(_UNTOLD, [])
    if not untold:
        return
    whose = await _owners(connection, {one.place for one in untold})
    by_tenant: defaultdict[str, list[_Untold]] = defaultdict(list)
    for one in untold:
        if one.place in whose:
            by_tenant[whose[one.place].tenant].append(one)
    # In the same order everywhere: transactions of several tenants must not wait for each other.
    for tenant, own in sorted(by_tenant.items()):
        first = await _newest(connection, tenant, len(own)) - len(own) + 1
        rows = [_row(whose[one.place], one, first + after) for after, one in enumerate(own)]
        await connection.execute(insert(task_events), rows)


async def _owners(connection: AsyncConnection, places: set[str]) -> Mapping[str, _Whose]:
    """Return the owners of these tasks and runs. Events of missing ones are dropped."""
    of_runs = [place for place in places if "/" in place]
    of_tasks = [place for place in places if "/" not in place]
    found: dict[str, _Whose] = {}
    if of_runs:
        opened = select(runs.c.run_id, runs.c.tenant, runs.c.task_id, runs.c.step_id).where(runs.c.run_id.in_(of_runs))
        found.update({row[0]: _Whose(*row[1:]) for row in (await connection.execute(opened)).all()})
    if of_tasks:
        known = select(tasks.c.task_id, tasks.c.tenant).where(tasks.c.task_id.in_(of_tasks))
        found.update({row[0]: _Whose(row[1], row[0], "") for row in (await connection.execute(known)).all()})
    return found


async def _newest(connection: AsyncConnection, tenant: str, count: int) -> int:
    """Advance the tenant's newest number by `count` and return it; its row stays locked until the transaction ends."""
    further = update(event_heads).where(event_heads.c.tenant == tenant)
    further = further.values(number=event_heads.c.number + count)
    taken = further.returning(event_heads.c.number)
    newest: int | None = (await connection.execute(taken)).scalar_one_or_none()
    if newest is not None:
        return newest
    await connection.execute(_insert(connection).values(tenant=tenant, number=0))
    return int((await connection.execute(taken)).scalar_one())


def _insert(connection: AsyncConnection) -> sqlite.Insert | postgresql.Insert:
    if connection.dialect.name == "sqlite":
        return sqlite.insert(event_heads).on_conflict_do_nothing()
    return postgresql.insert(event_heads).on_conflict_do_nothing()


def _row(whose: _Whose, one: _Untold, place: int) -> Mapping[str, object]:
    told = one.happening.model_dump()
    return {
        **told,
        "tenant": whose.tenant,
        "number": place,
        "task_id": whose.task_id,
        "agent": told["agent"] or whose.agent,
        "at": one.at,
    }
