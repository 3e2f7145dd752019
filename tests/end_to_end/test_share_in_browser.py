"""A link to a report in a real browser: it is shown once, and opens the report for someone who is not signed in."""

import asyncio
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.end_to_end.browser import launch_browser, needs_chromium
from tests.end_to_end.pages_server import run_pages_server
from tests.support.finished_tasks import store_finished_task
from tests.support.free_ports import find_free_port
from waystation.config.settings import Settings

pytestmark = [
    needs_chromium,
    pytest.mark.timeout(240),
]


def test_a_new_link_is_shown_and_opens_the_report_for_someone_who_is_not_signed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")
    settings = Settings(home=tmp_path / "home", offline=True)
    task = asyncio.run(store_finished_task(settings))
    with run_pages_server(settings, find_free_port()) as pages, launch_browser() as started:
        page = started.new_page()
        page.goto(pages.sign_in_url)
        page.goto(f"{pages.address}/tasks/{task}/shares")
        page.get_by_label("Days until it expires").fill("soon")
        page.get_by_role("button", name="Create a link").click()
        expect(page.locator("#share .fault").first).to_be_visible()
        assert page.get_by_text("No link yet.").is_visible()
        page.get_by_label("Days until it expires").fill("3")
        page.get_by_role("button", name="Create a link").click()
        shown = page.get_by_role("heading", name="The new link").locator("xpath=..").get_by_role("link")
        expect(shown).to_be_visible()
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("() => navigator.clipboard.readText()") == shown.inner_text()
        assert page.locator("section table tbody tr").count() == 1
        stranger = started.new_context().new_page()
        answer = stranger.goto(shown.inner_text())
        assert answer is not None
        assert answer.ok
        page.reload()
        expect(page.get_by_role("heading", name="Links")).to_be_visible()
        assert not shown.is_visible(), "an address is shown once"
