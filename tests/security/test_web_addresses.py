from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from yarl import URL

from waystation.documents.web_pages import MAX_LINE_CHARACTERS, build_web_page, split_page_lines
from waystation.kernel.errors import WebPageUnreadableError
from waystation.security.web_addresses import DomainPolicy, is_host_or_subdomain, parse_web_address

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("https://Example.ORG", "https://example.org/"),
        (" https://example.org:443/a#part\n", "https://example.org/a"),
        ("http://example.org:8080/?q=ä b".replace(" ", "%20"), "http://example.org:8080/?q=%C3%A4%20b"),
        ("https://example.org./a[1]", "https://example.org/a%5B1%5D"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("http://[::1]:80/", "http://[::1]/"),
        ('https://example.org/"<x>', "https://example.org/%22%3Cx%3E"),
    ],
)
def test_an_address_has_one_plain_form(written: str, plain: str) -> None:
    address = parse_web_address(written)
    assert address.url == plain
    assert parse_web_address(plain) == address


@pytest.mark.parametrize(
    ("written", "cause"),
    [
        ("example.org/page", "Only http and https can be fetched"),
        ("file:///etc/passwd", "Only http and https can be fetched"),
        ("javascript:alert", "Only http and https can be fetched"),
        ("ftp://example.org/", "Only http and https can be fetched"),
        ("https://me:word@example.org/", "The address has a user name or password in it"),
        ("https://example.org@evil.example/", "The address has a user name or password in it"),
        *(
            (f"https://{host}/", "The address is malformed")
            for host in ("", "a b", "a..b", "ex%61mple.org", "[::1", "-")
        ),
        *((f"http://{host}/", "The address is malformed") for host in ("127.1", "2130706433", "0x7f.1", "127.0.0.01")),
        ("https://evil.example\\@example.org/", "The address is malformed"),
        ("https://example.org:99999/", "The address is malformed"),
        ("https://example.org/" + "a" * 1_000, "The address has more than 1,000 characters"),
        ("", "Only http and https can be fetched"),
    ],
)
def test_what_is_no_address_of_the_web_is_refused_with_the_cause(written: str, cause: str) -> None:
    with pytest.raises(WebPageUnreadableError) as refused:
        parse_web_address(written)
    assert refused.value.cause == cause


@given(st.text(alphabet="htps:/\\@.#?[]%ab1-_ \t\n", max_size=40).map(lambda rest: f"http://{rest}"))
def test_every_program_agrees_on_the_host_of_an_address(written: str) -> None:
    try:
        address = parse_web_address(written)
    except WebPageUnreadableError:
        return
    assert urlsplit(address.url).hostname == URL(address.url).host == address.host


def test_an_entry_stands_for_a_domain_and_all_below_it() -> None:
    domains = DomainPolicy(allow=("Example.org", "*.gov.example", "one.test."), deny=("bad.example.org",))
    assert [
        host for host in ("example.org", "a.b.example.org", "gov.example", "one.test") if domains.is_allowed(host)
    ] == [
        "example.org",
        "a.b.example.org",
        "gov.example",
        "one.test",
    ]
    assert not any(map(domains.is_allowed, ("notexample.org", "org", "bad.example.org", "very.bad.example.org")))
    assert domains.is_denied("very.bad.example.org")
    assert not domains.is_denied("other.test")


def test_a_star_allows_everything_that_is_not_denied() -> None:
    domains = DomainPolicy(allow=("*",), deny=("bad.test",))
    assert domains.is_allowed("any.test")
    assert not domains.is_allowed("bad.test")


@pytest.mark.parametrize("entry", ["https://example.org", "example.org/path", "a b", ""])
def test_an_entry_that_is_no_domain_is_named(entry: str) -> None:
    with pytest.raises(ValidationError, match=r"is not a domain; write it like example\.org, or \* for all"):
        DomainPolicy(allow=(entry,))


def test_a_site_is_the_same_with_and_without_www_and_below() -> None:
    assert is_host_or_subdomain("example.org", "www.example.org")
    assert is_host_or_subdomain("www.example.org", "example.org")
    assert is_host_or_subdomain("example.org", "docs.example.org")
    assert not is_host_or_subdomain("docs.example.org", "example.org")
    assert not is_host_or_subdomain("example.org", "example.com")


@given(st.text(max_size=5_000) | st.text(alphabet="ab ", min_size=900, max_size=4_000))
def test_a_page_keeps_every_word_and_is_shown_in_lines_that_are_short_enough(text: str) -> None:
    page = build_web_page("https://example.org/", text, NOON)
    assert page.text.splitlines() == list(page.lines) or page.lines[-1] == ""
    shown = split_page_lines(page.lines)
    assert all(len(line) <= MAX_LINE_CHARACTERS for line in shown)
    assert "".join("".join(shown).split()) == "".join(text.split())


def test_a_long_line_is_kept_whole_and_shown_parted_between_words_and_never_within_a_placeholder() -> None:
    page = build_web_page("https://example.org/", "word " * 500, NOON)
    assert len(page.lines) == 1
    assert set(" ".join(split_page_lines(page.lines)).split()) == {"word"}
    placeholder = "<EMAIL_0123456789ab>"
    first, second = split_page_lines(["x" * (MAX_LINE_CHARACTERS - 5) + placeholder])
    assert (len(first), second) == (MAX_LINE_CHARACTERS - 5, placeholder)


def test_the_title_is_the_first_line_that_says_something() -> None:
    assert build_web_page("https://example.org/", "\n\n## The   harbour\ntext", NOON).title == "The harbour"
    assert build_web_page("https://example.org/", "", NOON).title == ""
