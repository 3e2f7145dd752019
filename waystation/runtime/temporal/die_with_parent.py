"""Runs a command that ends when its parent ends, however that ends: `python die_with_parent.py PARENT_PID COMMAND…`.

A program of its own, because Python code between fork and exec can deadlock in a process with threads. Only Linux can
notify a child of its parent's death; elsewhere the command simply runs.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def build_die_with_parent_command(command: Sequence[str]) -> list[str]:
    """Return the command that runs this one, whose first word is a path, and on Linux ends it with this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit("the parent is gone already")
    os.execv(command[0], command)
