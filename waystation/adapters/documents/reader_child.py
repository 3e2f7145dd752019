"""Reads files for its parent until that is gone: `python -m …reader_child SOCKET PARENT_PID SECONDS`.

It protects its parent from what it reads. It has limits on time and memory, and whatever a parser does that nobody
foresaw ends it: the parent takes that for the file's fault and starts another.
"""

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from waystation.adapters.documents.extract import Extracted, Refused, Unreadable, laid_out
from waystation.adapters.documents.parsing import extract

MEMORY = 2_000_000_000
"""Bytes of address space."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answer each request (path, whether to read attachments) with an `Extracted` or a `Refused` as JSON."""
    requests: Connection = Connection(int(sys.argv[1]))
    _bound_by(parent=int(sys.argv[2]))
    while True:
        try:
            path, attachments = requests.recv()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, float(sys.argv[3]))
        answer = _answer(Path(path), attachments=attachments)
        signal.setitimer(signal.ITIMER_REAL, 0)
        requests.send_bytes(answer.model_dump_json().encode())


def _bound_by(parent: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):
        # macOS has the limit in name only.
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent is gone already")


def _answer(path: Path, *, attachments: bool) -> Extracted | Refused:
    try:
        return laid_out(extract(path.read_bytes(), path.name, attachments=attachments))
    except Unreadable as unreadable:
        return Refused(reason=str(unreadable))
    except MemoryError:
        return Refused(reason=f"could not be read (needs more than {MEMORY // 1_000_000_000} GB of memory)")
    except OSError as error:
        return Refused(reason=f"cannot be read ({error.strerror})")


if __name__ == "__main__":
    main()
