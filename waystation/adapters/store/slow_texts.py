"""Texts that took too long to redact: how often, under which rules, and nothing of what they say."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import Database, add_missing
from waystation.adapters.store.part import StorePart, reading, writing
from waystation.adapters.store.schema import slow_texts
from waystation.ports import Clock

MOST_KNOWN = 10_000
"""Of very many, those that were slow last."""


async def drop_slow(connection: AsyncConnection, tenant: str) -> None:
    """Nothing of the tenant's slow texts stays: each is tried again, should it come again."""
    await connection.execute(delete(slow_texts).where(slow_texts.c.tenant == tenant))


class SqlSlowTexts(StorePart):
    """The port `SlowTexts`."""

    def __init__(self, database: Database, clock: Clock, store_id: str, rules: str) -> None:
        super().__init__(database, clock, store_id)
        self._rules = rules

    @reading
    async def slow_texts(self, connection: AsyncConnection) -> Mapping[str, int]:
        """How often each took too long, by fingerprint."""
        known = select(slow_texts.c.fingerprint, slow_texts.c.times).where(slow_texts.c.rules == self._rules)
        newest = known.order_by(slow_texts.c.last_at.desc()).limit(MOST_KNOWN)
        return {row.fingerprint: row.times for row in await connection.execute(newest)}

    @writing
    async def took_too_long(self, connection: AsyncConnection, tenant: str, fingerprint: str) -> int:
        """Count one time more; how often it was by now."""
        row = {"fingerprint": fingerprint, "rules": self._rules, "tenant": tenant, "times": 0, "last_at": self._clock()}
        await add_missing(connection, slow_texts, [row])
        once_more = update(slow_texts).where(*self._this(fingerprint))
        counted = once_more.values(times=slow_texts.c.times + 1, last_at=self._clock()).returning(slow_texts.c.times)
        return (await connection.execute(counted)).scalar_one()

    @writing
    async def try_again(self, connection: AsyncConnection, tenant: str, fingerprint: str) -> None:
        """What was counted of this text counts no more."""
        this = (*self._this(fingerprint), slow_texts.c.tenant == tenant)
        await connection.execute(delete(slow_texts).where(*this))

    def _this(self, fingerprint: str) -> tuple[ColumnElement[bool], ...]:
        return slow_texts.c.fingerprint == fingerprint, slow_texts.c.rules == self._rules
