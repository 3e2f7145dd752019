"""Starts, calls and ends every child Python process of this one.

A child that processes untrusted text is a `ConfinedProcess`: it is confined (`waystation.security.confinement`), gets
one request at a time, and is killed if an answer takes too long. Nothing that it sends is trusted: its messages are
bytes of bounded length, for the caller to validate.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Lock

from waystation.security.confinement import (
    LENGTH_HEADER,
    ConfinementStatus,
    ResourceLimits,
    receive_chunk,
    send_with_files,
)

INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""All that a child sees of this process's environment, besides `LC_…` and the search path: the rest holds keys."""
FIXED_VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
"""A child computes on one core; numpy would otherwise take all of them."""
_START_SECONDS = 120.0
"""Maximum time a child may take to start and load; it counts towards no request."""
MAX_ANSWER_BYTES = 256_000_000
"""Maximum size of one answer, in bytes."""
_CONFINED = "waystation.security.confinement"
CHILD_WORKING_DIRECTORY = "/"
"""Working directory of children: this process's own may be full of untrusted files."""


class ChildProcessFailedError(Exception):
    """The child gave no answer and has ended. The message says nothing about the request."""


class ChildTimeoutError(ChildProcessFailedError):
    """The child took too long and was killed."""


class ChildExitedError(ChildProcessFailedError):
    """The child exited or was killed."""


def build_module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of our modules. No file in the working directory can be imported as a module."""
    return [sys.executable, "-P", "-m", module, *arguments]


def build_child_environment() -> dict[str, str]:
    """Return the environment of a child, without keys and settings."""
    seen = {name: value for name, value in os.environ.items() if name in INHERITED_VARIABLES or name.startswith("LC_")}
    return seen | FIXED_VARIABLES | build_safe_python_path()


def build_safe_python_path() -> dict[str, str]:
    """Return `PYTHONPATH` without entries that depend on the working directory: empty and relative ones."""
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    return {"PYTHONPATH": os.pathsep.join(entries)} if entries else {}


class ConfinedProcess:
    """A confined process that answers requests with the `answer` function of a module. One thread may use it at a time.

    On Linux it also ends with the thread that started it.
    """

    def __init__(self, module: str, memory: int | None = None) -> None:
        """Start the process, which takes a moment; nothing is loaded yet.

        Args:
            module: name of the module that answers.
            memory: limit of the address space in bytes; None for no limit.

        Raises:
            OSError: the process cannot be started.
        """
        self._line, theirs = socket.socketpair()
        bounds = json.dumps(asdict(ResourceLimits(os.getpid(), memory)))
        command = build_module_command(_CONFINED, module, str(theirs.fileno()), bounds)
        with theirs:
            try:
                self._program = Popen(
                    command,
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    cwd=CHILD_WORKING_DIRECTORY,
                    env=build_child_environment(),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError:
                self._line.close()
                raise
        self._ending = Lock()
        self._held: ConfinementStatus | None = None

    @property
    def pid(self) -> int:
        """Process id."""
        return self._program.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._program.poll() is None

    def wait_for_confinement(self, seconds: float = _START_SECONDS) -> ConfinementStatus:
        """Wait until the process has started, and return what is kept from it.

        Raises:
            ChildTimeoutError: it took longer than `seconds`.
            ChildExitedError: it has ended.
        """
        if self._held is None:
            self._held = ConfinementStatus(**json.loads(self._exchanged(None, (), seconds)))
        return self._held

    def send_request(self, request: bytes, seconds: float, files: Sequence[int] = ()) -> bytes:
        """Send a request and return the answer. `files` are open files that the child may read.

        Raises:
            ChildTimeoutError: the answer took longer than `seconds`.
            ChildExitedError: the process has ended.
        """
        self.wait_for_confinement()
        return self._exchanged(request, files, seconds)

    def kill(self) -> None:
        """Kill the process, whatever it is doing. A thread that waits for its answer gets ChildExitedError."""
        with self._ending:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)
            if self._program.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._program.pid, signal.SIGKILL)
                self._program.wait()
            self._line.close()

    def _exchanged(self, request: bytes | None, files: Sequence[int], seconds: float) -> bytes:
        until = time.monotonic() + seconds
        try:
            if request is not None:
                self._limit(until)
                send_with_files(self._line, request, files)
            return self._message(until)
        except TimeoutError:
            self.kill()
            raise ChildTimeoutError(f"a child process took longer than {seconds:g} s") from None
        except (EOFError, OSError, ValueError):
            self.kill()
            raise ChildExitedError("a child process ended before it had answered") from None

    def _message(self, until: float) -> bytes:
        (length,) = LENGTH_HEADER.unpack(self._received(LENGTH_HEADER.size, until))
        if length > MAX_ANSWER_BYTES:
            raise ValueError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        return self._received(length, until)

    def _received(self, count: int, until: float) -> bytes:
        """Read exactly `count` bytes, whether they arrive at once or in pieces."""
        message = bytearray()
        while len(message) < count:
            self._limit(until)
            message += receive_chunk(self._line, count - len(message))
        return bytes(message)

    def _limit(self, until: float) -> None:
        """Limit the next read to the remaining time.

        Raises:
            TimeoutError: no time is left.
        """
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._line.settimeout(left)
