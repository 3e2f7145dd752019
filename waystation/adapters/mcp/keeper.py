"""Keeps one tool server: `python keeper.py MOST_BYTES PROGRAM ARGUMENT…`, between the server and who speaks to it.

Ends the server, with all that it started, when whoever started this program is gone, however that ended; and lets no
message through that is longer than MOST_BYTES: the call is answered by an error, and the message is never in the
memory of a worker. A program of its own, of the standard library alone, which runs in a process group of its own.
"""

import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from typing import IO

CHUNK = 65_536
END_BYTES = 1_024
"""Kept of either end of a message that is too long: its id stands in one of them."""
GRACE_S = 1.0
"""A server that is told to end has so long."""
TOO_LONG = -32_050
"""Code of the error that answers for a message that is too long; of those that servers may define."""
_ID_FIRST = re.compile(rb'\A\s*+\{\s*+"jsonrpc"\s*+:\s*+"2\.0"\s*+,\s*+"id"\s*+:\s*+(\d++)\s*+,')
_ID_LAST = re.compile(rb',\s*"id"\s*:\s*(\d+)\s*\}\s*$')


class Line:
    """A message as it arrives: whole, or its two ends."""

    def __init__(self, most: int) -> None:
        self._most, self.is_too_long = most, False
        self.held = bytearray()

    def add(self, part: bytes) -> None:
        """Keep what there is room for."""
        self.held += part
        if self.is_too_long or len(self.held) > self._most:
            self.is_too_long = True
            del self.held[END_BYTES:-END_BYTES]

    def message(self) -> bytes:
        """What is let through. Raises ValueError: it is too long, and does not say which call it answers."""
        if not self.is_too_long:
            return bytes(self.held) + b"\n"
        found = _ID_FIRST.match(self.held) or _ID_LAST.search(self.held)
        if found is None:
            raise ValueError("which call is answered is not known")
        error = b'{"code":%d,"message":"too long"}' % TOO_LONG
        return b'{"jsonrpc":"2.0","id":%s,"error":%s}\n' % (found[1], error)


def pass_requests(into: IO[bytes]) -> None:
    """Everything that comes in, as it is."""
    try:
        while chunk := os.read(0, CHUNK):
            into.write(chunk)
            into.flush()
        into.close()
    except OSError:  # the server has ended, which the other thread sees
        return


def pass_messages(source: IO[bytes], most: int) -> None:
    """Everything that the server says, line by line, until it has nothing more to say."""
    line = Line(most)
    while chunk := os.read(source.fileno(), CHUNK):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            line.add(part)
            sys.stdout.buffer.write(line.message())
            line = Line(most)
        sys.stdout.buffer.flush()
        line.add(rest)


def end_when_alone() -> None:
    """Wait until nobody speaks to us any more. Seen without reading: a server may be stuck, and take nothing."""
    speaker = select.poll()
    speaker.register(0, 0)
    speaker.poll()
    time.sleep(GRACE_S)
    os.killpg(0, signal.SIGKILL)


def keep(most: int, command: list[str]) -> None:
    """Run the server to its end."""
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    threading.Thread(target=end_when_alone, daemon=True).start()
    threading.Thread(target=pass_requests, args=(server.stdin,), daemon=True).start()
    try:
        pass_messages(server.stdout, most)
    except (OSError, ValueError):  # nobody listens any more; or a message was too long, and nobody is told
        pass
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    keep(int(sys.argv[1]), sys.argv[2:])
