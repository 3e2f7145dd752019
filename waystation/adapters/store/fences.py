"""Who may write to an agent run: the newest fence, checked in the same transaction as the write.

The check locks the run's row. SQLite has one writer anyway; on PostgreSQL this row is what the writers of a run, and
those who take it over, wait for.
"""

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.schema import runs
from waystation.domain.errors import FenceLost, StoreError, VersionConflict
from waystation.domain.turn import Fence


async def take(connection: AsyncConnection, run_id: str) -> Fence:
    """The next fence of the run. Raises StoreError for a run that was never opened."""
    taken = update(runs).where(runs.c.run_id == run_id).values(fence=runs.c.fence + 1).returning(runs.c.fence)
    number: int | None = (await connection.execute(taken)).scalar_one_or_none()
    if number is None:
        raise StoreError(f"agent run {run_id} was never opened in this store")
    return Fence(run_id=run_id, number=number)


async def hold(connection: AsyncConnection, fence: Fence) -> int:
    """The run's version. Until the transaction ends nobody else can take the run over. Raises FenceLost."""
    held = select(runs.c.version).where(runs.c.run_id == fence.run_id, runs.c.fence == fence.number)
    version: int | None = (await connection.execute(held.with_for_update())).scalar_one_or_none()
    if version is None:
        raise FenceLost(fence.run_id, fence.number)
    return version


async def advance(connection: AsyncConnection, fence: Fence, version: int) -> None:
    """Compare-and-set: one version on, if the run still has `version`. Raises FenceLost, VersionConflict."""
    unchanged = (runs.c.run_id == fence.run_id, runs.c.fence == fence.number, runs.c.version == version)
    changed = await connection.execute(update(runs).where(*unchanged).values(version=version + 1))
    if changed.rowcount != 1:
        raise VersionConflict(fence.run_id, version, await hold(connection, fence))
