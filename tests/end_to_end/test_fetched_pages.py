"""Agents fetch pages: what must not be read, and what cannot be read, are short errors that a task lives with."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from tests.end_to_end.harbours import ASKED, write_harbours
from tests.end_to_end.messages_server import serving
from tests.end_to_end.scripted_agents import ScriptedServer
from tests.end_to_end.test_killed_platform import platform
from tests.end_to_end.transcripts import Made, made
from tests.web_site import HERE, WITHIN, Answer, Site, answering, leading_to, running_site
from waystation.plugins.offline.replies import Call, call

OPEN, CLOSED = WITHIN, HERE
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


def pages(closed: Site) -> dict[str, Answer]:
    """What the open site has."""
    return {
        "/robots.txt": answering("User-agent: *\nDisallow: /diary"),
        "/diary": answering("Dear diary"),
        "/chronicle": answering(f"<html><body><p>{SAID}</p></body></html>", "text/html"),
        "/endless": endless,
        "/silent": silent,
        "/elsewhere": leading_to(closed.url("/ledger", CLOSED)),
        "/elsewhere-by-name": leading_to(closed.url("/ledger", "localhost")),
    }


@dataclass(frozen=True)
class Visit:
    """A task whose researcher fetched pages, and what became of it."""

    site: Site
    closed: Site
    phase: str
    report: str
    results: dict[str, Made]
    """Of the fetches, by address."""

    def error(self, address: str) -> str:
        """What the agent was told instead of a page."""
        result = self.results[address]
        assert result.is_error
        assert len(result.text) < SHORT
        return result.text


def fetches(site: Site, closed: Site) -> list[str]:
    """What the researcher asks for."""
    private = [closed.url("/ledger", CLOSED), closed.url("/ledger", "localhost")]
    ways = ["/elsewhere", "/elsewhere-by-name", "/diary", "/endless", "/silent", "/chronicle"]
    return [*private, *(site.url(path, OPEN) for path in ways)]


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    folder = tmp_path_factory.mktemp("pages")
    documents = write_harbours(folder / "harbours")
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        ledger = {"/ledger": answering("Silt of Nordvik: what the harbour owes in private")}
        closed = stack.enter_context(portal.wrap_async_context_manager(running_site(ledger, CLOSED)))
        site = stack.enter_context(portal.wrap_async_context_manager(running_site(pages(closed), OPEN)))
        asked, chronicle = fetches(site, closed), site.url("/chronicle", OPEN)
        note = call("take_note", text=SAID, document=chronicle, first_line=1, last_line=1)
        script: list[list[Call]] = [[call("fetch_page", url=url) for url in asked], [note]]
        server = stack.enter_context(serving(ScriptedServer(delay=0.0, scripts={"research-1": script})))
        settings = {
            "WAYSTATION_WEB": "true",
            "WAYSTATION_WEB_ALLOW": "*",
            "WAYSTATION_WEB_REACHABLE": f"{OPEN}/32",
        }
        shell = stack.enter_context(platform(folder / "home", server, **settings))
        task = str(shell.json("submit", ASKED, "--docs", str(documents), "--detach")["task_id"])
        phase = shell.answer_until_over(task)
        fetched = [one for one in made(shell, task, "research-1") if one.tool == "fetch_page"]
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
    assert "did not answer within 30 s" in visit.error(visit.site.url("/silent", OPEN))


def test_the_task_ends_with_a_report_that_cites_what_could_be_read(visit: Visit) -> None:
    read = visit.results[chronicle := visit.site.url("/chronicle", OPEN)]
    assert not read.is_error
    assert read.text.startswith("<web_page ")
    assert SAID in read.text
    assert visit.phase == "done"
    assert f'"{SAID}" [{chronicle}:1-1]' in visit.report
    assert "citations were checked against the documents, and hold" in visit.report
