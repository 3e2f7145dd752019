import asyncio
import gzip
import zlib
from collections.abc import Mapping

import pytest
from aiohttp import web

from tests.support.document_files import TEXT, make_pdf_file, make_word_file
from tests.support.web_site import NOON, RecordedSleep, SiteHandler, open_fetcher, redirect_to, respond_with, run_site
from waystation.documents.readers.reader import SubprocessWebTextExtractor
from waystation.documents.web_pages import WebPage
from waystation.kernel.errors import WebPageUnreadableError, WebUnavailable
from waystation.security.web_addresses import DomainPolicy

GERMAN = "Über die Größe der Häfen wird überall gestritten, und für die Möwen gilt das natürlich auch."
PAGE = "<html><head><title>The harbour</title></head><body><h1>Silt</h1><p>It closed in 1821.</p></body></html>"


async def fetched(
    page_reader: SubprocessWebTextExtractor, pages: Mapping[str, SiteHandler], path: str = "/", **terms: object
) -> WebPage:
    async with run_site(pages) as site, open_fetcher(page_reader, **terms) as web_pages:
        return await web_pages.fetch(site.url(path))


async def test_a_page_has_its_title_its_lines_and_when_it_was_fetched(page_reader: SubprocessWebTextExtractor) -> None:
    page = await fetched(page_reader, {"/": respond_with(PAGE, "text/html; charset=utf-8")})
    assert (page.title, page.lines) == ("The harbour", ("The harbour", "", "# Silt", "", "It closed in 1821."))
    assert page.retrieved == NOON
    assert page.url.startswith("http://127.0.0.1:")


async def test_we_say_who_we_are(page_reader: SubprocessWebTextExtractor) -> None:
    async with run_site({"/": respond_with("text")}) as site, open_fetcher(page_reader) as web_pages:
        await web_pages.fetch(site.url("/"))
    assert site.agents == {"Waystation/1.0 (tests)"}


@pytest.mark.parametrize(
    ("content", "content_type", "text"),
    [
        (make_pdf_file("Silt closed it."), "application/pdf", "Silt closed it."),
        (make_pdf_file("Silt closed it."), "application/pdf; charset=utf-16", "Silt closed it."),
        (make_pdf_file("Silt closed it."), "application/octet-stream", "Silt closed it."),
        (make_word_file(), "application/vnd.openxmlformats-officedocument.wordprocessingml.document", TEXT),
        (b'{"closed": 1821}', "application/json", '{"closed": 1821}'),
        (b"<feed><entry>1821</entry></feed>", "application/atom+xml", "<feed><entry>1821</entry></feed>"),
        (PAGE.encode(), "application/octet-stream", "It closed in 1821."),
    ],
)
async def test_kinds_that_documents_may_have_are_read(
    page_reader: SubprocessWebTextExtractor, content: bytes, content_type: str, text: str
) -> None:
    assert text in (await fetched(page_reader, {"/": respond_with(content, content_type)})).text


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (GERMAN.encode(), "text/plain; charset=iso-8859-1"),
        (GERMAN.encode("latin-1"), "text/plain; charset=utf-8"),
        (GERMAN.encode("latin-1"), "text/plain; charset=iso-8859-1"),
        (GERMAN.encode("utf-16"), "text/plain; charset=utf-16"),
        (GERMAN.encode(), "text/plain; charset=no-such-thing"),
        (GERMAN.encode(), "text/plain; charset=rot13"),
        (GERMAN.encode(), "text/plain"),
    ],
)
async def test_a_wrong_charset_spoils_no_letters(
    page_reader: SubprocessWebTextExtractor, content: bytes, content_type: str
) -> None:
    assert (await fetched(page_reader, {"/": respond_with(content, content_type)})).text == GERMAN


async def test_a_charset_that_only_the_server_knows_is_believed(page_reader: SubprocessWebTextExtractor) -> None:
    content = "港口关闭".encode("iso2022_jp_2")
    page = await fetched(page_reader, {"/": respond_with(content, "text/html; charset=iso-2022-jp-2")})
    assert page.text == "港口关闭"


@pytest.mark.parametrize("content_type", ["image/png", "video/mp4", "audio/ogg", "font/woff2"])
async def test_what_has_no_text_is_refused_before_it_is_read(
    page_reader: SubprocessWebTextExtractor, content_type: str
) -> None:
    with pytest.raises(WebPageUnreadableError, match=f"^127.0.0.1 sent {content_type}, which has no text"):
        await fetched(page_reader, {"/": respond_with(b"\x00" * 100, content_type)})


async def test_what_cannot_be_read_is_refused_with_the_reason(page_reader: SubprocessWebTextExtractor) -> None:
    with pytest.raises(
        WebPageUnreadableError, match=r"^The page cannot be read: binary, not text. Use another source.$"
    ):
        await fetched(page_reader, {"/": respond_with(b"\x7fELF\x00\x00", "application/x-thing")})


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    while True:
        await response.write(b"and on and on\n" * 5_000)


