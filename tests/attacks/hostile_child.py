"""What a child does that foreign text has taken over: each attempt is told by name, with what came of it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def prepare() -> None:
    """Nothing."""


def answer(request: bytes, _files: Sequence[int]) -> bytes:
    asked = json.loads(request)
    if asked == "hold":
        sum(range(10**15))
    if asked == "trickle":
        _trickle()
    return json.dumps({name: _outcome(attempt) for name, attempt in _attempts(asked).items()}).encode()


def _attempts(victim: str) -> dict[str, Callable[[], object]]:
    parent = os.getppid()
    return {
        "internet": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "unix": lambda: socket.socket(socket.AF_UNIX),
        "read": lambda: Path(victim).read_text(),
        "list": lambda: os.listdir(Path(victim).parent),
        "users": lambda: Path("/etc/passwd").read_text(),
        "write": lambda: Path(victim).with_name("left").write_text("left"),
        "temporary": lambda: Path("/tmp/left-by-a-child").write_text("left"),
        "keys": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
        "memory": lambda: Path(f"/proc/{parent}/mem").open("rb"),
        "program": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        "fork": os.fork,
        "kill": lambda: os.kill(parent, signal.SIGCONT),
        "limits": lambda: __import__("resource").prlimit(parent, 1),
    }


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "done"


def _trickle() -> None:
    """Bytes that come for ever, each well within the time."""
    number = int(sys.argv[2])
    os.write(number, (1_000_000).to_bytes(8, "big"))
    while True:
        os.write(number, b"x")
        time.sleep(0.05)
