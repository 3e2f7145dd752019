"""How a method of the store becomes one transaction."""

from collections.abc import Awaitable, Callable
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import Database, to_its_end
from waystation.ports import Clock


class StorePart:
    """One port's share of the store."""

    def __init__(self, database: Database, clock: Clock, store_id: str) -> None:
        self._clock, self._store_id = clock, store_id
        self.database = database


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

        return await to_its_end(transaction())

    return read


def writing(method: Callable[Concatenate[Part, AsyncConnection, P], Awaitable[T]]) -> "Method[Part, P, T]":
    """The method gets a connection whose changes are committed when it returns, and undone when it raises."""

    @wraps(method)
    async def write(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def transaction() -> T:
            async with self.database.write() as connection:
                return await method(self, connection, *args, **kwargs)

        return await to_its_end(transaction())

    return write
