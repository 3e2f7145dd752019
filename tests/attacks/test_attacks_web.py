"""Sites that mean harm: where their rules lead, what they send for rules, and addresses that look public."""

import asyncio
import gzip
from collections.abc import Iterator, Mapping
from ipaddress import ip_address

import pytest
from aiohttp import web

from tests.support.web_site import (
    ALLOWED_ADDRESS,
    FORBIDDEN_ADDRESS,
    FakeResolver,
    SiteHandler,
    open_fetcher,
    redirect_to,
    respond_with,
    run_site,
)
from waystation.documents.readers.reader import SubprocessWebTextExtractor
from waystation.documents.web import MAX_ROBOTS_BYTES, NonPublicAddressError, PublicSocketFactory, is_public
from waystation.kernel.errors import WebPageUnreadableError, WebUnavailable
from waystation.security.web_addresses import DomainPolicy

NAMES = {"one_example": [ALLOWED_ADDRESS], "two_example": [ALLOWED_ADDRESS], "www_one_example": [ALLOWED_ADDRESS]}
UNKNOWN = r"^The robots.txt of one.example could not be read: "


@pytest.fixture(scope="module")
def page_reader() -> Iterator[SubprocessWebTextExtractor]:
    """One for all tests of the module: its child takes a second to start."""
    reader = SubprocessWebTextExtractor()
    yield reader
    asyncio.run(reader.aclose())


async def refused_by_rules(
    reader: SubprocessWebTextExtractor, rules: SiteHandler, domains: DomainPolicy
) -> tuple[str, list[str]]:
    """Why a page is not read whose site has these rules, and which other sites were visited for that."""
    pages = {"/robots.txt": rules, "/": respond_with("text")}
    async with run_site(pages) as site, open_fetcher(reader, FakeResolver(**NAMES), domains=domains) as web_pages:
        with pytest.raises(WebPageUnreadableError, match=UNKNOWN) as refused:
            await web_pages.fetch(site.url("/", "one.example"))
    assert site.pages == []
    return str(refused.value), [visit for visit in site.visits if not visit.startswith("one.example")]


@pytest.mark.parametrize(
    ("target", "domains", "cause"),
    [
        ("http://two.example/robots.txt", DomainPolicy(), "one.example redirects to another site"),
        (
            "http://two.example/",
            DomainPolicy(allow=("*",), deny=("two.example",)),
            "The settings do not let agents read pages of two.example",
        ),
        (
            "http://a.one.example/",
            DomainPolicy(deny=("a.one.example",)),
            "The settings do not let agents read pages of a.one.example",
        ),
        ("file:///etc/passwd", DomainPolicy(), "Only http and https can be fetched"),
        ("ftp://one.example/", DomainPolicy(), "Only http and https can be fetched"),
        ("http://me:secret@one.example/", DomainPolicy(), "The address has a user name or password in it"),
        ("http://[::1", DomainPolicy(), "one.example redirects to a malformed address"),
        (f"http://{'a' * 64}.one.example/", DomainPolicy(), "The address is malformed"),
        (f"http://{'a.' * 125}one.example/", DomainPolicy(), "The address is malformed"),
    ],
)
async def test_rules_lead_nowhere_that_a_page_must_not(
    page_reader: SubprocessWebTextExtractor, target: str, domains: DomainPolicy, cause: str
) -> None:
    why, visits = await refused_by_rules(page_reader, redirect_to(target), domains)
    assert why.endswith(f"{cause}. Use another source.")
    assert visits == []


@pytest.mark.parametrize(
    "written", [f"https://{'a' * 64}.org/", f"https://{'b.' * 130}org/", f"https://{'c' * 900}", "https://a.org/\ud800"]
)
async def test_an_address_that_no_resolver_takes_is_refused_and_breaks_nothing(
    page_reader: SubprocessWebTextExtractor, written: str
) -> None:
    async with open_fetcher(page_reader, FakeResolver()) as web_pages:
        with pytest.raises(WebPageUnreadableError, match="The address is malformed"):
            await web_pages.fetch(written)


async def test_rules_that_lead_in_a_circle_are_not_known(page_reader: SubprocessWebTextExtractor) -> None:
    why, _ = await refused_by_rules(page_reader, redirect_to("/robots.txt"), DomainPolicy())
    assert "redirects more than 5 times" in why


async def test_rules_that_have_moved_within_their_site_hold(page_reader: SubprocessWebTextExtractor) -> None:
    rules = {"/robots.txt": redirect_to("/rules"), "/rules": respond_with("User-agent: *\nDisallow: /no")}
    async with run_site({**rules, "/": respond_with("text")}) as site, open_fetcher(page_reader) as pages:
        assert (await pages.fetch(site.url("/"))).text == "text"
        with pytest.raises(WebPageUnreadableError, match="does not let programs read"):
            await pages.fetch(site.url("/no"))


