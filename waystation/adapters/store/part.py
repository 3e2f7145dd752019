"""How a method of the store becomes one transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import ColumnElement, FromClause, and_, true
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import Database, to_its_end
from waystation.adapters.store.errors import is_conflict, translated
from waystation.domain.errors import WrongStore
from waystation.domain.ownership import Installation, OfSession, OfTask, Reader
from waystation.ports import Clock

CONFLICT_PAUSES_S = (0.01, 0.1, 0.5)
"""Before a transaction is repeated that PostgreSQL undid because of another one."""


class StorePart:
    """One port's share of the store."""

    def __init__(self, database: Database, clock: Clock, store_id: str) -> None:
        self._clock, self._store_id = clock, store_id
        self.database = database

    def require_own(self, store_id: str) -> None:
        """Raise WrongStore unless this is the store's own id."""
        if store_id != self._store_id:
            raise WrongStore(store_id, self._store_id)


def owned(table: FromClause, reader: Reader) -> ColumnElement[bool]:
    """Which rows of a table that says whose they are (`tasks`, `runs`, `text_owners`) this reader may see."""
    match reader:
        case Installation():
            return true()
        case OfTask():
            own = (table.c.tenant == reader.tenant, table.c.session == reader.session)
            return and_(*own, table.c.task_id == reader.task_id)
        case OfSession():
            return and_(table.c.tenant == reader.tenant, table.c.session == reader.session)
        case _:
            return table.c.tenant == reader.tenant


P = ParamSpec("P")
T = TypeVar("T")
Part = TypeVar("Part", bound=StorePart)

# `Any` stands in the places of a coroutine that an `async def` leaves open; pyright puts it there itself.
Method = Callable[Concatenate[Part, P], "CoroutineType[Any, Any, T]"]


def reading(method: Callable[Concatenate[Part, AsyncConnection, P], Awaitable[T]]) -> "Method[Part, P, T]":
    """The method gets a connection that sees one snapshot."""

    @wraps(method)
    async def read(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def transaction() -> T:
            async with self.database.read() as connection:
                return await method(self, connection, *args, **kwargs)

        return await to_its_end(_carried_out(transaction))

    return read


def writing(method: Callable[Concatenate[Part, AsyncConnection, P], Awaitable[T]]) -> "Method[Part, P, T]":
    """The method gets a connection whose changes are committed when it returns, and undone when it raises.

    It may be called more than once, when another transaction made the database undo the first.
    """

    @wraps(method)
    async def write(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def transaction() -> T:
            async with self.database.write() as connection:
                return await method(self, connection, *args, **kwargs)

        return await to_its_end(_carried_out(transaction))

    return write


async def _carried_out(transaction: Callable[[], Coroutine[object, object, T]]) -> T:
    with translated():
        for pause in CONFLICT_PAUSES_S:
            try:
                return await transaction()
            except DBAPIError as error:
                if not is_conflict(error):
                    raise
            await asyncio.sleep(pause)
        return await transaction()
