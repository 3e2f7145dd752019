import pytest

from tests.support.web_site import open_fetcher, redirect_to, respond_with, run_site
from waystation.documents.readers.reader import SubprocessWebTextExtractor
from waystation.kernel.errors import WebPageUnreadableError, WebUnavailable

RULES = """\
User-agent: *
Disallow: /

User-agent: waystation
Disallow: /private
Allow: /private/but-this
"""


async def test_rules_for_us_are_obeyed_and_rules_for_others_are_not_ours(
    page_reader: SubprocessWebTextExtractor,
) -> None:
    pages = {
        "/robots.txt": respond_with(RULES),
        "/open": respond_with("open"),
        "/private/but-this": respond_with("this"),
    }
    async with run_site(pages) as site, open_fetcher(page_reader) as web_pages:
        assert (await web_pages.fetch(site.url("/open"))).text == "open"
        assert (await web_pages.fetch(site.url("/private/but-this"))).text == "this"
        with pytest.raises(
            WebPageUnreadableError, match=r"^127.0.0.1 does not let programs read this page. Use another source.$"
        ):
            await web_pages.fetch(site.url("/private/page"))
    assert site.pages == ["/open", "/private/but-this"]


async def test_rules_hold_for_where_a_redirect_leads(page_reader: SubprocessWebTextExtractor) -> None:
    pages = {
        "/robots.txt": respond_with(RULES),
        "/open": redirect_to("/private/page"),
        "/private/page": respond_with("no"),
    }
    async with run_site(pages) as site, open_fetcher(page_reader) as web_pages:
        with pytest.raises(WebPageUnreadableError, match="does not let programs read"):
            await web_pages.fetch(site.url("/open"))
    assert site.pages == ["/open"]


async def test_rules_are_asked_for_once(page_reader: SubprocessWebTextExtractor) -> None:
    pages = {"/robots.txt": respond_with("User-agent: *\nAllow: /"), "/": respond_with("text")}
    async with run_site(pages) as site, open_fetcher(page_reader) as web_pages:
        for _ in range(3):
            await web_pages.fetch(site.url("/"))
    assert site.visits.count("127.0.0.1 /robots.txt") == 1


async def test_a_site_that_cannot_say_what_it_allows_is_not_read(page_reader: SubprocessWebTextExtractor) -> None:
    pages = {"/robots.txt": respond_with("", status=503), "/": respond_with("text")}
    async with run_site(pages) as site, open_fetcher(page_reader) as web_pages:
        with pytest.raises(WebUnavailable, match=r"answered 503 for its robots.txt"):
            await web_pages.fetch(site.url("/"))
    assert site.pages == []


async def test_of_an_endless_list_of_rules_the_beginning_counts(page_reader: SubprocessWebTextExtractor) -> None:
    endless = RULES + "# nothing\n" * 1_000_000
    pages = {"/robots.txt": respond_with(endless), "/open": respond_with("open")}
    async with run_site(pages) as site, open_fetcher(page_reader) as web_pages:
        assert (await web_pages.fetch(site.url("/open"))).text == "open"
        with pytest.raises(WebPageUnreadableError, match="does not let programs read"):
            await web_pages.fetch(site.url("/private"))
