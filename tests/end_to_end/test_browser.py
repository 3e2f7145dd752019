"""What a person does in the browser, in a real one, while the worker is killed."""

import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.end_to_end.axe_checks import find_faults_in_all_layouts
from tests.end_to_end.browser import PATIENCE, launch_browser, needs_chromium
from tests.end_to_end.shell import ROOT, WAYSTATION, Shell, terminate, wait_until
from tests.end_to_end.survey_documents import QUESTION, write_survey_documents
from tests.end_to_end.test_team_deployment import is_health_ready
from tests.support.free_ports import find_free_port
from waystation.runtime.temporal.connect import TemporalTarget


class KillableWorker:
    """All queues in one process, which can be killed and is then there again."""

    def __init__(self, shell: Shell, log: Path) -> None:
        self._shell, self._log = shell, log
        self.process = self._begun()

    def _begun(self) -> subprocess.Popen[bytes]:
        health = f"127.0.0.1:{find_free_port()}"
        started = self._shell.with_settings(WAYSTATION_HEALTH_ADDRESS=health).start("worker", log=self._log)
        wait_until(lambda: is_health_ready(health), 180, "readiness of the worker")
        return started

    def kill(self) -> None:
        """Without a warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.process = self._begun()


@contextmanager
def run_serve_command(shell: Shell) -> Generator[str]:
    """`waystation serve`, by the address that it prints."""
    with subprocess.Popen(
        [*WAYSTATION, "serve", "--listen", f"127.0.0.1:{find_free_port()}"],
        cwd=ROOT,
        env=shell.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def submit_question(page: Page, documents: list[Path]) -> None:
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_label("Choose documents").set_input_files(documents)
    page.get_by_label("Budget", exact=True).fill("40k")
    page.get_by_role("button", name="Start research").click()
    page.wait_for_url("**/tasks/task-*")


def approve_all(page: Page, address: str) -> None:
    """In the inbox, until nothing waits any more."""
    page.goto(f"{address}inbox")
    while (waiting := page.get_by_role("button", name="Approve")).count():
        request = page.locator("article.request").first
        request.get_by_label("Another amount").fill("100k")
        request.get_by_label("Your name").fill("Ada")
        # What one grant leaves may pay for the next request, too: then nobody has to answer that one.
        with page.expect_navigation():
            waiting.first.click()
        page.goto(f"{address}inbox")


def answer_chosen(page: Page, address: str) -> None:
    """All that wait, by one confirmation, whose pages are looked at in passing."""
    page.goto(f"{address}inbox")
    chosen = [box.get_attribute("value") or "" for box in page.get_by_role("checkbox", name="answer together").all()]
    one = page.locator("article.request form").first
    only = f"{(one.get_attribute('action') or '').split('/')[2]}/{one.locator('[name=request_id]').input_value()}"
    page.goto(f"{address}answers?{urlencode([('request', request) for request in chosen or [only]])}")
    assert find_faults_in_all_layouts(page) == {}
    page.get_by_label("Your name").fill("Ada")
    page.get_by_role("button", name="Approve all").click()
    expect(page.locator(".phase.done").first).to_have_text("approved")
    assert find_faults_in_all_layouts(page) == {}


def watch(page: Page, phase: str) -> None:
    """Stay on the task's page, which follows it by itself."""
    expect(page.locator("#live > p .phase").first).to_have_text(phase)


def approve_until_done(page: Page, front: str, task: str) -> None:
    """What was suggested may not last to the end: then the task asks again, and is answered again."""
    phase = page.locator("#live > p .phase").first
    while True:
        page.goto(task)
        expect(phase).to_have_text(re.compile(r"^(paused|done)$"))
        if phase.inner_text() == "done":
            return
        approve_all(page, front)


@needs_chromium
@pytest.mark.timeout(600)
def test_a_person_hands_in_watches_approves_reads_rewinds_and_exports_while_the_worker_is_killed(
    tmp_path: Path, temporal_server: TemporalTarget
) -> None:
    survey = write_survey_documents(tmp_path / "survey")
    settings = {"WAYSTATION_OFFLINE": "true", "TEMPORAL_ADDRESS": temporal_server.address}
    shell = Shell(tmp_path / "home", {**settings, "WAYSTATION_TENANT": "browser"})
    worker = KillableWorker(shell, tmp_path / "worker.log")
    try:
        with run_serve_command(shell) as address, launch_browser() as started:
            page = started.new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(address)
            submit_question(page, sorted(survey.iterdir())[:2])
            task, front = page.url, page.url.partition("/tasks/")[0]
            expect(page.locator("svg.lanes .call").first).to_be_visible()
            watch(page, "paused")

            answer_chosen(page, f"{front}/")
            approve_all(page, f"{front}/")
            worker.kill()
            worker.restart()
            approve_until_done(page, f"{front}/", task)
            lanes = page.locator("svg.lanes > a > text").all_text_contents()
            assert {"plan", "research-1", "writing"} <= set(lanes)

            page.get_by_role("link", name="Read next to its sources").click()
            page.locator(".report a.cite").first.click()
            cited = page.locator("tr.cited")
            expect(cited.first).to_be_in_viewport()
            assert "Harbour Nordvik" in cited.first.inner_text()

            page.goto(f"{task}/agents/writing")
            page.get_by_role("button", name="Expand all").click()
            page.locator("article.message.assistant").first.get_by_text("rewind to here").click()
            page.locator("article.message.assistant").first.get_by_role("button", name="Yes").click()
            page.wait_for_url(task)
            expect(page.locator(".imprint").first).to_contain_text("version 2")
            approve_until_done(page, f"{front}/", task)
            expect(page.locator("svg.lanes rect.rewound").first).to_be_attached()

            with page.expect_download() as kept:
                page.get_by_role("link", name="Export this run").click()
            kept.value.save_as(tmp_path / "run.html")
            exported(started, tmp_path / "run.html")
    finally:
        terminate(worker.process)


def exported(started: Browser, file: Path) -> None:
    """The file alone, without a server: it loads nothing, and its marks lead to messages in it."""
    page = started.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.locator("svg.lanes a:has(rect.call)").first.click()
    assert re.search(r"#[a-z0-9.-]+--", page.url)
    expect(page.locator(":target")).to_be_in_viewport()
    assert asked == [file.as_uri()]
