"""Every Python process that this one starts: how it is called, what it sees, and how it is asked and ended.

A child that computes on foreign text is a `ConfinedProcess`: confined (`security.confinement`), asked one thing at a
time, and killed when an answer takes too long, whatever it does. Nothing that it says is trusted: its messages are
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
"""All that a child sees of this process's environment, with `LC_…` and the search path: the rest holds keys."""
FIXED_VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
"""One child computes on one core: numpy would take all of them from the others."""
_START_SECONDS = 120.0
"""What a child may take to start and to load, which counts for no request."""
MAX_ANSWER_BYTES = 256_000_000
"""Bytes."""
_CONFINED = "waystation.security.confinement"
CHILD_WORKING_DIRECTORY = "/"
"""Where children are: the folder that this process is in may be full of foreign files."""


class ChildProcessFailedError(Exception):
    """The child gave no answer, and has ended. The message says nothing of what it was asked."""


class ChildTimeoutError(ChildProcessFailedError):
    """It took too long, and was killed."""


class ChildExitedError(ChildProcessFailedError):
    """It ended by itself, or was ended."""


def build_module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours. Whatever folder this process is in, no file there becomes a module."""
    return [sys.executable, "-P", "-m", module, *arguments]


def build_child_environment() -> dict[str, str]:
    """What a child sees: no key, no setting."""
    seen = {name: value for name, value in os.environ.items() if name in INHERITED_VARIABLES or name.startswith("LC_")}
    return seen | FIXED_VARIABLES | build_python_path()


def build_python_path() -> dict[str, str]:
    """`PYTHONPATH` without entries that mean the working folder: an empty one does, and every relative one is in it."""
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    return {"PYTHONPATH": os.pathsep.join(entries)} if entries else {}


class ConfinedProcess:
    """A confined process that answers with the `answer` of a module. Asked by one thread at a time.

    On Linux it ends with the thread that started it, too.
    """

    def __init__(self, module: str, memory: int | None = None) -> None:
        """Start it, which takes a moment, and loads nothing yet. Raises OSError."""
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
        """Its process id."""
        return self._program.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._program.poll() is None

    def wait_for_confinement(self, seconds: float = _START_SECONDS) -> ConfinementStatus:
        """What is kept from it, once it has started. Raises ChildTimeoutError, ChildExitedError."""
        if self._held is None:
            self._held = ConfinementStatus(**json.loads(self._exchanged(None, (), seconds)))
        return self._held

    def send_request(self, request: bytes, seconds: float, files: Sequence[int] = ()) -> bytes:
        """Its answer. `files`: open files that it may read.

        Raises ChildTimeoutError after so many seconds, and ChildExitedError.
        """
        self.wait_for_confinement()
        return self._exchanged(request, files, seconds)

    def kill(self) -> None:
        """Kill it, whatever it does. Who waits for its answer is told that it is gone."""
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
            raise ValueError("longer than an answer may be")
        return self._received(length, until)

    def _received(self, count: int, until: float) -> bytes:
        """So many bytes, whether they come at once or trickle."""
        message = bytearray()
        while len(message) < count:
            self._limit(until)
            message += receive_chunk(self._line, count - len(message))
        return bytes(message)

    def _limit(self, until: float) -> None:
        """Raises TimeoutError: there is no time left."""
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._line.settimeout(left)
