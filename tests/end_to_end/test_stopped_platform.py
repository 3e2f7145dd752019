"""The platform is stopped while somebody follows a task: one line says that it is safe, and how it goes on."""

from pathlib import Path

import pytest

from tests.end_to_end.shell import Shell, ended, until
from tests.end_to_end.survey import QUESTION, write_survey


@pytest.mark.timeout(600)
def test_who_follows_a_task_while_the_platform_is_stopped_is_told_how_it_goes_on(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home", {"WAYSTATION_OFFLINE": "true"})
    documents, log = write_survey(tmp_path / "survey"), tmp_path / "watch.log"
    assert shell.run("up").returncode == 0
    try:
        task = str(shell.json("submit", QUESTION, "--docs", str(documents), "--budget", "30k", "--detach")["task_id"])
        watching = shell.start("watch", task, log=log)
        until(lambda: f"{task} is paused" in log.read_text(), 360, "the pause")
    finally:
        stopped = shell.run("down")
    assert stopped.stderr == "stopped; tasks go on where they were after `waystation up`\n"
    assert ended(watching, log) == 3
    lines = log.read_text().splitlines()
    assert lines[-1] == (
        f"waystation: the platform was stopped, and {task} is safe: `waystation up`, then `waystation watch {task}`, "
        "and it goes on where it was"
    )
    assert [line for line in lines if "WARN" in line] == []
