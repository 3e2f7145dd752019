"""`waystation schedule add` without `--docs`: each run uses the stored documents of the session's newest task."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.end_to_end.pages_server import StubSchedules, StubTaskClient
from tests.support.finished_tasks import store_finished_task
from waystation.cli.main import run
from waystation.config.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a home folder with a finished task, whose server has stub schedules."""
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WAYSTATION_OFFLINE", "true")
    settings = Settings()

    class OwnClient(StubTaskClient):
        stub_schedules = StubSchedules()

    monkeypatch.setattr("waystation.cli.schedules.Client", OwnClient)
    asyncio.run(store_finished_task(settings))
    return settings


def test_a_schedule_without_paths_runs_over_the_documents_of_the_newest_task_of_its_session(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["schedule", "add", "How deep?", "--cron", "0 7 * * 1", "--session", "default", "--name", "weekly"]
    assert run([*command, "--json"]) == 0
    printed = capsys.readouterr()
    (listed,) = json.loads(printed.out)
    assert (listed["session"], listed["documents"]) == ("default", [])
    assert "No --docs: each run uses the documents of the newest task in session default." in printed.err
    assert "1 document at present" in printed.err
    assert run(["schedule", "list"]) == 0
    assert "documents of the session's newest task; session default;" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("session", [[], ["--session", "other"]])
def test_a_schedule_without_paths_needs_a_session_whose_tasks_have_documents(
    settings: Settings, session: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["schedule", "add", "How deep?", "--cron", "0 7 * * 1", *session]) == 2
    assert "no documents: name a file or folder with --docs PATH" in " ".join(capsys.readouterr().err.split())
    assert run(["schedule", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
