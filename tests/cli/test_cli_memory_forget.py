"""`waystation memory forget`: what it asks before it does anything, and what it says afterwards."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.scopes import SYSTEM_SCOPE
from waystation.cli.main import run
from waystation.client.erasure import ForgetResult, describe_remaining_data, format_removed_counts
from waystation.config.settings import Settings
from waystation.erasure.erasure import ForgetCounts, ForgetOrder
from waystation.kernel.text import FORGOTTEN
from waystation.runtime.store_setup import open_store


@pytest.mark.parametrize("given", [[], ["--session", "s", "--all-of-tenant"]])
def test_one_kind_of_choice_has_to_be_made(ended_id: str, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_id
    assert run(["memory", "forget", *given]) == 2
    asked = "one of --session S, --task T and --all-of-tenant; or --before DATE, alone or with --session S\n"
    assert capsys.readouterr().err.endswith(asked)


def test_without_a_terminal_nothing_is_forgotten_unasked(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "forget", "--task", ended_id]) == 2
    said = "waystation: this cannot be undone, and there is no terminal to ask for confirmation: add --yes\n"
    assert capsys.readouterr().err == said


def test_without_a_server_nothing_is_forgotten(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "forget", "--task", ended_id, "--yes"]) == 3
    assert "127.0.0.1:1" in capsys.readouterr().err
    assert run(["report", ended_id]) == 0


def test_of_a_forgotten_task_only_numbers_are_shown_and_the_rest_is_said(
    ended_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(without_words(ended_id))
    said = f"waystation: {ended_id} was forgotten: its texts are deleted and only its numbers remain, which `waystation"
    for command in (["report"], ["report", "--draft"], ["transcript"], ["transcript", "--agent", "writing"]):
        assert run([*command[:1], ended_id, *command[1:]]) == 2
        assert capsys.readouterr().err.startswith(said)
    for command in ("cost", "show"):
        assert run([command, ended_id]) == 0
    assert FORGOTTEN in capsys.readouterr().out


async def without_words(task_id: str) -> None:
    store = await open_store(Settings())
    ref = (await store.get_task(task_id, SYSTEM_SCOPE)).ref
    await store.forget_tasks(
        ForgetOrder(store_id=ref.store_id, tenant=ref.tenant, task_ids=(task_id,), everything=True)
    )
    await store.aclose()


def test_a_session_without_tasks_and_another_tenants_task_are_refused(
    ended_id: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["memory", "forget", "--session", "elsewhere", "--yes"]) == 2
    assert "no task in this store matches" in capsys.readouterr().err
    monkeypatch.setenv("WAYSTATION_TENANT", "others")
    assert run(["memory", "forget", "--task", ended_id, "--yes"]) == 2
    assert f"no task in this store has an id that starts with '{ended_id}'" in capsys.readouterr().err


def test_the_older_name_does_the_same(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["forget", "--session", "elsewhere", "--yes"]) == 2
    assert "no task in this store matches" in capsys.readouterr().err
    assert ended_id


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--before", "yesterday"],
            "--before takes a date (2026-11-01), a date and time (2026-11-01T07:00) or how long ago (2d), "
            "not 'yesterday'",
        ),
        (
            ["--before", "2026-02-30"],
            "--before takes a date (2026-11-01), a date and time (2026-11-01T07:00) or how long ago (2d), "
            "not '2026-02-30'",
        ),
        (["--before", "2999-01-01"], "--before 2999-01-01 is in the future: the present time is "),
        (["--before", "2020-01-01"], "no task in this store matches"),
        (["--task", "task-1", "--before", "2020-01-01"], "--task names one task, and --before does not apply to it"),
    ],
    ids=["no date", "no day", "to come", "long ago", "one task"],
)
def test_a_date_that_cannot_be_meant_is_refused(
    ended_id: str, given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended_id
    assert run(["memory", "forget", *given, "--yes"]) == 2
    assert said in capsys.readouterr().err


def test_tasks_that_ended_before_a_moment_are_selected(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC).isoformat()
    assert run(["memory", "forget", "--before", now]) == 2
    assert "this cannot be undone" in capsys.readouterr().err  # there was something to ask about
    assert ended_id


def test_what_was_forgotten_is_counted_by_kind_with_what_still_has_it() -> None:
    gone = ForgetResult(
        removed=ForgetCounts(tasks=1, passages=1_200, originals=3), histories=1, remains=("Backups keep it.",)
    )
    assert format_removed_counts(gone) == "Forgotten: 1 task, 1,200 passages, 3 originals, 1 history\nBackups keep it."
    assert format_removed_counts(ForgetResult(removed=ForgetCounts())) == "Nothing was left to forget."


def test_what_remains_is_said_as_it_is_for_these_settings(tmp_path: Path) -> None:
    embedded = Settings(home=tmp_path)
    assert describe_remaining_data(embedded, everything=True) == (
        "The Temporal server needs a moment to delete the histories.",
        "Backups of the database, memory and Temporal still contain the forgotten data.",
    )
    servers = Settings(home=tmp_path, qdrant_url="http://q:6333", store_url="postgresql://u@h/d")
    assert describe_remaining_data(servers, everything=False) == (
        "Transcripts, documents, reports and workflow histories remain. --everything deletes them too.",
        "PostgreSQL's files can contain the forgotten data until `VACUUM FULL`.",
        "The Qdrant server no longer finds the forgotten data, but its files contain the data until its optimiser "
        "rewrites them (docs/how-to/forget-tasks.md).",
        "Backups of the database, memory and Temporal still contain the forgotten data.",
    )
