"""`waystation forget`: what it asks before it does anything, and what it says afterwards."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.test_cli_ended_task import keep_ended_task
from waystation.cli.forget import told
from waystation.cli.main import run
from waystation.client_forget import Gone
from waystation.domain.forgetting import Forgotten
from waystation.settings import Settings


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Id of a task that has ended, in a store whose server does not answer."""
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    return asyncio.run(keep_ended_task(Settings()))


@pytest.mark.parametrize("given", [[], ["--session", "s", "--all-of-tenant"]])
def test_one_kind_of_choice_has_to_be_made(ended: str, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended
    assert run(["forget", *given]) == 2
    assert capsys.readouterr().err.endswith("--session S, --task T, or --all-of-tenant, and one of them only\n")


def test_without_a_terminal_nothing_is_forgotten_unasked(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["forget", "--task", ended]) == 2
    said = "waystation: this cannot be undone, and nobody can be asked here: say --yes\n"
    assert capsys.readouterr().err == said


def test_without_a_server_nothing_is_forgotten(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["forget", "--task", ended, "--yes"]) == 3
    assert "127.0.0.1:1" in capsys.readouterr().err
    assert run(["report", ended]) == 0


def test_a_session_without_tasks_and_another_tenants_task_are_refused(
    ended: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["forget", "--session", "elsewhere", "--yes"]) == 2
    assert "there are no such tasks in this store" in capsys.readouterr().err
    monkeypatch.setenv("WAYSTATION_TENANT", "others")
    assert run(["forget", "--task", ended, "--yes"]) == 2
    assert f"{ended} belongs to another tenant than 'others': set WAYSTATION_TENANT" in capsys.readouterr().err


def test_what_was_forgotten_is_counted_by_kind_and_backups_are_named() -> None:
    gone = Gone(forgotten=Forgotten(tasks=1, passages=12, originals=3), histories=1)
    assert told(gone) == (
        "forgotten: 1 tasks, 12 passages, 3 originals, 1 histories\n"
        "Backups of database, memory and Temporal keep what they had."
    )
