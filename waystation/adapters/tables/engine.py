"""The parent's side of the table engine: one child a query, so that none outlives, slows or breaks what asked."""

import asyncio
from collections.abc import Sequence

from pydantic import ValidationError

from waystation.adapters.tables.asked import MEMORY, Answered, Asked
from waystation.children import Child, ChildFailed, ChildHung
from waystation.domain.errors import QueryRefused
from waystation.ports.tables import Rows, TableText

SECONDS = 30.0
"""From the child's start, with the engine loaded, to its answer."""
AT_ONCE = 2
"""Children; further queries wait. Each may take two gigabytes."""
_PROGRAM = "waystation.adapters.tables.engine_child"


class DuckDbTables:
    """A `TableEngine`. Tables are given to the child through a pipe: no document is written to a file."""

    def __init__(self, seconds: float = SECONDS, at_once: int = AT_ONCE) -> None:
        self._seconds = seconds
        self._free = asyncio.Semaphore(at_once)

    async def query(self, sql: str, tables: Sequence[TableText], most_rows: int) -> Rows:
        """See `TableEngine`."""
        asked = Asked(
            sql=_encodable(sql),
            tables=tuple([table.model_copy(update={"text": _encodable(table.text)}) for table in tables]),
            most_rows=most_rows,
        )
        async with self._free:
            answered = await self._answered(asked.model_dump_json().encode())
        if answered.rows is None:
            raise QueryRefused(answered.refused)
        return answered.rows

    async def _answered(self, asked: bytes) -> Answered:
        # Started by the thread of the event loop, with which it ends.
        child = self._started()
        try:
            return Answered.model_validate_json(await asyncio.to_thread(child.ask, asked, self._seconds))
        except ChildHung:
            raise QueryRefused(
                f"This took longer than {self._seconds:g} s. Query less at once, and end every recursion."
            ) from None
        except (ChildFailed, ValidationError):
            raise QueryRefused(
                "The engine broke down on this. Ask for it in another way, or go on without it."
            ) from None
        finally:
            child.end()

    def _started(self) -> Child:
        try:
            return Child(_PROGRAM, MEMORY)
        except OSError as error:
            raise QueryRefused(
                f"The engine could not be started ({type(error).__name__}). Try again later, or go on without it."
            ) from None


def _encodable(text: str) -> str:
    """Without lone halves of surrogate pairs, which no encoding takes."""
    return text.encode(errors="replace").decode()
