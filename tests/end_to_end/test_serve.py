"""`waystation serve` as a process, and what docs/serve.md asks of it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
CURL = re.compile(r"^curl (?:.*\\\n)*.*$", re.MULTILINE)
DOCUMENTED_PORT = "8520"


def until_it_listens(port: int) -> None:
    """The server says where it stands before it listens there."""
    for _ in range(300):
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("nothing listens")


def serve(home: Path, listen: str) -> subprocess.Popen[str]:
    settings = {"WAYSTATION_HOME": str(home), "WAYSTATION_OFFLINE": "true", "TEMPORAL_ADDRESS": "127.0.0.1:9"}
    return subprocess.Popen(
        [sys.executable, "-m", "waystation.cli.main", "serve", "--listen", listen],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def served(home: Path, port: int) -> Generator[str]:
    """Its token."""
    with serve(home, f"127.0.0.1:{port}") as running:
        try:
            assert running.stdout is not None
            address = running.stdout.readline().strip()
            assert address.startswith(f"http://127.0.0.1:{port}/?token=")
            until_it_listens(port)
            yield address.partition("token=")[2]
        finally:
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
@pytest.mark.timeout(120)
def test_what_its_page_asks_by_curl_is_answered(tmp_path: Path) -> None:
    commands = CURL.findall((ROOT / "docs/serve.md").read_text(encoding="utf-8"))
    assert len(commands) == 2
    port = free_port()
    with served(tmp_path, port) as token:
        listed, submitted = [
            subprocess.run(
                ["bash", "-c", command.replace("curl ", "curl -s --max-time 60 ")
                 .replace(DOCUMENTED_PORT, str(port))],
                env={"PATH": os.environ["PATH"], "TOKEN": token},
                capture_output=True,
                text=True,
                check=True,
                timeout=90,
            ).stdout
            for command in commands
        ]  # fmt: skip
    assert json.loads(listed) == []
    # It was read and found whole; only the server that would work on it is away.
    assert json.loads(submitted)["title"] == "Not reachable"


@pytest.mark.parametrize("listen", ["0.0.0.0:8520", "192.0.2.1:8520"])
def test_it_listens_on_this_machine_alone(listen: str, tmp_path: Path) -> None:
    with serve(tmp_path, listen) as refused:
        said = refused.communicate(timeout=60)[1]
    assert refused.returncode == 2
    assert "127.0.0.1" in said
