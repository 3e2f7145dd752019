import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waystation.cli.main import run
from waystation.cli.platform import is_home_in_use
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.runtime.temporal.run_file import ProcessIdentity, RunFile, is_started_by_this_process, write_run_file

WAYSTATION = (sys.executable, "-m", "waystation.cli.main")
HOLDER = """
import fcntl, sys, time
lock = open(sys.argv[1], "ab")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    return tmp_path / "home"


@pytest.fixture
def holder(home: Path) -> Iterator[subprocess.Popen[str]]:
    home.mkdir()
    command = [sys.executable, "-c", HOLDER, str(home / "run.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def run_of(pid: int) -> RunFile:
    mark = ProcessIdentity.from_pid(pid)
    address = "127.0.0.1:1"
    return RunFile(
        address=address, namespace="default", ui_url="http://ui", server=mark, workers=mark, started=utc_now()
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


NO_TASK = "No tasks yet: `waystation submit` creates one\n"


def test_nobody_else_may_read_a_new_home_folder(home: Path) -> None:
    told = subprocess.run([*WAYSTATION, "list"], capture_output=True, text=True, check=False, umask=0o022)
    assert (told.returncode, told.stderr) == (0, NO_TASK)
    assert (mode(home), mode(home / "waystation.db")) == (0o700, 0o600)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(closed: str) -> None:
    told = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closed}', "sh", *WAYSTATION, "list"], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stderr) == (0, "" if "2>&-" in closed else NO_TASK)


@pytest.mark.parametrize("command", [["list"], ["status"], ["dev"], ["up"]])
@pytest.mark.parametrize("kind", ["a plain file", "below a plain file", "a folder that cannot be made"])
def test_a_home_folder_that_cannot_be_used_is_code_3_with_the_next_step(
    command: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    places = {"a plain file": tmp_path / "file", "below a plain file": tmp_path / "file" / "below"}
    home = places.get(kind, Path("/proc/nope"))
    monkeypatch.setenv("WAYSTATION_HOME", str(home))
    assert run(command) == 3
    told = capsys.readouterr().err
    assert told.startswith(f"waystation: the home folder {home} cannot be used (")
    assert told.endswith("): set WAYSTATION_HOME to a folder that you own\n")


def test_the_lock_is_free_again_when_its_holder_is_killed(holder: subprocess.Popen[str]) -> None:
    assert is_home_in_use(Settings())
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not is_home_in_use(Settings())


def test_looking_whether_the_lock_is_taken_makes_no_folder(home: Path) -> None:
    assert not is_home_in_use(Settings())
    assert not home.exists()


@pytest.mark.usefixtures("holder")
def test_a_second_dev_starts_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dev"]) == 2
    assert "the platform is already starting" in capsys.readouterr().err
    assert [file.name for file in home.iterdir()] == ["run.lock"]


@pytest.mark.usefixtures("holder")
def test_workers_beside_a_running_server_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["worker"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("waystation: workers already run with this home folder: ")
    assert told.count("\n") == 1


def test_a_server_ends_with_the_command_only_where_it_was_started_by_it(home: Path) -> None:
    assert not is_started_by_this_process(Settings().run_file)
    write_run_file(home / "run.json", run_of(os.getppid()))
    assert not is_started_by_this_process(Settings().run_file)
    write_run_file(home / "run.json", run_of(os.getpid()))
    assert is_started_by_this_process(Settings().run_file)
