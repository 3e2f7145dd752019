"""Takes the pictures of README and docs: `make pictures`. Needs Chromium.

`waystation up` runs in a folder of its own with the offline model. The task is that of `waystation demo`: 80 installed
packages, a budget that is too small, and a window that fills up.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.end_to_end.browser import launch_browser
from tests.end_to_end.shell import ROOT, Shell, wait_until
from waystation.cli.demo import DOCUMENTS, QUESTION
from waystation.documents.document_loading import write_package_documents
from waystation.runtime.temporal.run_file import RunFile, read_run_file

IMAGES = ROOT / "docs" / "images"
PAGES, TEMPORAL_UI = ViewportSize(width=1180, height=760), ViewportSize(width=1440, height=1150)
"""Pixels of the window."""
SETTLE_MS = 2_000
"""Until fonts, transitions and the Temporal UI's own requests are done."""
GRANT = "150k"
OPTIONS = ("--budget", "450k", "--agent-budget", "100k", "--window", "32000", "--session", "licences", "--detach")


def submit_demo_question(shell: Shell, folder: Path) -> str:
    """Submit the question of the demo over its documents. Returns the task's id."""
    write_package_documents(folder / "all")
    chosen = folder / "packages"
    chosen.mkdir()
    for path in sorted((folder / "all").iterdir())[:DOCUMENTS]:
        shutil.copy(path, chosen / path.name)
    return str(shell.run_json("submit", QUESTION, "--docs", str(chosen), *OPTIONS)["task_id"])


def wait_for_phase(shell: Shell, task: str, *phases: str) -> str:
    """Wait until the task is in one of these phases. Returns the phase."""
    seen: list[str] = []

    def is_reached() -> bool:
        seen.append(str(shell.run_json("show", task)["phase"]))
        return seen[-1] in phases

    wait_until(is_reached, 900, " or ".join(phases))
    return seen[-1]


def approve_until_over(shell: Shell, task: str) -> None:
    """Approve whatever the task asks for until it has ended."""
    while wait_for_phase(shell, task, "paused", "done", "partial") == "paused":
        shell.run("approve", task, "--all", "--add", GRANT)


def take_picture(page: Page, name: str, *, height: int | None = None) -> None:
    """Take a picture of the window, or of its upper part."""
    page.wait_for_timeout(SETTLE_MS)
    size = page.viewport_size
    assert size is not None
    page.screenshot(
        path=IMAGES / name, clip={"x": 0, "y": 0, "width": size["width"], "height": height or size["height"]}
    )


def take_temporal_picture(browser: Browser, run: RunFile, task: str, tab: str, name: str) -> None:
    """Take a picture of a tab of the task's workflow in the Temporal UI."""
    page = browser.new_page(viewport=TEMPORAL_UI)
    page.goto(f"{run.ui_url}/namespaces/default/workflows/{task}")
    page.get_by_role("link", name=tab).or_(page.get_by_role("tab", name=tab)).first.click()
    take_picture(page, name)
    page.close()


def take_all(shell: Shell, folder: Path) -> None:
    """Take the pictures while the task works, waits and is done."""
    run = read_run_file(shell.home / "run.json")
    assert run is not None
    with launch_browser() as browser:
        page = browser.new_page(viewport=PAGES)
        page.goto(run.pages)
        front = re.sub(r"\?.*|#.*", "", page.url)
        task = submit_demo_question(shell, folder)
        wait_for_phase(shell, task, "paused")
        page.goto(f"{front}inbox")
        take_picture(page, "page-inbox.png")
        take_temporal_picture(browser, run, task, "User Metadata", "task-paused.png")
        approve_until_over(shell, task)
        page.goto(front)
        take_picture(page, "page-home.png")
        page.goto(f"{front}tasks/{task}")
        take_picture(page, "page-task.png")
        page.goto(f"{front}tasks/{task}/activity")
        take_picture(page, "page-activity.png")
        page.goto(f"{front}tasks/{task}/report")
        page.locator("main a", has_text=re.compile(r"^\[?\d+\]?$")).first.click()
        expect(page.locator("mark, .marked, .cited").first).to_be_visible()
        take_picture(page, "page-report.png")
        take_temporal_picture(browser, run, task, "Timeline", "task-finished.png")


def main() -> None:
    """Run the platform and take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(Path(folder) / "home", {"WAYSTATION_OFFLINE": "true", "WAYSTATION_PAGES": "true"})
        up = shell.run("up")
        sys.stdout.write(up.stdout + up.stderr)
        try:
            take_all(shell, Path(folder))
        finally:
            shell.run("down")


if __name__ == "__main__":
    main()
