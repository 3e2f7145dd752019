"""A hook that is a program: told on its standard input, it answers by its exit code alone."""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from waystation.domain.compaction.hook import CompactionEvent
from waystation.domain.errors import BadInput, HookFailed

PATIENCE_S = 30.0
"""From its start to its end; then it is ended, and what it started with it."""
ENVIRONMENT = ("PATH", "HOME", "LANG")
"""All that a program sees of the worker's environment: the rest holds keys."""


class CommandHook:
    """A `CompactionHook`. What it prints goes nowhere: it may be anything, and would be told further."""

    def __init__(self, setting: str, arguments: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        """`setting`: its name, for messages; `arguments`: the program and what it gets, as they are.

        Raises BadInput: there is no such program.
        """
        program = shutil.which(arguments[0])
        if program is None:
            raise BadInput(
                "its program is not there, or may not be run: give a program on the worker's PATH, or its full path. "
                "No shell reads the line, so that ~, $NAME, pipes and NAME=value mean nothing in it"
            )
        self._arguments = (program, *arguments[1:])
        self._name = f"{setting} ({Path(program).name})"
        self._patience_s = patience_s

    async def call(self, event: CompactionEvent) -> None:
        """See `CompactionHook`."""
        process = await self._started()
        try:
            async with asyncio.timeout(self._patience_s):
                await process.communicate(event.body.encode())
        except TimeoutError:
            raise HookFailed(f"{self._name} did not end within {self._patience_s:g} s") from None
        finally:
            await _end(process)
        if process.returncode:
            code = process.returncode
            how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
            raise HookFailed(f"{self._name} {how}")

    async def _started(self) -> Process:
        seen = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        try:
            return await asyncio.create_subprocess_exec(
                *self._arguments, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, env=seen, start_new_session=True
            )
        except OSError as error:
            raise HookFailed(f"{self._name} could not be started ({type(error).__name__})") from None


async def _end(process: Process) -> None:
    """With everything that it started in its process group, unless it has ended by itself."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
