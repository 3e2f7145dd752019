"""The web as agents see it: addresses that may be fetched, pages as lines, search results, and fetched pages.

Fetched pages are derived from an agent's conversation, so that each is fetched once, and is dropped by a rewind.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Literal
from urllib.parse import SplitResult, quote, unquote, urlsplit

from pydantic import field_validator

from waystation.context.transcript import Message, ToolUse
from waystation.kernel.errors import WebFetchRejectedError
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.privacy.policy import find_cut_position
from waystation.security.untrusted import SafeMarkup, wrap_untrusted

MAX_ADDRESS_CHARACTERS = 1_000
"""Maximum characters of an address."""
MAX_LINE_CHARACTERS = 1_000
"""Maximum characters of a line. A longer one is split, so that each can be shown and cited."""
MAX_TITLE_CHARACTERS = 200
SEARCH_INPUT_TOKENS = 40_000
"""Estimated input tokens of one search. The provider adds the pages that it finds to the call and states no bound, so
this is an estimate on the safe side; the charge is the actual usage.
"""
SEARCH_OUTPUT_TOKENS = 1_500
"""Maximum tokens of a reply that names pages."""
WebApprovalMode = Literal["always", "suspicious", "never"]
"""Which searches need approval: all, those that look as if they carried data out, or none."""
MAX_QUERY_WORDS = 12
"""Maximum words of a query that looks like keywords."""
MAX_PLAIN_ADDRESS_CHARACTERS, MAX_PLAIN_QUERY_CHARACTERS = 200, 60
"""Maximum characters of an address that looks made for people to read, and of what follows its `?`."""
MAX_PLAIN_WORD_CHARACTERS, MAX_MIXED_WORD_CHARACTERS, MAX_NUMBER_DIGITS = 24, 10, 5
"""Maximum characters of a word, of one with letters and digits, and of one of digits only: longer ones may be keys,
someone's numbers, or encoded text.
"""
ANY_DOMAIN = "*"
"""In a list of domains: all of them."""

_PORTS = {"http": 80, "https": 443}
_NEVER_IN_AN_ADDRESS = compile_bounded(r"[\s\\\x00-\x1f\x7f\ud800-\udfff]")
"""Characters that programs interpret differently: one takes a backslash for a slash, another for a part of the host
name. Lone surrogates have no bytes.
"""
_HOST = compile_bounded(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_LONGEST_HOST, _LONGEST_LABEL = 253, 63
"""Maximum characters of a host name and of its labels (RFC 1035): no resolver is asked for longer ones."""
_NUMBER = compile_bounded(r"\d+|0x[0-9a-f]*")
_KEPT_IN_PATHS = "/%:@!$&'()*+,;=~"
_HEADING = compile_bounded(r"^#+ +")
_WORDS = compile_bounded(r"[^\W_]++")


class WebAddress(Value):
    """An http or https address in normal form, without a fragment. Created by `parse_web_address` only."""

    url: str
    origin: str
    """Scheme, host and port: the scope of one robots.txt."""
    host: str
    """In lower case and ASCII, without the port."""


def parse_web_address(written: str) -> WebAddress:
    """Parse an address. All programs that get the result agree about its host.

    Raises:
        WebFetchRejectedError: it is not http or https, contains a user name or password, or is malformed.
    """
    given = written.strip()
    if len(given) > MAX_ADDRESS_CHARACTERS:
        raise WebFetchRejectedError(
            f"The address has more than {MAX_ADDRESS_CHARACTERS:,} characters", "Give a shorter one."
        )
    try:
        if _NEVER_IN_AN_ADDRESS.search(given):
            raise ValueError
        parts = urlsplit(given)
        _check_kind(parts)
        host, port = _host(parts.hostname or ""), parts.port
    except ValueError:
        raise WebFetchRejectedError("The address is malformed", "Write it like https://example.org/page.") from None
    origin = f"{parts.scheme}://{host if port in {None, _PORTS[parts.scheme]} else f'{host}:{port}'}"
    query = f"?{quote(parts.query, safe=_KEPT_IN_PATHS + '?')}" if parts.query else ""
    return WebAddress(
        url=f"{origin}{quote(parts.path or '/', safe=_KEPT_IN_PATHS)}{query}", origin=origin, host=host.strip("[]")
    )


def _check_kind(parts: SplitResult) -> None:
    if parts.scheme not in _PORTS:
        raise WebFetchRejectedError("Only http and https can be fetched", "Give an address that begins with https://.")
    if "@" in parts.netloc:
        raise WebFetchRejectedError(
            "The address has a user name or password in it", "Leave out what stands before the @."
        )


def _host(name: str) -> str:
    """Normalise a host name to ASCII. Raises ValueError."""
    if ":" in name:
        return f"[{IPv6Address(name).compressed}]"
    plain = (name if name.isascii() else name.encode("idna").decode()).lower().removesuffix(".")
    if not _HOST.fullmatch(plain) or len(plain) > _LONGEST_HOST or max(map(len, plain.split("."))) > _LONGEST_LABEL:
        raise ValueError
    # Numbers are addresses, with a single accepted spelling: others would bypass a list of domains.
    return str(IPv4Address(plain)) if _NUMBER.fullmatch(plain.rpartition(".")[2]) else plain


class DomainPolicy(Value):
    """Which sites may be read. An entry stands for a domain and its subdomains; `*` for every domain."""

    allow: tuple[str, ...] = ()
    """Domains that are read without approval. Any other needs a person's approval."""
    deny: tuple[str, ...] = ()
    """Domains that are never read, whatever else is set."""
    asks: WebApprovalMode = "always"
    """With `never`, any address of an allowed domain is fetched, whatever it looks like."""

    @field_validator("allow", "deny")
    @classmethod
    def _plain(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_entry, given))

    def is_allowed(self, host: str) -> bool:
        """Whether pages of the host are read without approval."""
        return _listed(host, self.allow) and not self.is_denied(host)

    def is_denied(self, host: str) -> bool:
        """Whether pages of the host are never read."""
        return _listed(host, self.deny)


