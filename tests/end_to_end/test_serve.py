"""`waystation serve` as a process, and what docs/how-to/use-the-http-api.md asks of it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.free_ports import find_free_port

ROOT = Path(__file__).resolve().parents[2]
CURL = re.compile(r"^curl (?:.*\\\n)*.*$", re.MULTILINE)
DOCUMENTED_PORT = "8520"


AWAY = {"WAYSTATION_OFFLINE": "true", "TEMPORAL_ADDRESS": "127.0.0.1:9"}


def serve(home: Path, listen: str, settings: Mapping[str, str] = AWAY) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "waystation.cli.main", "serve", "--listen", listen],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "WAYSTATION_HOME": str(home),
            **settings,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def start_server_process(
    home: Path, port: int, settings: Mapping[str, str] = AWAY
) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The process, and its token. Whoever begins it ends it."""
    with serve(home, f"127.0.0.1:{port}", settings) as running:
        assert running.stdout is not None
        address = running.stdout.readline().strip()
        assert address.startswith(f"http://127.0.0.1:{port}/?token=")
        yield running, address.partition("token=")[2]


@contextmanager
def run_server_process(home: Path, port: int) -> Generator[str]:
    """Its token."""
    with start_server_process(home, port) as (running, token):
        try:
            yield token
        finally:
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
@pytest.mark.timeout(120)
def test_what_its_page_asks_by_curl_is_answered(tmp_path: Path) -> None:
    commands = CURL.findall((ROOT / "docs/how-to/use-the-http-api.md").read_text(encoding="utf-8"))
    assert len(commands) == 6
    port = find_free_port()
    with run_server_process(tmp_path, port) as token:
        listed, submitted, *of_a_task = [
            subprocess.run(
                ["bash", "-c", command.replace("curl ", "curl -s --max-time 60 ")
                 .replace(DOCUMENTED_PORT, str(port))],
                env={"PATH": os.environ["PATH"], "TOKEN": token, "TASK": "task-0123456789abcdef"},
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
    titles = [json.loads(answer)["title"] for answer in of_a_task]
    assert titles == ["Not found", "Not reachable", "Not found", "Not found"]


@pytest.mark.parametrize("listen", ["0.0.0.0:8520", "192.0.2.1:8520"])
def test_it_listens_on_this_machine_alone(listen: str, tmp_path: Path) -> None:
    with serve(tmp_path, listen) as refused:
        said = refused.communicate(timeout=60)[1]
    assert refused.returncode == 2
    assert "127.0.0.1" in said


def test_a_port_that_is_taken_is_refused_before_an_address_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serve(tmp_path, f"127.0.0.1:{port}") as refused:
            out, said = refused.communicate(timeout=60)
    assert (refused.returncode, out) == (2, "")
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in said


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_it_is_told_to(ending: signal.Signals, tmp_path: Path) -> None:
    with serve(tmp_path, f"127.0.0.1:{find_free_port()}") as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(ending)
        said = running.communicate(timeout=60)[1]
    assert said.endswith("Stopped.\n"), said
