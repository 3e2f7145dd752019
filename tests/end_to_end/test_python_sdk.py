"""From Python, as scripts and notebooks do it: the same names, waiting or awaiting; rows, frames and what is shown."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end.shell import ROOT, Shell, terminate
from tests.end_to_end.survey_documents import QUESTION, TIGHT_BUDGET, write_survey_documents
from tests.end_to_end.test_browser import KillableWorker, run_serve_command
from tests.end_to_end.test_documented_commands import FENCE
from waystation import AsyncWaystation, Waystation
from waystation.client.sdk_values import render_html_table
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount
from waystation.kernel.errors import BadInput, UnknownTask, Unreachable
from waystation.runtime.temporal.connect import TemporalTarget
from waystation.sdk import read_documents
from waystation.tasks.progress import SessionSummary

PAGE = (ROOT / "docs" / "how-to" / "use-from-python.md").read_text(encoding="utf-8")
PROGRAM = "\n".join(block for kind, block in FENCE.findall(PAGE) if kind == "python")
"""What the page on it shows, as one program."""


@pytest.fixture
def address(tmp_path: Path, temporal_server: TemporalTarget) -> Generator[str]:
    settings = {"WAYSTATION_OFFLINE": "true", "TEMPORAL_ADDRESS": temporal_server.address}
    shell = Shell(tmp_path / "home", {**settings, "WAYSTATION_TENANT": "notebook"})
    worker = KillableWorker(shell, tmp_path / "worker.log")
    try:
        with run_serve_command(shell) as printed:
            yield printed
    finally:
        terminate(worker.process)


def shown(value: object) -> str:
    """As a notebook asks for it."""
    as_html: Callable[[], str] = getattr(value, "_repr_html_")  # noqa: B009  a name that notebooks know
    return as_html()


async def by_awaiting(address: str, docs: Path) -> list[str]:
    async with AsyncWaystation(address) as ws:
        task = await ws.submit(QUESTION, [docs], session="awaited", budget=TIGHT_BUDGET)
        while not (task := await ws.wait(task)).over:
            for asked in await ws.approvals(task):
                await ws.approve(asked, "100k", by="Ada")
        report = await ws.report(task)
        return [task.phase, report.markdown.splitlines()[0], *[one.session for one in await ws.sessions()]]


@pytest.mark.timeout(600)
def test_a_task_from_a_script_and_from_a_notebook_whose_own_loop_runs(address: str, tmp_path: Path) -> None:
    docs = write_survey_documents(tmp_path / "survey")

    async def in_a_notebook() -> None:
        with Waystation(address) as ws:
            task = ws.submit(QUESTION, [docs], session="waited", budget=TIGHT_BUDGET, accept=["It names a harbour."])
            paused = ws.wait(task)
            assert (paused.phase, bool(paused.pending_approvals)) == ("paused", True)
            assert paused.title in repr(paused)
            assert ws.send_message(task, "Give depths in metres.").startswith("done: the built-in model")
            while not (task := ws.wait(task)).over:
                for asked in ws.approvals(task):
                    ws.approve(asked, "100k", by="Ada", note="go on")
            report, bill, log = ws.report(task), ws.bill(task), ws.transcript(task, "writing")
            assert (task.phase, report.phase) == ("done", "done")
            assert str(report).startswith("> **No LLM wrote this.**")
            assert "<strong>No LLM wrote this.</strong>" in shown(report)
            frame = bill.to_frame()
            assert list(frame["agent"]) == [line.agent for line in bill]
            assert frame["usage.output"].sum() == sum(line.usage.output for line in bill)
            assert log[0].role == "user"
            assert len(log[:2]) == 2
            assert [one.task_id for one in ws.tasks(session="waited")] == [task.task_id]
            assert {one.task_id for one in ws.spending(session="waited")} == {task.task_id}
            again = ws.wait(ws.fork(task, "writing", budget="200k"), through_pauses=True)
            assert again.over
            assert ws.cancel(again).phase == again.phase
            early = ws.wait(ws.submit(QUESTION, [docs], session="early", budget=TIGHT_BUDGET))
            assert early.phase == "paused"
            assert ws.deliver(early, by="Ada", note="The board meets.") == "done"
            assert ws.wait(early, through_pauses=True).phase == "partial"
            with pytest.raises(BadInput, match="has already ended: partial; `waystation report"):
                ws.deliver(early)
            with pytest.raises(UnknownTask):
                ws.task("task-0123456789abcdef")
            with pytest.raises(BadInput, match=r"unknown phase in .*gone"):
                ws.tasks(phases=["gone"])
            with pytest.raises(BadInput, match="is not an amount"):
                ws.approve(task, "much")
            with pytest.raises(BadInput, match="give documents to work on"):
                ws.submit(QUESTION)
            with pytest.raises(BadInput, match="question: it is empty; mode: "):
                ws.submit("  ", [docs], mode="generous")
        with pytest.raises(BadInput, match="this client is closed"):
            ws.tasks()

    asyncio.run(in_a_notebook())
    phase, head, *sessions = asyncio.run(by_awaiting(address, docs))
    assert (phase, head[:6]) == ("done", "> **No")
    assert set(sessions) == {"waited", "early", "awaited"}


@pytest.mark.timeout(600)
def test_what_the_page_shows_finds_what_up_started_and_ends_cleanly_without_a_with(tmp_path: Path) -> None:
    shell = Shell(
        tmp_path / "home", {"WAYSTATION_OFFLINE": "true", "WAYSTATION_PAGES": "true", "PYTHONPATH": str(ROOT)}
    )
    write_survey_documents(tmp_path / "survey")

    def run() -> subprocess.CompletedProcess[str]:
        given = [sys.executable, "-c", PROGRAM]
        return subprocess.run(given, cwd=tmp_path, env=shell.environment, capture_output=True, text=True, check=False)

    assert shell.run("up").returncode == 0
    try:
        done = run()
    finally:
        shell.run("down")
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert any(" asks for " in line and line.endswith(" approved: go on") for line in said)
    report = next(number for number, line in enumerate(said) if line.startswith("> **No LLM wrote this.**"))
    assert re.match(r"task-[0-9a-f]{16} done: [0-9,]+ tokens of ", said[report - 1])
    assert said[-1] == "['done']"
    gone = run()
    assert gone.returncode == 1
    assert "no server runs on this machine: start one with `waystation up`" in gone.stderr


def test_what_a_notebook_shows_is_text_whoever_wrote_it() -> None:
    hostile = "<img src=x onerror=alert(1)>\x1b[2J"
    last = datetime(2026, 11, 26, tzinfo=UTC)
    named = SessionSummary(session=hostile, id="i", tasks=1, last_at=last, spent=Amount(), unpriced_calls=0)
    html = render_html_table([named])
    assert "<img" not in html
    assert "\x1b" not in html
    assert "&lt;img src=x" in html
    assert render_html_table([]) == "<table><thead><tr></tr></thead><tbody></tbody></table>"


def test_one_path_or_one_criterion_is_meant_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\nThe bar is two fathoms deep.\n")
    for docs in (str(tmp_path / "a.md"), tmp_path / "a.md", tmp_path, [tmp_path]):
        assert [one.text for one in read_documents(docs).documents] == ["# A\nThe bar is two fathoms deep."]


def test_whoever_waits_when_it_is_closed_is_told_so(tmp_path: Path) -> None:
    ws, told = Waystation(settings=Settings(home=tmp_path)), list[str]()

    async def long() -> None:
        await asyncio.sleep(60)

    def wait() -> None:
        try:
            ws.run_until_complete(long)
        except BadInput as closed:
            told.append(str(closed))

    waiting = threading.Thread(target=wait)
    waiting.start()
    ws.run_until_complete(partial(asyncio.sleep, 0.1))
    ws.close()
    waiting.join(30)
    assert told == ["this client is closed: make another Waystation()"]


def test_where_nothing_runs_the_next_step_is_named(tmp_path: Path) -> None:
    ws = Waystation(settings=Settings(home=tmp_path))
    with pytest.raises(Unreachable, match="`waystation up`, or give the address and the token of another one"):
        ws.tasks()
    ws.close()
    ws.close()