async def test_rules_are_followed_to_a_site_that_may_be_read(page_reader: SubprocessWebTextExtractor) -> None:
    async with run_site({"/rules": respond_with("User-agent: *\nDisallow: /")}) as other:
        rules = redirect_to(other.url("/rules", "two.example"))
        pages, domains = {"/robots.txt": rules, "/": respond_with("text")}, DomainPolicy(allow=("two.example",))
        async with (
            run_site(pages) as site,
            open_fetcher(page_reader, FakeResolver(**NAMES), domains=domains) as web_pages,
        ):
            with pytest.raises(WebPageUnreadableError, match="does not let programs read"):
                await web_pages.fetch(site.url("/", "one.example"))


async def test_rules_within_are_not_asked_for_where_every_site_is_allowed(
    page_reader: SubprocessWebTextExtractor,
) -> None:
    async with run_site({"/": respond_with("")}, FORBIDDEN_ADDRESS) as inner:
        pages = {"/robots.txt": redirect_to(inner.url("/", FORBIDDEN_ADDRESS)), "/": respond_with("text")}
        every = DomainPolicy(allow=("*",))
        async with run_site(pages) as outer, open_fetcher(page_reader, domains=every) as web_pages:
            with pytest.raises(WebPageUnreadableError, match="leads to an address that is not public"):
                await web_pages.fetch(outer.url("/"))
        assert inner.visits == []


async def test_of_rules_that_unpack_without_end_the_beginning_counts(page_reader: SubprocessWebTextExtractor) -> None:
    bomb = gzip.compress(b"User-agent: *\nDisallow: /no\n" + b"#" * 200_000_000, 9)
    rules = respond_with(bomb, Content_Encoding="gzip")
    async with run_site({"/robots.txt": rules, "/": respond_with("text")}) as site, open_fetcher(page_reader) as pages:
        assert (await pages.fetch(site.url("/"))).text == "text"
        with pytest.raises(WebPageUnreadableError, match="does not let programs read"):
            await pages.fetch(site.url("/no"))
    assert len(bomb) < MAX_ROBOTS_BYTES


async def test_rules_that_drip_end_with_the_time_of_the_page(page_reader: SubprocessWebTextExtractor) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"#\n")
            await asyncio.sleep(0.01)

    pages: Mapping[str, SiteHandler] = {"/robots.txt": drip, "/": respond_with("text")}
    async with run_site(pages) as site, open_fetcher(page_reader, timeout_s=0.5) as web_pages:
        with pytest.raises(WebUnavailable, match=r"did not send the page within 0.5 s"):
            await web_pages.fetch(site.url("/"))
    assert site.pages == []


@pytest.mark.parametrize(("status", "read"), [(200, False), (204, True), (300, True), (404, True), (499, True)])
async def test_rules_count_where_the_answer_is_a_success(
    page_reader: SubprocessWebTextExtractor, status: int, read: bool
) -> None:
    rules = respond_with("" if status == 204 else "User-agent: *\nDisallow: /", status=status)
    async with run_site({"/robots.txt": rules, "/": respond_with("text")}) as site, open_fetcher(page_reader) as pages:
        if read:
            assert (await pages.fetch(site.url("/"))).text == "text"
        else:
            with pytest.raises(WebPageUnreadableError):
                await pages.fetch(site.url("/"))


@pytest.mark.parametrize("status", [500, 599])
async def test_a_site_whose_rules_fail_is_not_read(page_reader: SubprocessWebTextExtractor, status: int) -> None:
    rules = respond_with("", status=status)
    async with run_site({"/robots.txt": rules, "/": respond_with("text")}) as site, open_fetcher(page_reader) as pages:
        with pytest.raises(WebUnavailable, match=f"answered {status} for its robots.txt"):
            await pages.fetch(site.url("/"))
    assert site.pages == []


async def test_a_proxy_of_the_environment_is_not_asked(
    page_reader: SubprocessWebTextExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_site({"/": respond_with("text")}) as site, run_site({}) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with open_fetcher(page_reader, FakeResolver(**NAMES)) as pages:
            assert (await pages.fetch(site.url("/", "one.example"))).text == "text"
        assert proxy.visits == []


PUBLIC = {
    "2001:4860:4860::8888": True,
    "2000:1::1": True,
    "3ffe:ffff::1": True,
    "1fff:ffff::1": False,
    "4000::1": False,
    "5f00::1": False,
    "64:ff9b::808:808": False,
    "64:ff9b:1::808:808": False,
    "3fff::1": False,
    "192.88.99.1": False,
    "192.0.0.9": False,
    "168.63.129.16": False,
    "168.63.129.17": True,
}


def test_an_address_is_public_where_it_is_somebodys_on_the_internet() -> None:
    assert {address: is_public(ip_address(address)) for address in PUBLIC} == PUBLIC


@pytest.mark.parametrize("address", ["64:ff9b::a00:1", "64:ff9b::7f00:1", "64:ff9b::1:0:808:808", "64:ff9c::808:808"])
def test_only_translated_public_addresses_of_ipv4_are_connected_to(address: str) -> None:
    with pytest.raises(NonPublicAddressError):
        PublicSocketFactory()((10, 1, 6, "", (address, 80, 0, 0)))
