"""`report` and `show` of a task that was rewound: what was delivered stays readable, and its file as it is."""

import asyncio
import json

import pytest

from tests.support.finished_tasks import store_finished_task
from tests.support.scopes import SYSTEM_SCOPE
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.erasure.erasure import ErasureQuery
from waystation.erasure.report_files import count_report_matches, rewrite_matching_reports
from waystation.kernel.clock import utc_now
from waystation.reports.task_files import delete_task_files, get_plan_path
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import ReportVersion, TaskPhase


async def _rewound(settings: Settings, *, cancelled: bool) -> str:
    task_id = await store_finished_task(settings)
    store = await SqlStore.open(settings.database_url, utc_now)
    row = await store.get_task(task_id, SYSTEM_SCOPE)
    ended = row.progress
    assert ended is not None
    (first,) = ended.report_versions
    goes_on = ended.replace(phase=TaskPhase.WORKING, reports=(first,))
    await store.save_task_progress(task_id, goes_on)
    if cancelled:
        rest = await store.put_text("> **Partial.** nothing", row.ref.scope)
        second = ReportVersion(number=2, report=rest, phase=TaskPhase.CANCELLED, stored_at=utc_now())
        await store.save_task_progress(
            task_id, goes_on.replace(phase=TaskPhase.CANCELLED, report=rest, reports=(first, second))
        )
    await store.aclose()
    return task_id


def test_while_a_task_goes_on_its_report_is_there_and_said_to_be_of_before(
    without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = asyncio.run(_rewound(without_server, cancelled=False))
    assert run(["report", task_id]) == 0
    said = capsys.readouterr()
    assert said.out == "# Report\n"
    assert said.err == (
        f"{task_id} was rewound and is submitted: this is version 1 of its report (partial), from before the rewind\n"
    )


def test_a_cancelled_rewind_overwrites_no_file_and_the_delivered_report_is_shown(
    without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = asyncio.run(_rewound(without_server, cancelled=True))
    folder = without_server.reports_folder
    folder.mkdir(parents=True)
    (folder / f"{task_id}.md").write_text("# Report", encoding="utf-8")
    before = (folder / f"{task_id}.md").stat().st_mtime_ns
    assert run(["show", task_id]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == str(folder / f"{task_id}.md")
    assert "was rewound and then cancelled: this is version 1" in " ".join(said.err.split())
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        f"{task_id}.md": "# Report",
        f"{task_id}.v2.md": "> **Partial.** nothing",
    }
    assert (folder / f"{task_id}.md").stat().st_mtime_ns == before
    assert run(["report", task_id, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["phase"], found["markdown"]) == (1, "cancelled", "# Report")
    assert [(one["number"], one["phase"]) for one in found["versions"]] == [(1, "partial"), (2, "cancelled")]


def test_each_version_of_a_report_is_printed_by_its_number_and_which_there_are_is_said(
    without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = asyncio.run(_rewound(without_server, cancelled=True))
    assert run(["report", task_id, "--version", "2"]) == 0
    said = capsys.readouterr()
    assert said.out == "> **Partial.** nothing\n"
    assert said.err.startswith("Version 2 of the report. All versions: 1 (partial), 2 (cancelled, 20")
    assert run(["report", task_id, "--version", "2", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 2
    assert run(["report", task_id, "--version", "3"]) == 2
    assert f"{task_id} has no version 3 of its report; it has 1 (partial), 2" in capsys.readouterr().err
    assert run(["report", task_id, "--version", "1", "--draft"]) == 2


def test_every_version_of_a_report_goes_with_its_task_and_loses_who_is_erased(without_server: Settings) -> None:
    folder = without_server.reports_folder
    folder.mkdir(parents=True)
    # The third is a plan that was not taken, the fourth what was left of a process that was killed as it wrote one.
    own = ("task-1.md", "task-1.v2.md", get_plan_path(folder, "task-1").name, "task-1.md.4711")
    for name in (*own, "task-12.md", "notes.md"):
        (folder / name).write_text("Ada Lovelace came.", encoding="utf-8")
    (folder / own[-1]).write_bytes("Ada Lovelace came. é".encode()[:-1])
    ada = ErasureQuery(value="Ada Lovelace")
    assert count_report_matches(without_server.reports_folder, ["task-1"], ada) == {"task-1": 4}
    assert rewrite_matching_reports(without_server.reports_folder, ["task-1"], ada) == 4
    assert rewrite_matching_reports(without_server.reports_folder, ["task-1"], ada) == 0
    assert delete_task_files(without_server.reports_folder, ["task-1"]) == 4
    assert sorted(path.name for path in folder.iterdir()) == ["notes.md", "task-12.md"]
