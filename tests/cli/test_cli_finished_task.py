import json

import pytest

from waystation.cli.main import run


def test_a_task_that_has_ended_is_not_cancelled(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cancel", ended_id]) == 0
    assert capsys.readouterr().err == f"{ended_id} has ended: partial\n"
    assert run(["cancel", ended_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"task_id": ended_id, "phase": "partial", "requested": False}


def test_a_task_that_has_ended_is_granted_nothing(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["approve", ended_id, "--add", "10k"]) == 2
    told = capsys.readouterr().err
    assert told == f"waystation: {ended_id} has ended: partial; there is nothing left to approve\n"


def test_a_report_is_printed_for_programs(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", ended_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "task_id": ended_id,
        "phase": "partial",
        "version": 1,
        "versions": [{"number": 1, "phase": "partial", "stored_at": None}],
        "model": "waystation-offline-1",
        "markdown": "# Report",
        "sentences": [],
    }


def test_a_report_is_printed_as_it_is(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", ended_id]) == 0
    assert capsys.readouterr().out == "# Report\n"


def test_a_transcript_without_an_agent_lists_the_agents(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transcript", ended_id]) == 0
    told = capsys.readouterr()
    assert told.out == "plan  planning\nwriting  writing\n"
    assert told.err == f"Choose an agent: `waystation transcript {ended_id} --agent writing`\n"


def test_the_agents_are_listed_for_programs(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transcript", ended_id, "--json"]) == 0
    agents = json.loads(capsys.readouterr().out)
    assert agents == [{"id": "plan", "role": "planning"}, {"id": "writing", "role": "writing"}]
