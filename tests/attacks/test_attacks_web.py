"""Sites that mean harm: where their rules lead, what they send for rules, and addresses that look public."""

import asyncio
import gzip
from collections.abc import Iterator, Mapping
from ipaddress import ip_address

import pytest
from aiohttp import web

from tests.web_site import HERE, WITHIN, Answer, Names, answering, fetching, leading_to, running_site
from waystation.documents.readers.reader import BytesReader
from waystation.documents.web import ROBOTS_BYTES, NonPublicAddressError, PublicSocketFactory, is_public
from waystation.documents.web_pages import DomainPolicy
from waystation.kernel.errors import WebFetchRejectedError, WebUnavailable

NAMES = {"one_example": [HERE], "two_example": [HERE], "www_one_example": [HERE]}
UNKNOWN = r"^What the robots.txt of one.example allows is not known: "


@pytest.fixture(scope="module")
def page_reader() -> Iterator[BytesReader]:
    """One for all tests of the module: its child takes a second to start."""
    reader = BytesReader()
    yield reader
    asyncio.run(reader.aclose())


async def refused_by_rules(reader: BytesReader, rules: Answer, domains: DomainPolicy) -> tuple[str, list[str]]:
    """Why a page is not read whose site has these rules, and which other sites were visited for that."""
    pages = {"/robots.txt": rules, "/": answering("text")}
    async with running_site(pages) as site, fetching(reader, Names(**NAMES), domains=domains) as web_pages:
        with pytest.raises(WebFetchRejectedError, match=UNKNOWN) as refused:
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
            "Pages of two.example must not be read here",
        ),
        (
            "http://a.one.example/",
            DomainPolicy(deny=("a.one.example",)),
            "Pages of a.one.example must not be read here",
        ),
        ("file:///etc/passwd", DomainPolicy(), "Only http and https can be fetched"),
        ("ftp://one.example/", DomainPolicy(), "Only http and https can be fetched"),
        ("http://me:secret@one.example/", DomainPolicy(), "The address has a user name or password in it"),
        ("http://[::1", DomainPolicy(), "one.example redirects to no address that can be read"),
        (f"http://{'a' * 64}.one.example/", DomainPolicy(), "The address is malformed"),
        (f"http://{'a.' * 125}one.example/", DomainPolicy(), "The address is malformed"),
    ],
)
async def test_rules_lead_nowhere_that_a_page_must_not(
    page_reader: BytesReader, target: str, domains: DomainPolicy, cause: str
) -> None:
    why, visits = await refused_by_rules(page_reader, leading_to(target), domains)
    assert why.endswith(f"{cause}. Use another source.")
    assert visits == []


@pytest.mark.parametrize(
    "written", [f"https://{'a' * 64}.org/", f"https://{'b.' * 130}org/", f"https://{'c' * 900}", "https://a.org/\ud800"]
)
async def test_an_address_that_no_resolver_takes_is_refused_and_breaks_nothing(
    page_reader: BytesReader, written: str
) -> None:
    async with fetching(page_reader, Names()) as web_pages:
        with pytest.raises(WebFetchRejectedError, match="The address is malformed"):
            await web_pages.fetch(written)


async def test_rules_that_lead_in_a_circle_are_not_known(page_reader: BytesReader) -> None:
    why, _ = await refused_by_rules(page_reader, leading_to("/robots.txt"), DomainPolicy())
    assert "redirects more than 5 times" in why


async def test_rules_that_have_moved_within_their_site_hold(page_reader: BytesReader) -> None:
    rules = {"/robots.txt": leading_to("/rules"), "/rules": answering("User-agent: *\nDisallow: /no")}
    async with running_site({**rules, "/": answering("text")}) as site, fetching(page_reader) as pages:
        assert (await pages.fetch(site.url("/"))).text == "text"
        with pytest.raises(WebFetchRejectedError, match="does not let programs read"):
            await pages.fetch(site.url("/no"))


async def test_rules_are_followed_to_a_site_that_may_be_read(page_reader: BytesReader) -> None:
    async with running_site({"/rules": answering("User-agent: *\nDisallow: /")}) as other:
        rules = leading_to(other.url("/rules", "two.example"))
        pages, domains = {"/robots.txt": rules, "/": answering("text")}, DomainPolicy(allow=("two.example",))
        async with running_site(pages) as site, fetching(page_reader, Names(**NAMES), domains=domains) as web_pages:
            with pytest.raises(WebFetchRejectedError, match="does not let programs read"):
                await web_pages.fetch(site.url("/", "one.example"))


async def test_rules_within_are_not_asked_for_where_every_site_is_allowed(page_reader: BytesReader) -> None:
    async with running_site({"/": answering("")}, WITHIN) as inner:
        pages = {"/robots.txt": leading_to(inner.url("/", WITHIN)), "/": answering("text")}
        every = DomainPolicy(allow=("*",))
        async with running_site(pages) as outer, fetching(page_reader, domains=every) as web_pages:
            with pytest.raises(WebFetchRejectedError, match="leads to an address that is not public"):
                await web_pages.fetch(outer.url("/"))
        assert inner.visits == []


async def test_of_rules_that_unpack_without_end_the_beginning_counts(page_reader: BytesReader) -> None:
    bomb = gzip.compress(b"User-agent: *\nDisallow: /no\n" + b"#" * 200_000_000, 9)
    rules = answering(bomb, Content_Encoding="gzip")
    async with running_site({"/robots.txt": rules, "/": answering("text")}) as site, fetching(page_reader) as pages:
        assert (await pages.fetch(site.url("/"))).text == "text"
        with pytest.raises(WebFetchRejectedError, match="does not let programs read"):
            await pages.fetch(site.url("/no"))
    assert len(bomb) < ROBOTS_BYTES


async def test_rules_that_drip_end_with_the_time_of_the_page(page_reader: BytesReader) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"#\n")
            await asyncio.sleep(0.01)

    pages: Mapping[str, Answer] = {"/robots.txt": drip, "/": answering("text")}
    async with running_site(pages) as site, fetching(page_reader, seconds=0.5) as web_pages:
        with pytest.raises(WebUnavailable, match=r"did not answer within 0.5 s"):
            await web_pages.fetch(site.url("/"))
    assert site.pages == []


@pytest.mark.parametrize(("status", "read"), [(200, False), (204, True), (300, True), (404, True), (499, True)])
async def test_rules_count_where_the_answer_is_a_success(page_reader: BytesReader, status: int, read: bool) -> None:
    rules = answering("" if status == 204 else "User-agent: *\nDisallow: /", status=status)
    async with running_site({"/robots.txt": rules, "/": answering("text")}) as site, fetching(page_reader) as pages:
        if read:
            assert (await pages.fetch(site.url("/"))).text == "text"
        else:
            with pytest.raises(WebFetchRejectedError):
                await pages.fetch(site.url("/"))


@pytest.mark.parametrize("status", [500, 599])
async def test_a_site_whose_rules_fail_is_not_read(page_reader: BytesReader, status: int) -> None:
    rules = answering("", status=status)
    async with running_site({"/robots.txt": rules, "/": answering("text")}) as site, fetching(page_reader) as pages:
        with pytest.raises(WebUnavailable, match=f"answered {status} for its robots.txt"):
            await pages.fetch(site.url("/"))
    assert site.pages == []


async def test_a_proxy_of_the_environment_is_not_asked(
    page_reader: BytesReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_site({"/": answering("text")}) as site, running_site({}) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with fetching(page_reader, Names(**NAMES)) as pages:
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
