"""Supervises one tool server: `python supervisor.py MOST_BYTES LEFT_OUT PROGRAM ARGUMENT…`, between server and client.
LEFT_OUT are comma-separated names of variables that are hidden from the server.

Ends the server, with everything that it started, when the process that started this program is gone for any reason. It
passes no message longer than MOST_BYTES: the call is answered by an error, and the message never gets into a worker's
memory. A separate program that only uses the standard library.

On Linux everything that the server starts stays below this process, even in another session or after its parent has
ended, so all of it is found and ended. Elsewhere, processes that have left the server's process group are not found.
"""

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import IO, NoReturn

CHUNK = 65_536
END_BYTES = 1_024
"""Bytes kept of either end of a message that is too long: its id is in one of them."""
GRACE_S = 1.0
"""Seconds that a server has to end by itself."""
SEARCH_S = 5.0
"""Maximum seconds of looking for processes that start others while they are being ended."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TOO_LONG_ERROR_CODE = -32_050
"""Error code for a message that is too long, from the range that servers may define."""
_ID_FIRST = re.compile(rb'\A\s*+\{\s*+"jsonrpc"\s*+:\s*+"2\.0"\s*+,\s*+"id"\s*+:\s*+(\d{1,20}+)\s*+,')
_ID_LAST = re.compile(rb',\s*"id"\s*:\s*(\d{1,20})\s*\}\s*$')


class BoundedLine:
    """A message as it arrives: whole, or its two ends."""

    def __init__(self, maximum: int) -> None:
        self._most, self.is_too_long = maximum, False
        self.held = bytearray()

    def add(self, part: bytes) -> None:
        """Keep what there is room for."""
        self.held += part
        if self.is_too_long or len(self.held) > self._most:
            self.is_too_long = True
            del self.held[END_BYTES:-END_BYTES]

    def to_message(self) -> bytes:
        """Return the bytes to pass on.

        Raises:
            ValueError: the message is too long and does not say which call it answers.
        """
        if not self.is_too_long:
            return bytes(self.held) + b"\n"
        found = _ID_FIRST.match(self.held) or _ID_LAST.search(self.held)
        if found is None:
            raise ValueError("the message does not say which call it answers")
        error = b'{"code":%d,"message":"too long"}' % TOO_LONG_ERROR_CODE
        return b'{"jsonrpc":"2.0","id":%s,"error":%s}\n' % (found[1], error)


def forward_client_requests(into: IO[bytes]) -> None:
    """Forward everything from the client unchanged."""
    try:
        while chunk := os.read(0, CHUNK):
            into.write(chunk)
            into.flush()
        into.close()
    except OSError:  # the server has ended, which the other thread notices
        return


def forward_server_messages(source: IO[bytes], maximum: int) -> None:
    """Forward everything from the server, line by line, until it ends."""
    line = BoundedLine(maximum)
    while chunk := os.read(source.fileno(), CHUNK):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            line.add(part)
            sys.stdout.buffer.write(line.to_message())
            line = BoundedLine(maximum)
        sys.stdout.buffer.flush()
        line.add(rest)


def exit_when_client_is_gone() -> None:
    """Wait until the client is gone. Detected without reading: a server may be stuck and read nothing."""
    speaker = select.poll()
    speaker.register(0, 0)
    speaker.poll()
    time.sleep(GRACE_S)
    kill_server_and_exit()


def list_descendant_pids(root: int) -> list[int]:
    """Return the ids of all running processes below this one, parents first."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(int(parent), []).append(int(name) if state not in b"ZX" else -int(name))
    found, place = [root], 0
    while place < len(found):
        found += children.get(abs(found[place]), [])
        place += 1
    return [pid for pid in found[1:] if pid > 0]


def kill_server_and_exit() -> NoReturn:
    """End everything that the server has started, then this program."""
    until = time.monotonic() + SEARCH_S
    while (
        running := list_descendant_pids(os.getpid()) if sys.platform == "linux" else []
    ) and time.monotonic() < until:
        for pid in running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    if SERVER_PIDS:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(SERVER_PIDS[0], signal.SIGKILL)
    os._exit(0)


def handle_termination_signal(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001  what handlers are called with
    """End on a signal."""
    kill_server_and_exit()


def set_parent_death_signal() -> None:
    """Make the server end with this program; runs in the child before it becomes the server."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


SERVER_PIDS: list[int] = []
"""Id of the server's process and process group, once it runs."""


def supervise_server(maximum: int, left_out: str, command: list[str]) -> None:
    """Run the server to its end. It has its own process group, so that signals it sends to that do not reach us."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    hidden = left_out.split(",")
    server = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name not in hidden},
        start_new_session=True,
        preexec_fn=set_parent_death_signal,  # noqa: PLW1509  there are no threads yet
    )
    SERVER_PIDS.append(server.pid)
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, handle_termination_signal)
    assert server.stdin is not None
    assert server.stdout is not None
    threading.Thread(target=exit_when_client_is_gone, daemon=True).start()
    threading.Thread(target=forward_client_requests, args=(server.stdin,), daemon=True).start()
    try:
        forward_server_messages(server.stdout, maximum)
    except (OSError, ValueError):  # no one listens any more, or a message was too long to be answered
        pass
    finally:
        kill_server_and_exit()


if __name__ == "__main__":
    supervise_server(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
