from ipaddress import ip_address

import pytest

from tests.support.web_site import (
    ALLOWED_ADDRESS,
    FORBIDDEN_ADDRESS,
    FakeResolver,
    open_fetcher,
    redirect_to,
    respond_with,
    run_site,
)
from waystation.documents.readers.reader import SubprocessWebTextExtractor
from waystation.documents.web import NonPublicAddressError, PublicSocketFactory, is_public
from waystation.kernel.errors import WebPageUnreadableError
from waystation.security.web_addresses import DomainPolicy

NOT_PUBLIC = "leads to an address that is not public. Only public pages can be read.$"
EVERY_SITE = DomainPolicy(allow=("*",))


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "http://localhost/", "http://127.0.0.1./"),
        *("http://10.1.2.3/", "http://172.16.0.1/", "http://192.168.1.1/", "http://100.64.0.1/", "http://0.0.0.0/"),
        *("http://169.254.169.254/latest/meta-data/", "http://168.63.129.16/", "http://100.100.100.200/"),
        *("http://192.0.0.192/", "http://198.18.0.1/", "http://224.0.0.1/", "http://255.255.255.255/"),
        *("http://[::1]/", "http://[::]/", "http://[fe80::1]/", "http://[fd00:ec2::254]/", "http://[fec0::1]/"),
        *("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::127.0.0.1]/", "http://[ff02::1]/"),
        *("http://[64:ff9b::10.0.0.1]/", "http://[2002:a00:1::]/", "http://[2001:0:a00:1::]/"),
    ],
)
async def test_no_address_within_is_connected_to(page_reader: SubprocessWebTextExtractor, url: str) -> None:
    async with open_fetcher(page_reader, reachable_networks=()) as web_pages:
        with pytest.raises(WebPageUnreadableError, match=NOT_PUBLIC):
            await web_pages.fetch(url)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::"]
)
def test_public_addresses_are_connected_to(address: str) -> None:
    family = 10 if ":" in address else 2
    PublicSocketFactory()((family, 1, 6, "", (address, 80))).close()


def test_what_stands_for_a_private_address_is_private() -> None:
    with pytest.raises(NonPublicAddressError):
        PublicSocketFactory()((10, 1, 6, "", ("64:ff9b::a00:1", 80, 0, 0)))
    assert not is_public(ip_address("64:ff9b::808:808"))


async def test_a_redirect_to_an_address_within_is_not_followed(page_reader: SubprocessWebTextExtractor) -> None:
    async with run_site({"/": respond_with("secret")}, FORBIDDEN_ADDRESS) as inner:
        pages = {
            "/": redirect_to(inner.url("/", FORBIDDEN_ADDRESS)),
            "/metadata": redirect_to("http://169.254.169.254/latest/"),
        }
        async with run_site(pages) as outer, open_fetcher(page_reader, domains=EVERY_SITE) as web_pages:
            for path in pages:
                with pytest.raises(WebPageUnreadableError, match=NOT_PUBLIC):
                    await web_pages.fetch(outer.url(path))
        assert inner.visits == []


async def test_rules_of_a_site_lead_to_no_address_within(page_reader: SubprocessWebTextExtractor) -> None:
    async with run_site({"/robots.txt": respond_with("")}, FORBIDDEN_ADDRESS) as inner:
        pages = {"/robots.txt": redirect_to(inner.url("/robots.txt", FORBIDDEN_ADDRESS)), "/": respond_with("text")}
        async with run_site(pages) as outer, open_fetcher(page_reader, domains=EVERY_SITE) as web_pages:
            with pytest.raises(WebPageUnreadableError, match=NOT_PUBLIC):
                await web_pages.fetch(outer.url("/"))
        assert inner.visits == []


async def test_a_name_of_an_address_within_is_refused(page_reader: SubprocessWebTextExtractor) -> None:
    async with run_site({"/": respond_with("secret")}, FORBIDDEN_ADDRESS) as inner:
        async with open_fetcher(page_reader, FakeResolver(inner_example=[FORBIDDEN_ADDRESS])) as web_pages:
            with pytest.raises(WebPageUnreadableError, match=f"^inner.example {NOT_PUBLIC}"):
                await web_pages.fetch(inner.url("/", "inner.example"))
        assert inner.visits == []


async def test_a_name_that_resolves_anew_to_an_address_within_leads_nowhere(
    page_reader: SubprocessWebTextExtractor,
) -> None:
    names = FakeResolver(rebound_example=[ALLOWED_ADDRESS, FORBIDDEN_ADDRESS])
    closing = {"/": respond_with("text", Connection="close"), "/robots.txt": respond_with("", Connection="close")}
    async with (
        run_site(closing) as outer,
        run_site({"/": respond_with("secret")}, FORBIDDEN_ADDRESS, outer.port) as inner,
    ):
        async with open_fetcher(page_reader, names) as web_pages:
            with pytest.raises(WebPageUnreadableError, match=NOT_PUBLIC):
                await web_pages.fetch(outer.url("/", "rebound.example"))
        assert names.asked == ["rebound.example"] * 2
        assert outer.visits == ["rebound.example /robots.txt"]
        assert inner.visits == []


async def test_a_redirect_to_another_site_is_followed_only_where_that_is_allowed(
    page_reader: SubprocessWebTextExtractor,
) -> None:
    names = FakeResolver(
        one_example=[ALLOWED_ADDRESS], www_one_example=[ALLOWED_ADDRESS], two_example=[ALLOWED_ADDRESS]
    )
    async with run_site({"/end": respond_with("there")}) as end:
        pages = {
            "/www": redirect_to(end.url("/end", "www.one.example")),
            "/": redirect_to(end.url("/end", "two.example")),
        }
        async with run_site(pages) as site:
            async with open_fetcher(page_reader, names, domains=DomainPolicy(allow=("one.example",))) as web_pages:
                assert (await web_pages.fetch(site.url("/www", "one.example"))).text == "there"
                with pytest.raises(WebPageUnreadableError) as refused:
                    await web_pages.fetch(site.url("/", "one.example"))
            assert refused.value.cause == "one.example redirects to another site"
            assert (
                refused.value.next_step == f"To follow the redirect, fetch {end.url('/end', 'two.example')} directly."
            )
            async with open_fetcher(page_reader, names, domains=DomainPolicy(allow=("two.example",))) as web_pages:
                assert (await web_pages.fetch(site.url("/", "one.example"))).text == "there"
