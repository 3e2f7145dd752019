import json

import pytest

from waystation.cli.main import run


def test_a_task_that_has_ended_is_not_cancelled(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cancel", ended]) == 0
    assert capsys.readouterr().err == f"{ended} has ended: partial\n"
    assert run(["cancel", ended, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"task_id": ended, "phase": "partial", "asked": False}


def test_a_task_that_has_ended_is_granted_nothing(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["approve", ended, "--add", "10k"]) == 2
    told = capsys.readouterr().err
    assert told == f"waystation: {ended} has ended: partial; there is nothing left to approve\n"


def test_a_report_is_printed_for_programs(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", ended, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "task_id": ended,
        "phase": "partial",
        "version": 1,
        "versions": [{"number": 1, "phase": "partial", "stored_at": None}],
        "report": "# Report",
    }


def test_a_report_is_printed_as_it_is(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", ended]) == 0
    assert capsys.readouterr().out == "# Report\n"


def test_a_transcript_without_an_agent_lists_the_agents(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transcript", ended]) == 0
    told = capsys.readouterr()
    assert told.out == "plan  planning\nwriting  writing\n"
    assert told.err == f"name one: `waystation transcript {ended} --agent writing`\n"


def test_the_agents_are_listed_for_programs(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transcript", ended, "--json"]) == 0
    agents = json.loads(capsys.readouterr().out)
    assert agents == [{"id": "plan", "role": "planning"}, {"id": "writing", "role": "writing"}]
