"""A task's activity in a real browser: filters, zoom by mouse and keys, and links that survive a reload."""

import asyncio
import re

import pytest
from playwright.sync_api import Page, expect

from tests.end_to_end.axe_checks import find_faults_in_all_layouts
from tests.end_to_end.browser import launch_browser, needs_chromium, open_pages
from tests.end_to_end.pages_server import run_pages_server
from tests.support.busy_task import AGENT, store_busy_task
from tests.support.free_ports import find_free_port
from waystation.config.settings import Settings

pytestmark = [
    needs_chromium,
    pytest.mark.timeout(240),
]


def zoom_by_keys(page: Page) -> None:
    """The timeline has the focus after each key, so that the next one works."""
    timeline = page.get_by_role("region", name="Timeline")
    timeline.focus()
    for key, address in (
        ("+", r"since=.*until=.*#timeline"),
        ("Shift+ArrowLeft", r"activity\?until=[^&]*#timeline"),
        ("0", r"/activity#timeline"),
    ):
        page.keyboard.press(key)
        expect(page).to_have_url(re.compile(address))
        expect(timeline).to_be_focused()


def test_activity_is_filtered_zoomed_by_keys_and_mouse_and_linked(settings: Settings) -> None:
    task = asyncio.run(store_busy_task(settings))
    with run_pages_server(settings, find_free_port()) as pages, launch_browser() as started:
        context = started.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        faults: list[str] = []
        page.on("console", lambda one: faults.append(one.text) if one.type == "error" else None)
        page.goto(pages.sign_in_url)
        page.goto(f"{pages.address}/tasks/{task}")
        page.get_by_role("link", name="All activity").click()
        assert find_faults_in_all_layouts(page) == {}
        page.set_viewport_size({"width": 1280, "height": 900})
        zoom_by_keys(page)

        # With the mouse: one agent by its name, and a time range by dragging over it.
        page.locator("svg.lanes > a", has_text=AGENT).click()
        expect(page).to_have_url(re.compile(f"agent={AGENT}"))
        expect(page.locator("svg.lanes > a > text")).to_have_text([AGENT])
        box = page.locator("svg.lanes").bounding_box()
        assert box is not None
        y = box["y"] + box["height"] - 4
        page.mouse.move(box["x"] + box["width"] * 0.5, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, y, steps=4)
        page.mouse.up()
        expect(page).to_have_url(re.compile(f"agent={AGENT}&since=.*&until=.*#timeline"))
        expect(page.get_by_role("heading", name="Timeline")).to_contain_text(" to ")

        page.get_by_role("link", name="Show all").click()
        page.get_by_role("combobox", name="Agent").select_option(AGENT)
        page.get_by_role("combobox", name="Events").select_option(label="model replied")
        page.get_by_role("button", name="Show").click()
        rows = page.locator("#events tbody tr")
        expect(rows).to_have_count(3)

        # The link to an event shows it again after a reload, and after the page has renewed itself.
        number = rows.last.get_by_role("link").first.inner_text()
        rows.last.get_by_role("link").first.click()
        chosen = page.locator("tr.chosen")
        for again in (False, True):
            if again:
                page.reload()
            expect(chosen).to_have_attribute("id", f"event-{number}")
            expect(chosen).to_be_in_viewport()
        before = page.locator("#events tbody tr").count()
        pages.rename_task(task, "Which harbour?")
        expect(page.locator("#events tbody tr")).to_have_count(before + 1)
        expect(chosen).to_have_attribute("id", f"event-{number}")

        # The link to a message, too.
        chosen.get_by_role("link").last.click()
        expect(page.locator("article :target")).to_be_in_viewport()
        page.reload()
        expect(page.locator("article :target")).to_be_in_viewport()
        assert faults == []


def test_messages_of_an_agent_are_one_line_each_and_opened_by_a_click_or_by_a_link(settings: Settings) -> None:
    task = asyncio.run(store_busy_task(settings))
    with open_pages(settings) as (pages, page):
        page.goto(f"{pages.address}/tasks/{task}/agents/{AGENT}")
        folded = page.locator(".message > details:has(> .line)")
        opened = page.locator(".message > details[open]:has(> .line)")
        count = folded.count()
        assert count > 2
        expect(opened).to_have_count(1)
        expect(folded.last).to_have_attribute("open", "")
        assert find_faults_in_all_layouts(page) == {}
        heights: list[float] = folded.evaluate_all("(all) => all.slice(0, -1).map((one) => one.offsetHeight)")
        assert max(heights) < 40, "narrow and wide, each is one line"
        folded.first.locator("summary.line").click()
        expect(opened).to_have_count(2)
        page.get_by_role("button", name="Expand all").click()
        expect(opened).to_have_count(count)
        assert find_faults_in_all_layouts(page) == {}
        page.get_by_role("button", name="Fold all").click()
        expect(opened).to_have_count(0)
        place = folded.nth(1).locator(".body").get_attribute("id")
        page.goto(f"{pages.address}/tasks/{task}")
        page.goto(f"{pages.address}/tasks/{task}/agents/{AGENT}#{place}")
        expect(folded.nth(1)).to_have_attribute("open", "")
        expect(page.locator(":target")).to_be_in_viewport()
