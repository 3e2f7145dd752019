"""SQL repository of the rate limits that all workers of a store share."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Float, and_, cast, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.models.ports import LimitScope, ScopedLimitState
from waystation.models.rate_limits import LeaseGrant, LeaseRequest, LimitState, grant_lease
from waystation.store.engine import SqlRepository, insert_if_absent, read_transaction, write_transaction
from waystation.store.schema import rate_limits


class SqlLimitRepository(SqlRepository):
    """`LimitRepository` in SQL: one row for each endpoint, account and model."""

    @write_transaction
    async def acquire_lease(self, connection: AsyncConnection, scope: LimitScope, request: LeaseRequest) -> LeaseGrant:
        """Apply what a worker reports and grant it a lease."""
        written = select(rate_limits.c.state).where(_is_of(scope)).with_for_update()
        state = (await connection.execute(written)).scalar_one_or_none()
        if state is None:
            await insert_if_absent(connection, rate_limits, {**_key(scope), "state": LimitState().model_dump_json()})
            state = (await connection.execute(written)).scalar_one()
        # Read while the row is locked, so that no other worker has written a later time.
        now = await self._read_clock(connection)
        changed, grant = grant_lease(LimitState.model_validate_json(state), request, now)
        await connection.execute(
            update(rate_limits).where(_is_of(scope)).values(state=changed.model_dump_json(exclude_defaults=True))
        )
        return grant

    @read_transaction
    async def list_limit_states(self, connection: AsyncConnection) -> tuple[ScopedLimitState, ...]:
        """Return the states of all limiters."""
        now = await self._read_clock(connection)
        rows = (await connection.execute(select(rate_limits).order_by(*rate_limits.primary_key))).all()
        return tuple(
            ScopedLimitState(
                LimitScope(row.endpoint, row.account, row.model), LimitState.model_validate_json(row.state), now
            )
            for row in rows
        )

    async def _read_clock(self, connection: AsyncConnection) -> float:
        """Return the time in seconds: PostgreSQL's own, which all workers share, or that of the one machine whose
        processes share an SQLite file.
        """
        if connection.dialect.name == "sqlite":
            return self._clock().timestamp()
        moment = select(cast(func.extract("epoch", func.clock_timestamp()), Float))
        return (await connection.execute(moment)).scalar_one()


def _key(scope: LimitScope) -> Mapping[str, str]:
    return {"endpoint": scope.endpoint, "account": scope.account, "model": scope.model}


def _is_of(scope: LimitScope) -> ColumnElement[bool]:
    return and_(*(rate_limits.c[name] == value for name, value in _key(scope).items()))
