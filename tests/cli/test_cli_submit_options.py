from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.finished_tasks import make_task_row
from waystation.agents.action_approvals import TopUpPolicy, UnattendedPolicy
from waystation.cli.submit import print_task_config, print_task_summary
from waystation.config.settings import Settings
from waystation.documents.documents import SkippedItem
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.task import TaskRequest, make_own_session_name


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], **asked: object) -> str:
    request = TaskRequest.model_validate({"question": "What?", "session": "default", "request_id": "r", **asked})
    row = make_task_row(request, Settings())
    print_task_summary(Settings(), row, 56)
    print_task_config(Settings(), row)
    return capsys.readouterr().err


def test_the_summary_says_what_is_read_and_spent_and_how_to_follow_up(capsys: pytest.CaptureFixture[str]) -> None:
    skipped = (SkippedItem(name="a.bin", reason="no text"),)
    request = TaskRequest(question="What?", request_id="r", budget=Limit(tokens=30_000), skipped_items=skipped)
    print_task_summary(Settings(), make_task_row(request, Settings()), 56)
    assert capsys.readouterr().err == (
        "56 documents (1 skipped)\n"
        "Budget 30,000 tokens; you are asked when the budget is spent\n"
        "Model: the built-in offline model, which quotes documents and does not reason. "
        "Set ANTHROPIC_API_KEY to use Claude\n"
        f"Follow up later with --session {make_own_session_name('r')}\n"
    )


def test_the_whole_configuration_is_printed_without_sources_for_defaults_and_the_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = (
        "56 documents\n"
        "Budget {} tokens; {}\n"
        "Model: the built-in offline model, which quotes documents and does not reason. "
        "Set ANTHROPIC_API_KEY to use Claude\n"
        "Session default\n"
        "Mode {}; 100,000 tokens for each agent\n"
        "Agents: model waystation-offline-1; window {} tokens, full at {}\n"
        "Compaction: the first message and the last 3 stay\n"
    )
    asked = "you are asked when the budget is spent"
    assert printed(capsys) == expected.format("600,000", asked, "approval", "171,808", "128,856")
    soft = "when the budget is spent, agents deliver what they have"
    assert printed(capsys, mode="soft", budget=Limit(tokens=300_000), window=20_000) == expected.format(
        "300,000", soft, "soft", "20,000", "15,000"
    )


def test_values_from_a_preset_a_variable_or_the_file_are_printed_with_their_source(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_home / "config.toml").write_text('budget = "300k"')
    monkeypatch.setenv("WAYSTATION_MODE", "soft")
    lines = printed(capsys, preset="qa").splitlines()
    assert (
        "Budget 300,000 tokens (config file); when the budget is spent, agents deliver what they have (WAYSTATION_MODE)"
        in lines
    )
    assert lines[-3:] == [
        "Mode soft (WAYSTATION_MODE); 100,000 tokens for each agent",
        "Agents: model waystation-offline-1; window 25,000 tokens (preset qa), full at 18,750",
        "Compaction (preset qa): when there are 30 messages, or earlier; the first 2 and the last 10 messages stay",
    ]


def test_a_window_that_is_not_available_is_printed_with_the_requested_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "window 171,808 tokens of the requested 190,000, full at 128,856\n" in printed(
        capsys, agent_budget=Limit(tokens=20_000), window=190_000
    )
    long = printed(capsys, preset="long")
    assert "Budget 300,000 tokens (preset long)" in long
    assert (
        "when there are 75 messages, or earlier; the first 3 and the last 20 messages stay; an agent stops at 1,000 "
        "messages\n" in long
    )


def test_the_ceiling_of_grants_is_printed_with_the_budget_that_they_raise(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, budget=Limit(tokens=300_000), ceiling=Limit(tokens=2_000_000))
    assert "Budget 300,000 tokens, which grants may raise to 2,000,000 tokens; you are asked" in lines


def test_what_happens_while_no_one_answers_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    decided = UnattendedPolicy(
        top_up=TopUpPolicy(amount=Amount(tokens=50_000), times=3), answer_within=timedelta(days=7)
    )
    assert (
        "While no one answers: automatic grants of 50,000 tokens, up to 3 times; each request waits 7 days; the "
        "request then counts as denied\n"
    ) in printed(capsys, unattended=decided)
    until = UnattendedPolicy(answer_by=datetime(2026, 11, 30, 7, tzinfo=UTC), at_deadline="wait")
    assert "each request waits until 2026-11-30 07:00 UTC; the request is then marked overdue" in printed(
        capsys, unattended=until
    )