async def test_a_body_without_an_end_is_left_at_the_limit(page_reader: SubprocessWebTextExtractor) -> None:
    with pytest.raises(WebPageUnreadableError, match=r"^The page of 127.0.0.1 is larger than 1 MB"):
        await fetched(page_reader, {"/": endless}, max_bytes=1_000_000)


async def test_fifty_megabytes_are_refused_by_their_announcement(page_reader: SubprocessWebTextExtractor) -> None:
    async def fifty(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Content-Length": "50000000"})
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    with pytest.raises(WebPageUnreadableError, match="larger than 10 MB"):
        await fetched(page_reader, {"/": fifty})


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_the_limit_holds_for_what_is_unpacked(
    page_reader: SubprocessWebTextExtractor, encoding: str, pack: object
) -> None:
    assert callable(pack)
    bomb = pack(b"a" * 50_000_000)
    assert isinstance(bomb, bytes)
    assert len(bomb) < 100_000
    with pytest.raises(WebPageUnreadableError, match="larger than 1 MB"):
        await fetched(page_reader, {"/": respond_with(bomb, Content_Encoding=encoding)}, max_bytes=1_000_000)


async def test_a_packed_page_is_read(page_reader: SubprocessWebTextExtractor) -> None:
    packed = respond_with(gzip.compress(b"It closed in 1821."), Content_Encoding="gzip")
    assert (await fetched(page_reader, {"/": packed})).text == "It closed in 1821."


async def silent(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def dripping(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    while True:
        await response.write(b".")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("answer", [silent, dripping])
async def test_a_server_that_takes_too_long_is_left(
    page_reader: SubprocessWebTextExtractor, answer: SiteHandler
) -> None:
    with pytest.raises(WebUnavailable, match=r"^127.0.0.1 did not send the page within 0.4 s$"):
        await fetched(page_reader, {"/": answer}, timeout_s=0.4)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, WebPageUnreadableError),
        (401, WebPageUnreadableError),
        (410, WebPageUnreadableError),
        (429, WebUnavailable),
        (503, WebUnavailable),
    ],
)
async def test_a_status_says_whether_another_attempt_is_worth_it(
    page_reader: SubprocessWebTextExtractor, status: int, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"^127.0.0.1 answered {status}"):
        await fetched(page_reader, {"/": respond_with("words of the server", status=status)})


async def test_a_server_that_is_not_there_is_worth_another_attempt(page_reader: SubprocessWebTextExtractor) -> None:
    async with run_site({}) as site:
        gone = site.url("/")
    async with open_fetcher(page_reader) as web_pages:
        with pytest.raises(WebUnavailable, match=r"^the connection to 127.0.0.1 failed"):
            await web_pages.fetch(gone)


async def test_a_page_is_called_by_where_it_is_in_the_end(page_reader: SubprocessWebTextExtractor) -> None:
    pages = {"/old": redirect_to("/new?a=1#part"), "/new": respond_with("moved")}
    async with run_site(pages) as site, open_fetcher(page_reader) as web_pages:
        assert (await web_pages.fetch(site.url("/old"))).url == site.url("/new?a=1")


async def test_five_redirects_are_followed_and_no_sixth(page_reader: SubprocessWebTextExtractor) -> None:
    pages = {f"/{n}": redirect_to(f"/{n - 1}") for n in range(1, 7)} | {"/0": respond_with("there")}
    assert (await fetched(page_reader, pages, "/5")).text == "there"
    with pytest.raises(WebPageUnreadableError, match="redirects more than 5 times"):
        await fetched(page_reader, pages, "/6")


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://example.org/", "http://me:word@example.org/", "http://[", ""]
)
async def test_a_redirect_to_no_address_of_the_web_is_refused(
    page_reader: SubprocessWebTextExtractor, target: str
) -> None:
    with pytest.raises(WebPageUnreadableError):
        await fetched(page_reader, {"/": redirect_to(target)})


async def test_requests_to_one_host_come_one_after_another_with_a_pause(
    page_reader: SubprocessWebTextExtractor,
) -> None:
    slept = RecordedSleep()
    async with (
        run_site({"/": respond_with("text")}) as site,
        open_fetcher(page_reader, None, slept, pause_s=60) as web_pages,
    ):
        await asyncio.gather(*(web_pages.fetch(site.url("/")) for _ in range(3)))
    assert site.most_at_once == 1
    assert [round(seconds, -1) for seconds in slept.seconds] == [60, 60]


async def test_a_denied_domain_is_not_even_asked_for_its_rules(page_reader: SubprocessWebTextExtractor) -> None:
    async with run_site({"/": respond_with("text")}) as site:
        async with open_fetcher(page_reader, domains=DomainPolicy(allow=("*",), deny=("127.0.0.1",))) as web_pages:
            with pytest.raises(WebPageUnreadableError, match=r"^The settings do not let agents read"):
                await web_pages.fetch(site.url("/"))
        assert site.visits == []
