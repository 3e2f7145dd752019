"""What Ctrl-C does before a command begins, and while the platform starts."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waystation.cli import main, platform
from waystation.workers.shutdown import INTERRUPTED


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process that goes on until the test ends."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def import_slowly(name: str) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError(name)

    monkeypatch.setattr(main, "import_module", import_slowly)
    assert main.run(["list"]) == INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_up_that_is_interrupted_says_that_the_platform_goes_on_starting(
    tmp_path: Path,
    sleeping: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start(_log: Path) -> subprocess.Popen[bytes]:
        signal.raise_signal(signal.SIGINT)
        return sleeping

    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setattr(platform, "_start", start)
    assert main.run(["up"]) == INTERRUPTED
    assert "The platform is still starting in the background: `waystation status`" in capsys.readouterr().err
    assert sleeping.poll() is None
