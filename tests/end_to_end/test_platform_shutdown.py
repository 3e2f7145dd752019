"""The platform is stopped while somebody follows a task, or looks at its pages: what ends with it, and what is said."""

import os
import signal
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.end_to_end.shell import Shell, wait_for_exit, wait_until
from tests.end_to_end.survey_documents import QUESTION, TIGHT_BUDGET, write_survey_documents
from waystation.runtime.temporal.run_file import read_run_file


def answers(address: str) -> bool:
    """Whether pages are there, and let whoever has the address in."""
    try:
        return httpx2.get(address, follow_redirects=True, timeout=60).is_success
    except httpx2.TransportError:
        return False


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.timeout(300)
def test_pages_are_served_as_long_as_the_platform_runs(ending: signal.Signals, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home", {"WAYSTATION_OFFLINE": "true", "WAYSTATION_PAGES": "true"})
    try:
        up = shell.run("up")
        address = str(shell.run_json("status")["pages"])
        assert f"Pages            {address} (private link, valid until the platform stops)" in up.stderr
        assert answers(address)
        assert shell.run("doctor").stdout.count(urlsplit(address).query) == 0
        run = read_run_file(shell.home / "run.json")
        assert run is not None
        os.kill(run.workers.pid, ending)
        wait_until(lambda: not answers(address), 60, "the end of the pages")
    finally:
        shell.run("down")


@pytest.mark.timeout(600)
def test_who_follows_a_task_while_the_platform_is_stopped_is_told_how_it_goes_on(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home", {"WAYSTATION_OFFLINE": "true"})
    documents, log = write_survey_documents(tmp_path / "survey"), tmp_path / "watch.log"
    assert shell.run("up").returncode == 0
    try:
        task = str(
            shell.run_json("submit", QUESTION, "--docs", str(documents), "--budget", TIGHT_BUDGET, "--detach")[
                "task_id"
            ]
        )
        watching = shell.start("watch", task, log=log)
        wait_until(lambda: f"{task} is paused" in log.read_text(), 360, "the pause")
    finally:
        stopped = shell.run("down")
    assert stopped.stderr == "Stopped. Tasks continue after `waystation up`.\n"
    assert wait_for_exit(watching, log) == 3
    lines = log.read_text().splitlines()
    assert lines[-1] == (
        f"waystation: the platform was stopped; {task} is safe and continues after `waystation up`. Then follow it "
        f"with `waystation watch {task}`"
    )
    assert [line for line in lines if "WARN" in line] == []