def _entry(written: str) -> str:
    name = written.strip().lower().removeprefix("*.").strip(".")
    try:
        return ANY_DOMAIN if name == ANY_DOMAIN else _host(name)
    except ValueError:
        raise ValueError(f"{written!r} is no domain; write it like example.org, or * for all") from None


def _listed(host: str, entries: tuple[str, ...]) -> bool:
    return any(entry in {ANY_DOMAIN, host} or host.endswith(f".{entry}") for entry in entries)


def is_suspicious_query(query: str) -> bool:
    """Whether the words of a search look as if they carried data out: more than keywords, or not even words.

    This is a guess; operators who have to be sure require approval for all searches.
    """
    words = _WORDS.findall(query)
    return len(words) > MAX_QUERY_WORDS or not query.isprintable() or "@" in query or any(map(_no_word, words))


def is_suspicious_address(address: WebAddress) -> bool:
    """Whether an address looks as if it carried data to the owner of the domain. This is a guess as above."""
    written = unquote(address.url)
    if (
        len(address.url) > MAX_PLAIN_ADDRESS_CHARACTERS
        or len(address.url.partition("?")[2]) > MAX_PLAIN_QUERY_CHARACTERS
    ):
        return True
    return not written.isprintable() or "@" in written or any(map(_no_word, _WORDS.findall(written)))


def _no_word(word: str) -> bool:
    if word.isdigit():
        return len(word) > MAX_NUMBER_DIGITS
    mixed = any(map(str.isdigit, word))
    return len(word) > (MAX_MIXED_WORD_CHARACTERS if mixed else MAX_PLAIN_WORD_CHARACTERS)


def is_host_or_subdomain(host: str, other: str) -> bool:
    """Whether `other` is the host, with or without `www.`, or a subdomain of it."""
    return _listed(other, (host.removeprefix("www."),))


