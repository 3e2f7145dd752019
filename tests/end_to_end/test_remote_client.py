"""A team member at another machine: no Temporal, no store, a token. Every command about tasks goes to the server."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.shell import Shell, is_over_or_asking, is_paused, terminate
from tests.end_to_end.survey_documents import QUESTION, TIGHT_BUDGET, write_survey_documents
from tests.end_to_end.test_browser import KillableWorker, run_serve_command
from waystation.runtime.temporal.connect import TemporalTarget

NOWHERE = "127.0.0.1:9"


@pytest.mark.timeout(600)
def test_who_has_a_token_alone_hands_in_answers_steers_and_reads_by_the_same_commands(
    tmp_path: Path, temporal_server: TemporalTarget
) -> None:
    survey = write_survey_documents(tmp_path / "survey")
    there = Shell(
        tmp_path / "home",
        {"WAYSTATION_OFFLINE": "true", "TEMPORAL_ADDRESS": temporal_server.address, "WAYSTATION_TENANT": "remote"},
    )
    worker = KillableWorker(there, tmp_path / "worker.log")
    try:
        with run_serve_command(there) as address:
            away = Shell(tmp_path / "away", {"TEMPORAL_ADDRESS": NOWHERE, "WAYSTATION_SERVER": address})
            submitted = away.run_json(
                "submit", QUESTION, "--docs", str(survey), "--budget", TIGHT_BUDGET, "--session", "S", "--detach"
            )
            task = str(submitted["task_id"])
            there.wait_for_task(task, is_paused, 180, "a pause")
            assert task.removeprefix("task-")[:8] in away.run("list").stdout
            told = away.run("message", task, "Give depths in metres.")
            (survey / "north.md").write_text("# North\nThe north bar is three fathoms deep.\n")
            given = away.run("documents", task, "--docs", str(survey))
            waiting = json.loads(away.run("approvals", "--json").stdout)
            assert [one["task_id"] for one in waiting] == [task] * len(waiting)
            approved = away.run("approve", task, "--all", "--add", "90k", "--by", "Ada")
            assert approved.returncode == 0, approved.stderr
            while not there.wait_for_task(task, is_over_or_asking, 180, "the end of the task").phase.over:
                away.run("approve", task, "--all", "--add", "90k", "--by", "Ada")
            watched = away.run("watch", task)
            report = away.run("report", task).stdout
            shown = away.run_json("show", task)
            assert shown["phase"] == "done", watched.stderr
            assert {one["by"] for one in shown["approvals"] if one["decision"] == "approved"} >= {"Ada"}
            assert "Harbour" in report
            assert (told.returncode, given.returncode) == (0, 0), told.stderr + given.stderr
            assert "north.md" in given.stdout + given.stderr
            for command in (
                ("cost", task),
                ("transcript", task, "--agent", "writing"),
                ("plan", task),
                ("documents", task),
                ("show", task, "--context"),
                ("context", "audit", task),
                ("session", "list"),
                ("session", "set", "S", "--budget", "2M"),
                ("spending",),
                ("memory", "search", "the north bar", "--task", task, "--kind", "document"),
                ("show", task, "--html", str(tmp_path / "run.html")),
                ("fork", task, "--from", "writing", "--detach"),
            ):
                done = away.run(*command)
                assert done.returncode == 0, (command, done.stderr)
            again = away.run("cancel", task)
            assert again.returncode == 0, again.stderr
            refused = [away.run(*command) for command in (("memory", "forget"), ("schedule", "list"), ("status",))]
            assert not (tmp_path / "away" / "waystation.db").exists()
    finally:
        terminate(worker.process)
    assert [one.returncode for one in refused[:2]] == [2, 2]
    assert "without" in refused[0].stderr
    gone = away.run("list")
    assert gone.returncode == 3
    assert "does not answer" in gone.stderr
