"""The parent's side of the table engine: one child for each query, so that none outlives or crashes the caller."""

import asyncio
from collections.abc import Sequence

from pydantic import ValidationError

from waystation.documents.tables import QueryResult, Table, TableText
from waystation.kernel.errors import TableQueryError
from waystation.kernel.value import Value
from waystation.security.confined_process import ChildProcessFailedError, ChildTimeoutError, ConfinedProcess

ENGINE_MEMORY_BYTES = 2_000_000_000
"""Maximum address space in bytes: DuckDB's own, and the cells of the largest table before they are loaded."""


class EngineRequest(Value):
    """A text to read as a table, or one query over tables."""

    text: TableText | None = None
    sql: str = ""
    tables: tuple[Table, ...] = ()
    max_rows: int = 0


class EngineResponse(Value):
    """The table or the result, or why there is none."""

    table: Table | None = None
    rows: QueryResult | None = None
    rejection: str = ""


class TableEngineError(Exception):
    """A text is not a table, or a query cannot be run. The message says why."""


ENGINE_TIMEOUT_S = 30.0
"""Seconds from the child's start, with the engine loaded, to its answer."""
_AT_ONCE = 2
"""Maximum concurrent children; further queries wait. Each may use two gigabytes."""
_PROGRAM = "waystation.documents.table_engine.engine_child"


class DuckDbTableEngine:
    """Implements `TableEngine`. The child gets tables through a pipe: no document is written to a file."""

    def __init__(self, seconds: float = ENGINE_TIMEOUT_S, at_once: int = _AT_ONCE) -> None:
        self._seconds = seconds
        self._free = asyncio.Semaphore(at_once)

    async def read(self, text: TableText) -> Table:
        """See `TableEngine`."""
        answered = await self._asked(EngineRequest(text=text.replace(text=_encodable(text.text))))
        if answered.table is None:
            raise TableQueryError(answered.rejection)
        return answered.table

    async def query(self, sql: str, tables: Sequence[Table], most_rows: int) -> QueryResult:
        """See `TableEngine`."""
        answered = await self._asked(EngineRequest(sql=_encodable(sql), tables=tuple(tables), max_rows=most_rows))
        if answered.rows is None:
            raise TableQueryError(answered.rejection)
        return answered.rows

    async def _asked(self, request: EngineRequest) -> EngineResponse:
        async with self._free:
            return await self._answered((await asyncio.to_thread(request.model_dump_json)).encode())

    async def _answered(self, asked: bytes) -> EngineResponse:
        # Started by the event loop's thread, with which it ends.
        child = self._started()
        try:
            said = await asyncio.to_thread(child.send_request, asked, self._seconds)
            return await asyncio.to_thread(EngineResponse.model_validate_json, said)
        except ChildTimeoutError:
            raise TableQueryError(
                f"The query took longer than {self._seconds:g} s. Query less data at a time, and make sure that every "
                "recursion ends."
            ) from None
        except (ChildProcessFailedError, ValidationError):
            raise TableQueryError(
                "The table engine failed at this query. Rewrite the query, or go on without its result."
            ) from None
        finally:
            child.kill()

    def _started(self) -> ConfinedProcess:
        try:
            return ConfinedProcess(_PROGRAM, ENGINE_MEMORY_BYTES)
        except OSError as error:
            raise TableQueryError(
                f"The table engine could not be started ({type(error).__name__}). Try again later, or go on "
                "without its result."
            ) from None


def _encodable(text: str) -> str:
    """Replace lone surrogates, which no encoding accepts."""
    return text.encode(errors="replace").decode()
