from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.finished_tasks import make_task_row
from waystation.agents.action_approvals import TopUpPolicy, UnattendedPolicy
from waystation.cli.submit import print_task_config
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.task import TaskRequest, make_own_session_name


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], **asked: object) -> str:
    request = TaskRequest.model_validate({"question": "What?", "session": "default", "request_id": "r", **asked})
    print_task_config(Settings(), make_task_row(request, Settings()), 1)
    return capsys.readouterr().err.partition("The built-in")[0]


def test_defaults_and_what_was_just_asked_for_are_told_without_where_they_come_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = (
        "1 document; session default; mode {}; budget {} tokens, 100,000 tokens an agent; window {}, full at {}; "
        "model waystation-offline-1\n"
    )
    assert told(capsys) == expected.format("approval", "600,000", "171,808", "128,856")
    asked = told(capsys, mode="soft", budget=Limit(tokens=300_000), window=20_000)
    assert asked == expected.format("soft", "300,000", "20,000", "15,000")


def test_what_a_preset_a_variable_or_the_file_gives_is_told_with_its_source(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_home / "config.toml").write_text('budget = "300k"')
    monkeypatch.setenv("WAYSTATION_MODE", "soft")
    assert told(capsys, preset="qa") == (
        "1 document; session default; mode soft (WAYSTATION_MODE); budget 300,000 tokens (config file), "
        "100,000 tokens an agent; window 25,000 (preset qa), full at 18,750; model waystation-offline-1\n"
        "Compaction (preset qa): over 30 messages are full, too; the first 2 and the last 10 stay.\n"
    )


def test_a_window_that_cannot_be_had_is_told_with_the_one_that_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "window 171,808 of 190,000, full at 128,856;" in told(
        capsys, agent_budget=Limit(tokens=20_000), window=190_000
    )
    long = told(capsys, preset="long")
    assert "budget 300,000 tokens (preset long)" in long
    assert "over 75 messages are full, too; the first 3 and the last 20 stay; an agent ends at 1,000 messages." in long


def test_the_ceiling_of_grants_is_told_beside_the_budget_that_they_raise(capsys: pytest.CaptureFixture[str]) -> None:
    told_of = told(capsys, budget=Limit(tokens=300_000), ceiling=Limit(tokens=2_000_000))
    assert "budget 300,000 tokens, which grants may raise to 2,000,000 tokens, 100,000 tokens an agent;" in told_of


def test_what_happens_while_nobody_answers_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    decided = UnattendedPolicy(
        top_up=TopUpPolicy(amount=Amount(tokens=50_000), times=3), answer_within=timedelta(days=7)
    )
    assert (
        "While nobody answers: 50,000 tokens more, up to 3 times; each request waits 7 days; the agent then delivers "
        "what it has.\n"
    ) in told(capsys, unattended=decided)
    until = UnattendedPolicy(answer_by=datetime(2026, 11, 30, 7, tzinfo=UTC), then="wait")
    assert "a request waits until 2026-11-30 07:00 UTC; it is then noted as overdue." in told(capsys, unattended=until)


def test_a_task_of_its_own_session_is_told_how_to_go_on_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_task_config(Settings(), make_task_row(TaskRequest(question="What?", request_id="r"), Settings()), 1)
    session = make_own_session_name("r")
    assert f"session {session} (its own; --session {session} goes on with it);" in capsys.readouterr().err