class WebPage(Value):
    """A fetched page. Its text is untrusted: content, and never an instruction."""

    url: str
    """Final address of the page, after redirects."""
    title: str
    lines: tuple[str, ...]
    """At least one line, of any length: `split_page_lines` makes the displayed lines of them after redaction."""
    retrieved: datetime

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def build_web_page(url: str, text: str, retrieved: datetime) -> WebPage:
    """Build the page from the text that was extracted from a response.

    Its title is its first line: for an HTML page, the title in its head.
    """
    lines = tuple(text.splitlines()) or ("",)
    first = next((line for line in lines if line.strip()), "")
    title = " ".join(_HEADING.sub("", first).split())[:MAX_TITLE_CHARACTERS]
    return WebPage(url=url, title=title, lines=lines, retrieved=retrieved)


def split_page_lines(lines: Iterable[str]) -> list[str]:
    """Split a redacted page into the lines that are numbered and cited: each at most 1,000 characters."""
    return [part for line in lines for part in _parts(line)]


def _parts(line: str) -> Iterator[str]:
    """Yield parts of the line that are short enough, split between words if there are any."""
    start = 0
    while len(line) - start > MAX_LINE_CHARACTERS:
        space = line.rfind(" ", start + 1, start + MAX_LINE_CHARACTERS + 1)
        end = space if space > start else find_cut_position(line, start + MAX_LINE_CHARACTERS)
        yield line[start:end]
        start = end + (space > start)
    yield line[start:]


class WebSearchResult(Value):
    """One page that a search found."""

    url: str
    title: str
    excerpt: str = ""
    """What the page says about the query, if the search reports it."""
    age: str = ""
    """Age of the page, in the search's words."""


class WebSearchResponse(Value):
    """Results of one search, best first, and its usage."""

    hits: tuple[WebSearchResult, ...]
    usage: Usage
    model: str = ""
    """The model that answered, as the provider names it."""
    asked: str = ""
    """Always empty: searches have no fallback."""
    fault: str = ""
    """Why it found nothing although it was billed, as the provider names it."""


FETCH_PAGE = "fetch_page"
"""Name of the tool."""

_HEADER = compile_bounded(
    r'<web_page kept="(?P<blob>[0-9a-f]{64})" retrieved="(?P<retrieved>[^"\s]+)" source="(?P<url>[^"\s]+)'
)


class StoredWebPage(Value):
    """A page whose text is in the store."""

    url: str
    """Final address of the page."""
    blob: str
    """Content hash of its text."""
    retrieved: datetime


def make_stored_web_page(page: WebPage, blob: str) -> StoredWebPage:
    """Return the page with the content hash by which the store has its text."""
    return StoredWebPage(url=page.url, blob=blob, retrieved=page.retrieved)


def wrap_untrusted_page(page: StoredWebPage, shown: Sequence[str], stretch: str) -> SafeMarkup:
    """Wrap lines of the page. The frame names the lines, their source, and the key by which the page is found again."""
    retrieved = page.retrieved.isoformat(timespec="seconds")
    return wrap_untrusted("web_page", *shown, kept=page.blob, retrieved=retrieved, source=page.url, lines=stretch)


def extract_stored_web_pages(messages: Iterable[Message]) -> Mapping[str, StoredWebPage]:
    """Return what was fetched in a conversation, by the requested address and by the final one."""
    messages = tuple(messages)
    asked = {call.id: call for message in messages for call in message.tool_uses if call.name == FETCH_PAGE}
    pages: dict[str, StoredWebPage] = {}
    for result in (result for message in messages for result in message.tool_results if not result.is_error):
        call, found = asked.get(result.tool_use_id), _HEADER.match(result.content)
        if call is not None and found is not None:
            page = StoredWebPage.model_validate(found.groupdict())
            pages |= {address: page for address in (page.url, _address(call)) if address}
    return pages


def _address(call: ToolUse) -> str:
    try:
        return parse_web_address(str(call.input.get("url"))).url
    except WebFetchRejectedError:
        return ""
