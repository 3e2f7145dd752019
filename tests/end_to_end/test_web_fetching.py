"""Agents fetch pages: what must not be read, and what cannot be read, are short errors that a task lives with."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from tests.end_to_end.harbour_documents import QUESTION, write_harbour_documents
from tests.end_to_end.messages_server import run_server
from tests.end_to_end.scripted_messages_server import ScriptedMessagesServer
from tests.end_to_end.test_crash_recovery import run_local_platform
from tests.end_to_end.transcripts import ToolCallResult, load_tool_calls
from tests.support.web_site import (
    ALLOWED_ADDRESS,
    FORBIDDEN_ADDRESS,
    FakeSite,
    SiteHandler,
    redirect_to,
    respond_with,
    run_site,
)
from waystation.plugins.offline.responses import OfflineToolCall, build_call

OPEN, CLOSED = FORBIDDEN_ADDRESS, ALLOWED_ADDRESS
"""Of the two addresses of loopback only the first may be read here."""
SAID = "The harbour of Nordvik was closed by silt in 1871, says the chronicle."
SHORT = 300
"""Characters: no error is longer."""


async def endless(request: web.Request) -> web.StreamResponse:
    """A page that does not say how long it is, and does not end."""
    answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await answer.prepare(request)
    while True:
        await answer.write(b"harbour " * 8_192)


async def silent(_: web.Request) -> web.Response:
    """A page that never comes."""
    await asyncio.sleep(3_600)
    return web.Response()


def pages(closed: FakeSite) -> dict[str, SiteHandler]:
    """What the open site has."""
    return {
        "/robots.txt": respond_with("User-agent: *\nDisallow: /diary"),
        "/diary": respond_with("Dear diary"),
        "/chronicle": respond_with(f"<html><body><p>{SAID}</p></body></html>", "text/html"),
        "/endless": endless,
        "/silent": silent,
        "/elsewhere": redirect_to(closed.url("/ledger", CLOSED)),
        "/elsewhere-by-name": redirect_to(closed.url("/ledger", "localhost")),
    }


@dataclass(frozen=True)
class Visit:
    """A task whose researcher fetched pages, and what became of it."""

    site: FakeSite
    closed: FakeSite
    phase: str
    report: str
    results: dict[str, ToolCallResult]
    """Of the fetches, by address."""

    def error(self, address: str) -> str:
        """What the agent was told instead of a page."""
        result = self.results[address]
        assert result.is_error
        assert len(result.text) < SHORT
        return result.text


def fetches(site: FakeSite, closed: FakeSite) -> list[str]:
    """What the researcher asks for."""
    private = [closed.url("/ledger", CLOSED), closed.url("/ledger", "localhost")]
    ways = ["/elsewhere", "/elsewhere-by-name", "/diary", "/endless", "/silent", "/chronicle"]
    return [*private, *(site.url(path, OPEN) for path in ways)]


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    folder = tmp_path_factory.mktemp("pages")
    documents = write_harbour_documents(folder / "harbours")
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        ledger = {"/ledger": respond_with("Silt of Nordvik: what the harbour owes in private")}
        closed = stack.enter_context(portal.wrap_async_context_manager(run_site(ledger, CLOSED)))
        site = stack.enter_context(portal.wrap_async_context_manager(run_site(pages(closed), OPEN)))
        asked, chronicle = fetches(site, closed), site.url("/chronicle", OPEN)
        note = build_call("take_note", text=SAID, document=chronicle, first_line=1, last_line=1)
        script: list[list[OfflineToolCall]] = [[build_call("fetch_page", url=url) for url in asked], [note]]
        server = stack.enter_context(run_server(ScriptedMessagesServer(delay=0.0, scripts={"research-1": script})))
        settings = {
            "WAYSTATION_WEB": "true",
            "WAYSTATION_WEB_ALLOW": "*",
            "WAYSTATION_WEB_REACHABLE": f"{OPEN}/32",
        }
        shell = stack.enter_context(run_local_platform(folder / "home", server, **settings))
        task = str(shell.run_json("submit", QUESTION, "--docs", str(documents), "--detach")["task_id"])
        phase = shell.approve_until_over(task)
        fetched = [one for one in load_tool_calls(shell, task, "research-1") if one.tool == "fetch_page"]
        report = shell.run("report", task).stdout
        yield Visit(site, closed, phase, report, dict(zip(asked, fetched, strict=True)))


pytestmark = pytest.mark.timeout(600)


def test_private_addresses_are_not_connected_to_by_number_by_name_or_through_a_redirect(visit: Visit) -> None:
    for address in (
        visit.closed.url("/ledger", CLOSED),
        visit.closed.url("/ledger", "localhost"),
        visit.site.url("/elsewhere", OPEN),
        visit.site.url("/elsewhere-by-name", OPEN),
    ):
        assert "leads to an address that is not public" in visit.error(address)
    assert visit.closed.visits == []
    assert {"/elsewhere", "/elsewhere-by-name"} <= set(visit.site.pages)


def test_pages_that_robots_txt_closes_are_not_visited(visit: Visit) -> None:
    assert "does not let programs read this page" in visit.error(visit.site.url("/diary", OPEN))
    assert "/diary" not in visit.site.pages


def test_a_page_without_an_end_and_one_that_never_comes_are_short_errors(visit: Visit) -> None:
    assert "is larger than 10 MB" in visit.error(visit.site.url("/endless", OPEN))
    assert "did not send the page within 30 s" in visit.error(visit.site.url("/silent", OPEN))


def test_the_task_ends_with_a_report_that_cites_what_could_be_read(visit: Visit) -> None:
    read = visit.results[chronicle := visit.site.url("/chronicle", OPEN)]
    assert not read.is_error
    assert read.text.startswith("<web_page ")
    assert SAID in read.text
    assert visit.phase == "done"
    assert f'"{SAID}" [{chronicle}:1-1]' in visit.report
    assert "citations point to lines that exist" in visit.report
