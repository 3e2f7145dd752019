import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from waystation.config.settings import Settings
from waystation.runtime.temporal.connect import build_workflow_link, resolve_temporal_target
from waystation.runtime.temporal.run_file import (
    ProcessIdentity,
    RunFile,
    read_run_file,
    remove_run_file,
    write_run_file,
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def run_of(pid: int) -> RunFile:
    mark = ProcessIdentity.from_pid(pid)
    return RunFile(
        address="127.0.0.1:1",
        namespace="default",
        ui_url="http://127.0.0.1:2",
        server=mark,
        workers=mark,
        started=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_what_was_written_is_read_back_and_nothing_else_is_left(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "home" / "run.json"
    write_run_file(path, run_of(sleeper.pid))
    assert read_run_file(path) == run_of(sleeper.pid)
    assert [file.name for file in path.parent.iterdir()] == ["run.json"]


@pytest.mark.parametrize("content", [None, "", "{}", '{"address": "127'])
def test_no_legible_run_file_is_no_run(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    assert read_run_file(path) is None


def test_a_run_is_alive_until_its_server_has_ended(sleeper: subprocess.Popen[bytes]) -> None:
    run = run_of(sleeper.pid)
    assert run.is_server_alive
    sleeper.kill()
    sleeper.wait()
    assert not run.is_server_alive


def test_another_process_with_the_same_pid_is_not_ours(sleeper: subprocess.Popen[bytes]) -> None:
    mark = ProcessIdentity.from_pid(sleeper.pid)
    assert mark.find_process() is not None
    assert mark.replace(uptime=mark.uptime - 60).find_process() is None


@pytest.mark.skipif(sys.platform != "linux", reason="sets the clock through what Linux tells of the machine's start")
@pytest.mark.parametrize("seconds", [-3600, -1, 1, 0.3, 86_400])
def test_a_process_is_still_the_same_after_the_clock_was_set(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    mark, began = ProcessIdentity.from_pid(sleeper.pid), psutil.boot_time()
    created = psutil.Process(sleeper.pid).create_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: began + seconds)
    assert psutil.Process(sleeper.pid).create_time() == pytest.approx(created + seconds)
    assert mark.find_process() is not None
    assert mark == ProcessIdentity.from_pid(sleeper.pid)


def test_the_run_file_of_a_later_run_is_not_removed(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = tmp_path / "run.json"
    earlier = run_of(sleeper.pid)
    later = earlier.replace(address="127.0.0.1:3")
    write_run_file(path, later)
    remove_run_file(path, earlier)
    assert read_run_file(path) == later
    remove_run_file(path, later)
    assert read_run_file(path) is None


def test_the_environment_beats_the_run_file_and_nothing_is_assumed_without_either(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    assert resolve_temporal_target(Settings(home=tmp_path)).address == ""
    write_run_file(path, run_of(sleeper.pid))
    assert resolve_temporal_target(Settings(home=tmp_path)).address == "127.0.0.1:1"
    monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere:7233")
    assert resolve_temporal_target(Settings(home=tmp_path)).address == "elsewhere:7233"


def test_a_run_file_left_by_a_killed_run_is_not_used(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    write_run_file(tmp_path / "run.json", run_of(sleeper.pid))
    sleeper.kill()
    sleeper.wait()
    assert resolve_temporal_target(Settings(home=tmp_path)).address == ""


def test_a_link_leads_to_the_workflow_where_a_ui_is_known(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    write_run_file(path, run_of(sleeper.pid))
    assert (
        build_workflow_link(resolve_temporal_target(Settings(home=tmp_path)), "task-1")
        == "http://127.0.0.1:2/namespaces/default/workflows/task-1"
    )
    monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere:7233")
    assert build_workflow_link(resolve_temporal_target(Settings(home=tmp_path)), "task-1") is None
    assert (
        build_workflow_link(resolve_temporal_target(Settings(home=tmp_path, temporal_ui="https://ui/")), "t")
        == "https://ui/namespaces/default/workflows/t"
    )
