"""Addresses on the web that may be fetched: their normal form, and the policy of domains.

Also guesses which addresses and queries carry data out.
"""

from ipaddress import IPv4Address, IPv6Address
from typing import Literal
from urllib.parse import SplitResult, quote, unquote, urlsplit

from pydantic import field_validator

from waystation.kernel.errors import WebPageUnreadableError
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

MAX_ADDRESS_CHARACTERS = 1_000
"""Maximum characters of an address."""
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
_MAX_HOST_CHARACTERS, _MAX_LABEL_CHARACTERS = 253, 63
"""Maximum characters of a host name and of its labels (RFC 1035): no resolver is asked for longer ones."""
_NUMBER = compile_bounded(r"\d+|0x[0-9a-f]*")
_KEPT_IN_PATHS = "/%:@!$&'()*+,;=~"
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
        WebPageUnreadableError: it is not http or https, contains a user name or password, or is malformed.
    """
    given = written.strip()
    if len(given) > MAX_ADDRESS_CHARACTERS:
        raise WebPageUnreadableError(
            f"The address has more than {MAX_ADDRESS_CHARACTERS:,} characters", "Give a shorter one."
        )
    try:
        if _NEVER_IN_AN_ADDRESS.search(given):
            raise ValueError
        parts = urlsplit(given)
        _check_kind(parts)
        host, port = _host(parts.hostname or ""), parts.port
    except ValueError:
        raise WebPageUnreadableError("The address is malformed", "Write it like https://example.org/page.") from None
    origin = f"{parts.scheme}://{host if port in {None, _PORTS[parts.scheme]} else f'{host}:{port}'}"
    query = f"?{quote(parts.query, safe=_KEPT_IN_PATHS + '?')}" if parts.query else ""
    return WebAddress(
        url=f"{origin}{quote(parts.path or '/', safe=_KEPT_IN_PATHS)}{query}", origin=origin, host=host.strip("[]")
    )


def _check_kind(parts: SplitResult) -> None:
    if parts.scheme not in _PORTS:
        raise WebPageUnreadableError("Only http and https can be fetched", "Give an address that begins with https://.")
    if "@" in parts.netloc:
        raise WebPageUnreadableError(
            "The address has a user name or password in it", "Leave out everything before the @."
        )


def _host(name: str) -> str:
    """Normalise a host name to ASCII. Raises ValueError."""
    if ":" in name:
        return f"[{IPv6Address(name).compressed}]"
    plain = (name if name.isascii() else name.encode("idna").decode()).lower().removesuffix(".")
    if (
        not _HOST.fullmatch(plain)
        or len(plain) > _MAX_HOST_CHARACTERS
        or max(map(len, plain.split("."))) > _MAX_LABEL_CHARACTERS
    ):
        raise ValueError
    # Numbers are addresses, with a single accepted spelling: others would bypass a list of domains.
    return str(IPv4Address(plain)) if _NUMBER.fullmatch(plain.rpartition(".")[2]) else plain


class DomainPolicy(Value):
    """Which sites may be read. An entry stands for a domain and its subdomains; `*` for every domain."""

    allow: tuple[str, ...] = ()
    """Domains that are read without approval. Any other needs a person's approval."""
    deny: tuple[str, ...] = ()
    """Domains that are never read, whatever else is set."""
    approval_mode: WebApprovalMode = "always"
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


class WebLimits(Value):
    """Limits within which the agents of a task use the web without an approval of each call.

    Who submits such a task approves in advance searches for key words, and pages whose addresses an agent has read, but
    has not written. Both are counted by agent.
    """

    max_searches: int
    max_pages: int
    """Different addresses; further lines of the same page do not count."""


def _entry(written: str) -> str:
    name = written.strip().lower().removeprefix("*.").strip(".")
    try:
        return ANY_DOMAIN if name == ANY_DOMAIN else _host(name)
    except ValueError:
        raise ValueError(f"{written!r} is not a domain; write it like example.org, or * for all") from None


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
