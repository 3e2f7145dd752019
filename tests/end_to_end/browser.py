"""A real browser for the tests of pages: that of this machine, and a window in which a person is signed in."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.end_to_end.pages_server import PagesServer, run_pages_server
from tests.support.free_ports import find_free_port
from waystation.config.settings import Settings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 90_000.0
"""Milliseconds until what does not come fails the test."""
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium on this machine: apt-get install chromium"
)


@contextmanager
def launch_browser() -> Generator[Browser]:
    """That of this machine: nothing is fetched."""
    with sync_playwright() as playwright:
        # A container has no user namespaces for its sandbox; what is shown here is our own.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        expect.set_options(timeout=PATIENCE)
        yield started
        started.close()


@contextmanager
def open_pages(settings: Settings) -> Generator[tuple[PagesServer, Page]]:
    """A server of pages, and a window in which a person is signed in, at the list of tasks."""
    with run_pages_server(settings, find_free_port()) as pages, launch_browser() as started:
        page = started.new_page()
        page.goto(pages.sign_in_url)
        yield pages, page
