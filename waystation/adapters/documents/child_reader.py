"""The parent's side of the child that reads binary kinds: a file that breaks its parser is one file less, no more."""

import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from subprocess import DEVNULL, Popen
from types import TracebackType
from typing import NamedTuple, Self

from pydantic import TypeAdapter

from waystation.adapters.documents.extract import Extracted, Refused, Unreadable

SECONDS_A_FILE = 60.0
_PROGRAM = "waystation.adapters.documents.reader_child"
_ANSWER = TypeAdapter[Extracted | Refused](Extracted | Refused)


class ParserBroke(Unreadable):
    """A file did to its parser what nobody foresaw."""


class _Child(NamedTuple):
    program: Popen[bytes]
    requests: Connection


class ChildReader:
    """Reads files one after another in one child, which is started for the first and again after each that broke it.

    A context manager: the child ends with it, and with this program however that ends.
    """

    def __init__(self, seconds_a_file: float = SECONDS_A_FILE) -> None:
        self._seconds = seconds_a_file
        self._child: _Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._end()

    @property
    def pid(self) -> int | None:
        """Of the child, while there is one."""
        return self._child.program.pid if self._child else None

    def read(self, path: Path, *, attachments: bool = True) -> Extracted:
        """The text of a file.

        Raises:
            ParserBroke: the parser crashed, hung or ran out of memory.
            Unreadable: the file is of no kind that can be read, damaged, or protected.
        """
        child = self._running()
        try:
            child.requests.send((os.fspath(path.absolute()), attachments))
            answer = _ANSWER.validate_json(child.requests.recv_bytes())
        except (EOFError, OSError):
            hung = self._end() == -signal.SIGALRM
            why = f"took longer than {self._seconds:g} s" if hung else "its parser crashed; the file may be damaged"
            raise ParserBroke(f"could not be read ({why})") from None
        if isinstance(answer, Refused):
            raise Unreadable(answer.reason)
        return answer

    def _running(self) -> _Child:
        if self._child is not None and self._child.program.poll() is None:
            return self._child
        self._end()
        ours, theirs = socketpair()
        # -P: a folder of documents may be the working directory, and its files must not become modules.
        arguments = [str(theirs.fileno()), str(os.getpid()), str(self._seconds)]
        command = [sys.executable, "-P", "-m", _PROGRAM, *arguments]
        with theirs:
            program = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, pass_fds=[theirs.fileno()])
        self._child = _Child(program, Connection(ours.detach()))
        return self._child

    def _end(self) -> int | None:
        """End the child, and say how it ended; None: there was none."""
        if self._child is None:
            return None
        child, self._child = self._child, None
        child.requests.close()
        # Its end of the connection is gone: it ends by itself if it is idle, has ended if the connection broke first.
        child.program.kill()
        return child.program.wait()
