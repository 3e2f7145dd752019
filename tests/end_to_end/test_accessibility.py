"""Every page in a real browser, narrow and wide, light and dark: what axe-core says of it, and whether keys suffice."""

import asyncio
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.attacks.test_attacks_web_pages import store_hostile_task, store_running_task
from tests.end_to_end.axe_checks import LAYOUTS, WIDE, Scheme, find_accessibility_faults, find_faults_in_all_layouts
from tests.end_to_end.browser import launch_browser, needs_chromium
from tests.end_to_end.test_serve import run_server_process
from tests.support.finished_tasks import store_finished_task
from tests.support.free_ports import find_free_port
from waystation.config.settings import Settings

pytestmark = needs_chromium


def opened(started: Browser, address: str, scheme: Scheme, width: int) -> Page:
    context = started.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(address)
    return page


@pytest.mark.timeout(300)
def test_no_page_has_a_serious_fault_narrow_or_wide_light_or_dark_and_keys_suffice(tmp_path: Path) -> None:
    home = tmp_path / "home"
    settings = Settings(home=home, offline=True)
    ended, hostile, running = (
        asyncio.run(keep(settings)) for keep in (store_finished_task, store_hostile_task, store_running_task)
    )
    paths = [
        "/",
        "/inbox",
        "/schedules",
        "/documents",
        f"/?follow={ended}",
        f"/tasks/{ended}/document?name=a.md",
        f"/tasks/{ended}/shares",
        "/memory?query=harbour",
        "/sessions",
        "/session?name=default",
        "/spending?since=2026-11-01&by=task",
        "/spending?until=2020-01-01",
        *(f"/tasks/{task}" for task in (ended, hostile, running)),
        f"/tasks/{hostile}/report",
        f"/tasks/{running}/agents/research",
        f"/tasks/{running}/agents/research/compactions",
        f"/tasks/{running}/plan",
        f"/tasks/{running}/activity?event=3",
        "/?phase=partial&text=which",
        "/tasks/task-0000000000000000",
    ]
    port = find_free_port()
    with run_server_process(home, port) as token, launch_browser() as started:
        address = f"http://127.0.0.1:{port}"
        nobody = opened(started, f"{address}/sessions", "light", WIDE)
        expect(nobody.get_by_role("heading", name="Sign in")).to_be_visible()
        assert find_faults_in_all_layouts(nobody) == {}
        nobody.get_by_label("API key").fill(token)
        nobody.get_by_role("button", name="Sign in").click()
        nobody.wait_for_url("**/sessions")
        for scheme, width in LAYOUTS:
            page = opened(started, f"{address}/?token={token}", scheme, width)
            found = {path: find_accessibility_faults(page) for path in paths if is_shown(page, address, path)}
            assert found == {path: [] for path in paths}, (scheme, width)
            page.context.close()
        by_keys(opened(started, f"{address}/?token={token}", "light", WIDE))


def is_shown(page: Page, address: str, path: str) -> bool:
    """Open the page. Fails if it is an error page, except that of a task that there is not."""
    answer = page.goto(f"{address}{path}")
    assert answer is not None
    assert answer.status == (404 if path.endswith("task-0000000000000000") else 200), path
    return True


def by_keys(page: Page) -> None:
    """From the list to a task and to the end of what may be done there, without a mouse."""
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Waystation")).to_be_focused()
    for name in ("Inbox", "Sessions", "Schedules", "Memory", "Documents", "Spending"):
        page.keyboard.press("Tab")
        expect(page.get_by_role("navigation").get_by_role("link", name=name)).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Question")).to_be_focused()
    for _ in ("documents", "a folder", "budget", "more options", "start", "find", "the first task"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tasks/task-*")
    page.get_by_text("Cancel this task").or_(page.get_by_text("Fork: a new task")).first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("details[open] :focus")).to_be_visible()
