"""The parent's side of the table engine: one child a query, so that none outlives, slows or breaks what asked."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress

from pydantic import ValidationError

from waystation.adapters.tables.asked import Answered, Asked
from waystation.domain.errors import QueryRefused
from waystation.ports.tables import Rows, Table, TableText

SECONDS = 30.0
"""From the child's start to its answer."""
AT_ONCE = 2
"""Children; further queries wait. Each may take two gigabytes."""
ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
"""All that a child sees of the worker's environment: the rest holds keys."""
_PROGRAM = "waystation.adapters.tables.engine_child"


class DuckDbTables:
    """A `TableEngine`. Tables are given to the child through a pipe: no document is written to a file."""

    def __init__(self, seconds: float = SECONDS, at_once: int = AT_ONCE) -> None:
        self._seconds = seconds
        self._free = asyncio.Semaphore(at_once)

    async def read(self, text: TableText) -> Table:
        """See `TableEngine`."""
        answered = await self._asked(Asked(text=text.model_copy(update={"text": _encodable(text.text)})))
        if answered.table is None:
            raise QueryRefused(answered.refused)
        return answered.table

    async def query(self, sql: str, tables: Sequence[Table], most_rows: int) -> Rows:
        """See `TableEngine`."""
        answered = await self._asked(Asked(sql=_encodable(sql), tables=tuple(tables), most_rows=most_rows))
        if answered.rows is None:
            raise QueryRefused(answered.refused)
        return answered.rows

    async def _asked(self, asked: Asked) -> Answered:
        async with self._free:
            return await self._answered((await asyncio.to_thread(asked.model_dump_json)).encode())

    async def _answered(self, asked: bytes) -> Answered:
        child = await self._started()
        try:
            said, _ = await child.communicate(asked)
            return await asyncio.to_thread(Answered.model_validate_json, said)
        except ValidationError:
            hung = await child.wait() == -signal.SIGALRM
            raise QueryRefused(
                f"This took longer than {self._seconds:g} s. Query less at once, and end every recursion."
                if hung
                else "The engine broke down on this. Ask for it in another way, or go on without it."
            ) from None
        finally:
            await _end(child)

    async def _started(self) -> Process:
        seen = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        # -P: a folder of documents may be the working directory, and its files must not become modules.
        command = [sys.executable, "-P", "-m", _PROGRAM, str(self._seconds)]
        try:
            return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=seen)
        except OSError as error:
            raise QueryRefused(
                f"The engine could not be started ({type(error).__name__}). Try again later, or go on without it."
            ) from None


async def _end(child: Process) -> None:
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def _encodable(text: str) -> str:
    """Without lone halves of surrogate pairs, which no encoding takes."""
    return text.encode(errors="replace").decode()
