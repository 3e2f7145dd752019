"""Back-up and restore as docs/how-to/back-up-and-upgrade.md says: what is restored continues with a waiting task."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.shell import ROOT, Shell, is_paused
from tests.end_to_end.survey_documents import QUESTION, TIGHT_BUDGET, write_survey_documents
from tests.support.postgres_server import PostgresServer

PAGE = (ROOT / "docs" / "how-to" / "back-up-and-upgrade.md").read_text(encoding="utf-8")


def documented(program: str) -> list[str]:
    """The options of a program as the page gives them, without who asks and for which database."""
    found = re.search(rf'{program} --username temporal (.*?) (?:--dbname )?"\$database"', PAGE)
    assert found is not None
    return shlex.split(found[1])


def waiting(shell: Shell, folder: Path) -> str:
    """The platform was stopped while this task waited for money."""
    documents = write_survey_documents(folder / "survey")
    assert shell.run("up").returncode == 0
    try:
        task = str(
            shell.run_json("submit", QUESTION, "--docs", str(documents), "--budget", TIGHT_BUDGET, "--detach")[
                "task_id"
            ]
        )
        shell.wait_for_task(task, is_paused, 360, "the pause")
    finally:
        assert shell.run("down").returncode == 0
    return task


def assert_goes_on(shell: Shell, task: str, turns: int) -> None:
    assert shell.run("up").returncode == 0
    try:
        assert shell.run_json("show", task)["phase"] == "paused"
        assert len(shell.list_paid_turns()) == turns > 0
        assert shell.approve_until_over(task, add="100k") in {"done", "partial"}
        assert "# " in shell.run("report", task).stdout
    finally:
        shell.run("down")


@pytest.mark.timeout(900)
def test_a_dump_in_another_database_goes_on(tmp_path: Path, postgres: PostgresServer) -> None:
    first = postgres.new_database()
    offline = {"WAYSTATION_OFFLINE": "true", "WAYSTATION_KEY": "17" * 32}
    shell = Shell(tmp_path / "home", {**offline, "DATABASE_URL": first})
    assert shell.run("store", "migrate").returncode == 0
    task = waiting(shell, tmp_path)
    turns = len(shell.list_paid_turns())
    dump = postgres.dump(first.rpartition("/")[2], documented("pg_dump"))
    postgres.run(f"DROP DATABASE {first.rpartition('/')[2]}")
    second = postgres.new_database()
    postgres.restore(dump, second.rpartition("/")[2], documented("pg_restore"))
    assert_goes_on(shell.with_settings(DATABASE_URL=second), task, turns)


@pytest.mark.timeout(900)
def test_a_copied_home_folder_goes_on(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home", {"WAYSTATION_OFFLINE": "true"})
    task = waiting(shell, tmp_path)
    turns = len(shell.list_paid_turns())
    shutil.copytree(shell.home, tmp_path / "copy")
    shutil.rmtree(shell.home)
    assert_goes_on(Shell(tmp_path / "copy", shell.settings), task, turns)
