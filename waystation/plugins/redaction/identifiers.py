"""Detects identifiers of people and machines: Presidio's recognisers, made stricter; labelled national ids; and numbers
of cards, bank accounts and wallets by their checksums, after a label even with a wrong digit.
"""

import ipaddress
import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache

import tldextract
from presidio_analyzer import Pattern, RecognizerResult
from presidio_analyzer.nlp_engine import NlpArtifacts
from presidio_analyzer.predefined_recognizers import CreditCardRecognizer, IbanRecognizer, IpRecognizer
from presidio_analyzer.predefined_recognizers.generic.iban_patterns import regex_per_country

from waystation.kernel.patterns import compile_bounded, compile_dynamic
from waystation.plugins.redaction.assigned_secrets import CARD, to_lower_same_length
from waystation.plugins.redaction.formats import FormatRecognizer, PrefilteredPattern, RecognizerMatch
from waystation.security.placeholders import ENCODED_AT, ENCODED_DOT, normalize_email_address

_REMEMBERED = 1_024
"""Number of values whose checks are cached: a text that repeats one a thousand times takes no longer."""
_PRIVATE_DOMAINS = frozenset({"internal", "local", "lan", "corp", "home", "intranet", "test", "example", "invalid"})
_NOBODYS_MAILBOXES = frozenset({"git", "hg", "svn"})
_AT_IN_URL = "%40"
_AT_SIGNS = ("@", _AT_IN_URL, "at]", "at)", "at ]", "at )", "AT]", "AT)", "@]", "@)")
_SPELLED_AT, _SPELLED_DOT = (rf"\s?[\[(]\s?{word}\s?[\])]\s?" for word in ("(?:at|@)", r"(?:dot|\.)"))
_ENCODED_SIGNS = ("u0040", "x40", "&#64", "&#064", "&#x0040", "&commat")
"""Encoded `@`, in lower case, as JSON, programs and HTML write it."""
_SPECIAL = "=/|{}!#$&*?^`"
"""Characters that the standard allows in a mailbox, but that usually precede an address: the name begins after the last
one.
"""
_MARK = "".join(map(chr, (number for number in range(0x300, 0x10000) if unicodedata.category(chr(number))[0] == "M")))
_LETTERS = rf"\w{_MARK}\u200c\u200d"
"""Includes scripts with vowel marks, and letters with combining accents."""
_LABEL = rf"[{_LETTERS}]++(?:-++[{_LETTERS}]++)*+"
_DOMAIN = rf"{_LABEL}(?:\.{_LABEL})++"
_ADDRESS = compile_bounded(rf"(?P<mailbox>[!#$%&'*+\-/=?^`{{|}}~.{_LETTERS}]++)(?:(?<!\.)@(?P<domain>{_DOMAIN}))?+")
"""Matches with or without the domain, so that no span is read twice."""
_FIRST_LETTER = compile_bounded(rf"[{_LETTERS}]")
_UNUSUAL_ADDRESSES = (
    PrefilteredPattern(('"@',), compile_bounded(rf'"[^"@\\\n]{{1,64}}"@{_DOMAIN}')),
    PrefilteredPattern(
        _AT_SIGNS[2:],
        compile_bounded(rf"\b\w[\w.+-]{{0,63}}{_SPELLED_AT}{_LABEL}(?>(?:\.|{_SPELLED_DOT}){_LABEL})++", re.IGNORECASE),
    ),
    PrefilteredPattern(
        _ENCODED_SIGNS,
        compile_bounded(
            rf"(?<!\w)\w[\w.+-]{{0,63}}{ENCODED_AT}{_LABEL}(?>(?:\.|{ENCODED_DOT}){_LABEL})++", re.IGNORECASE
        ),
    ),
    PrefilteredPattern((_AT_IN_URL,), compile_bounded(rf"\b\w[\w.+-]{{0,63}}{_AT_IN_URL}{_DOMAIN}")),
)


class EmailAddressRecognizer(FormatRecognizer):
    """Finds EMAIL_ADDRESS by the public suffix list in the package, also in internal domains, with quoted mailboxes,
    and as addresses appear in URLs.
    """

    TYPES = ("EMAIL_ADDRESS",)

    def __init__(self) -> None:
        super().__init__()
        self._suffixes = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
        self._top = frozenset(suffix.rpartition(".")[2] for suffix in self._suffixes.tlds)
        # A look-up in the list takes as long as everything before it.
        self._extracted = lru_cache(_REMEMBERED)(self._suffixes.extract_str)

    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield every address; the same characters may be matched more than once."""
        for start, end in _addresses(text):
            for last in (end, *_without_glued(text, start, end)):
                if self._is_address(text[start:last]):
                    yield RecognizerMatch("EMAIL_ADDRESS", start, last, 1.0)
                    break

    def _is_address(self, value: str) -> bool:
        """Return whether it is a person's address: `git@host` is not; a domain must end in a known or private-network
        suffix.
        """
        mailbox, _, domain = normalize_email_address(value).rpartition("@")
        if not mailbox or mailbox.lower() in _NOBODYS_MAILBOXES:
            return False
        last = domain.rpartition(".")[2].lower()
        if last in _PRIVATE_DOMAINS:
            return True
        return (last in self._top or last.startswith("xn--")) and bool(self._extracted(domain).suffix)


def _without_glued(text: str, start: int, end: int) -> Iterator[int]:
    """Yield possible ends of an address with a joined word: `ada@example.org_run`, `ada@example.org-run.md`."""
    domain = text.find("@", start, end)
    if domain < 0:
        return
    for sign in "_-.":
        joint = text.rfind(".", domain, end) if sign == "." else text.find(sign, domain, end)
        if joint > domain:
            yield joint


def _addresses(text: str) -> Iterator[tuple[int, int]]:
    lowered = to_lower_same_length(text)
    if not any(sign in lowered for sign in (*_AT_SIGNS, *_ENCODED_SIGNS)):
        return
    if "@" in text:
        for address in _ADDRESS.finditer(text):
            first = _FIRST_LETTER.search(text, *address.span("mailbox")) if address["domain"] else None
            if first:
                special = max(text.rfind(character, first.start(), address.end("mailbox")) for character in _SPECIAL)
                yield max(first.start(), special + 1), address.end()
    for unusual in _UNUSUAL_ADDRESSES:
        for address in unusual.matches(text, lowered):
            yield address.span()


_IP_LABEL = compile_bounded(
    r"(?:\b(?:ip|ipv4|addr|address|host|gateway|dns|resolver|ping|ssh|telnet|connect(?:ed|ion)?|peer|bind|listen(?:ing|s)?"
    r"|login)\b|://)[^\n]{0,24}$",
    re.IGNORECASE,
)
_IP_TAIL = compile_bounded(r":\d{2,5}\b|/\d{1,2}\b")
_VERSION_LABEL = compile_bounded(
    r"(?:\b(?:versions?|releases?|section|chapter|build|rev|tag|v|python|driver|firmware)\.?|==|[<>~^!]=?|\w[-_])\s{0,2}v?$",
    re.IGNORECASE,
)
_VERSION_TAIL = compile_bounded(
    r"[-+_.]?(?:a|b|rc|dev|post|alpha|beta|tar|zip|whl|egg|exe|msi|deb|rpm|jar)(?![A-Za-z])"
)
_MIN_FIRST_OCTET = 10
"""Below this, four numbers with dots are a version or a section unless a word nearby concerns networks."""
_MIN_IPV6_GROUPS = 3
_IPV4_IN_IPV6 = Pattern(
    "IPv4 in IPv6", r"(?<![\w:.])(?:::(?:ffff:(?:0:)?)?|64:ff9b::)(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)", 0.6
)


_IPV6_IN_BRACKETS = Pattern(
    "IPv6 in brackets", r"(?<=\[)(?<![\w)\]]\[)(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?=\](?::\d|/|\s|$))", 0.6
)
_DIGITS_BEFORE, _DIGITS_AFTER = compile_bounded(r"\d\.$"), compile_bounded(r"\.\d")


class IpAddressRecognizer(IpRecognizer):
    """Presidio's recogniser, without versions, and without addresses that identify no one (127.0.0.1, 0.0.0.0, ::1)."""

    def __init__(self) -> None:
        super().__init__(patterns=[*self.PATTERNS, _IPV4_IN_IPV6, _IPV6_IN_BRACKETS])

    def invalidate_result(self, pattern_text: str) -> bool:
        """See base class."""
        return _interface(pattern_text) is None

    def analyze(
        self,
        text: str,
        entities: list[str],
        nlp_artifacts: NlpArtifacts | None = None,
        regex_flags: int | None = None,
    ) -> list[RecognizerResult]:
        """Return the IP addresses in the text."""
        if "." not in text and ":" not in text:
            return []
        results = super().analyze(text, entities, nlp_artifacts, regex_flags)
        return [result for result in results if _is_address(text, result.start, result.end)]


@lru_cache(_REMEMBERED)
def _interface(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse the address; None if it is none. Cached, since a log repeats the same ones."""
    try:
        return ipaddress.ip_interface(value).ip
    except ValueError:
        return None


def _is_address(text: str, start: int, end: int) -> bool:
    address = _interface(text[start:end].partition("%")[0])
    if address is None or address.is_loopback or address.is_unspecified or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if "." in text[start:end]:
            return not ipaddress.IPv4Address(address.packed[-4:]).is_loopback
        groups = [group for group in text[start:end].split(":") if group]
        return len(groups) >= _MIN_IPV6_GROUPS or (len(groups[0]) > 2 and any(map(str.isdigit, groups[0])))
    if _DIGITS_BEFORE.search(text, max(0, start - 2), start) or _DIGITS_AFTER.match(text, end):
        return False
    return not _is_mask(address) and not _is_version(text, start, end, address)


def _is_mask(address: ipaddress.IPv4Address) -> bool:
    return address.packed[0] == 255


def _is_version(text: str, start: int, end: int, address: ipaddress.IPv4Address) -> bool:
    if _VERSION_LABEL.search(text, max(0, start - 12), start) or _VERSION_TAIL.match(text, end):
        return True
    of_network = _IP_LABEL.search(text, max(0, start - 40), start) or _IP_TAIL.match(text, end)
    return address.packed[0] < _MIN_FIRST_OCTET and not of_network


_NUMBER_IS = r"(?:\s?(?:numbers?|nos?\.?|num\.?|nr\.?|#|id))?(?:\s(?:is|was))?\s{0,2}[:=#]?\s{0,2}"
_LABELLED_SSN = compile_bounded(
    rf"\b(?:ssn|itin|social security){_NUMBER_IS}(?P<number>\d{{3}}[ .-]?\d{{2}}[ .-]?\d{{4}})(?!\w)", re.I
)
_SSN = compile_bounded(r"(?:(?<![\w.+-])|(?<=[a-z]{2}[-_]))(?!000|666)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w]|[.-]\d)")
_JOINT = r"(?:[-./]| (?=\d{2}))?"
"""Separator between groups of an id: a blank only before digits, or following words would be a part."""
_LABELLED = (
    (
        "PASSPORT",
        compile_bounded(
            rf"\bpassport{_NUMBER_IS}(?P<number>(?=[A-Z]{{0,6}}[ -]?\d)[A-Z0-9](?:{_JOINT}[A-Z0-9]){{5,8}})(?!\w)", re.I
        ),
    ),
    (
        "BANK_ACCOUNT",
        compile_bounded(
            rf"\b(?:(?:bank|checking|savings)\s)?(?:account|acct\.?){_NUMBER_IS}"
            r"(?P<number>\d(?:[ -]?\d){7,16})(?!\w)",
            re.I,
        ),
    ),
    (
        "DRIVER_LICENSE",
        compile_bounded(
            rf"\b(?:driver['’]?s?['’]?|driving)\s(?:licen[cs]e|permit){_NUMBER_IS}"
            rf"(?P<number>(?=[A-Z]{{0,6}}[ -]?\d)[A-Z0-9](?:{_JOINT}[A-Z0-9]){{5,19}})(?!\w)",
            re.I,
        ),
    ),
)


class SocialSecurityRecognizer(FormatRecognizer):
    """Finds US_SSN by its hyphens or by the label before it."""

    TYPES = ("US_SSN",)

    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield every number; the same characters may be matched more than once."""
        for match in _SSN.finditer(text):
            yield RecognizerMatch("US_SSN", match.start(), match.end(), 0.85)
        for match in _LABELLED_SSN.finditer(text):
            yield RecognizerMatch("US_SSN", *match.span("number"), 0.85)


class LabelledIdRecognizer(FormatRecognizer):
    """Finds ids with arbitrary digits by the label before them."""

    TYPES = ("PASSPORT", "BANK_ACCOUNT", "DRIVER_LICENSE")

    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield every id; the same characters may be matched more than once."""
        for type_, pattern in _LABELLED:
            for match in pattern.finditer(text):
                yield RecognizerMatch(type_, *match.span("number"), 0.85)


_CARD_ISSUERS = compile_bounded(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"
    r"|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|35\d{14}|6(?:011|2\d\d|5\d\d|4[4-9]\d)\d{12}"
)
_LABELLED_CARD = compile_bounded(
    rf"(?:{CARD})\\?[\"']?\s{{0,2}}(?:(?:is|was|lautet|ist|est|es|è|é)\s|[:=#|])?[\s\"']{{0,3}}"
    r"(?P<number>\d(?:[ -]?\d){12,18})(?![\w]|[.-]\d)"
)
_POINT, _EITHER = compile_bounded(r"\d\.\Z"), compile_bounded(r"(?:\d\.|(?:(?<!\d)0|[ \t(]\d{1,9}),)\Z")
"""Text before decimals. With a comma that is `0,…` or a figure in a sentence: otherwise it separates CSV cells."""
_IBAN_LABEL = compile_bounded(r"\biban\b[^\n\d]{0,24}\Z", re.IGNORECASE)
_LABEL_REACH = 32
_WRITTEN = compile_bounded(
    r"(?<![A-Za-z0-9])(?:[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?"
    r"|[a-z]{2}\d{2}(?:[ -]?[a-z0-9]{4}){2,7}(?:[ -]?[a-z0-9]{1,3})?)(?![A-Za-z0-9])"
)
_IN_FOURS = compile_bounded(r"\w{4}(?:[ -]\w{4}){2,7}(?:[ -]\w{1,3})?")
_LAST_GROUP_WITH_DIGIT = compile_bounded(r"\A(?>.*\d)[A-Za-z0-9]*+")
_ETHEREUM = compile_bounded(r"(?<!\w)0x(?!0{36})[0-9A-Fa-f]{40}(?!\w)")
_CAPITALS = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Unlike `str.upper`, it preserves the length of any text."""


class CardRecognizer(CreditCardRecognizer):
    """Presidio's recogniser, with Mastercard's newer numbers, and without numbers that no issuer uses (microseconds of
    a clock) and decimals of a figure.
    """

    def __init__(self) -> None:
        newer = Pattern("Mastercard from 2", r"\b2[2-7]\d{2}[- ]?\d{4}[- ]?\d{4}[- ]?\d{4}\b", 0.3)
        super().__init__(patterns=[*self.PATTERNS, newer])

    def analyze(
        self,
        text: str,
        entities: list[str],
        nlp_artifacts: NlpArtifacts | None = None,
        regex_flags: int | None = None,
    ) -> list[RecognizerResult]:
        """Return the card numbers in the text."""
        results = super().analyze(text, entities, nlp_artifacts, regex_flags)
        return [result for result in results if _is_card(text, result.start, result.end)]


def _is_card(text: str, start: int, end: int) -> bool:
    number = text[start:end]
    decimals = _POINT if text[end : end + 1] == "," or not number.isdigit() else _EITHER
    before = max(0, start - 12), start
    return (
        not decimals.search(text, *before)
        and _CARD_ISSUERS.fullmatch("".join(filter(str.isdecimal, number))) is not None
    )


class IbanInAnyCaseRecognizer(IbanRecognizer):
    """Presidio's recogniser, which itself only accepts capitals."""

    def analyze(
        self,
        text: str,
        entities: list[str],
        nlp_artifacts: NlpArtifacts | None = None,
        regex_flags: int | None = None,
    ) -> list[RecognizerResult]:
        """Return the account numbers in the text with correct check digits."""
        # The base class defaults to None, which its annotations do not say.
        return super().analyze(
            text.translate(_CAPITALS),
            entities,
            nlp_artifacts,  # pyright: ignore[reportArgumentType]
            regex_flags,  # pyright: ignore[reportArgumentType]
        )


class EthereumAddressRecognizer(FormatRecognizer):
    """Finds CRYPTO: addresses of Ethereum and similar ones. The zero address belongs to no one."""

    TYPES = ("CRYPTO",)

    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield every address."""
        for match in _ETHEREUM.finditer(text):
            yield RecognizerMatch("CRYPTO", match.start(), match.end(), 0.85)


class MistypedNumberRecognizer(FormatRecognizer):
    """Finds CREDIT_CARD and IBAN_CODE that fail their checks: one wrong digit does not make a number public."""

    TYPES = ("CREDIT_CARD", "IBAN_CODE")

    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield numbers after their label, and those grouped like an IBAN of their country."""
        for match in _LABELLED_CARD.finditer(to_lower_same_length(text)):
            yield RecognizerMatch("CREDIT_CARD", *match.span("number"), 0.6)
        for match in _WRITTEN.finditer(text):
            end = _end_of_iban(text, match)
            if end is not None:
                yield RecognizerMatch("IBAN_CODE", match.start(), end, 0.6)


@cache
def _form_in(country: str) -> re.Pattern[str] | None:
    form = regex_per_country.get(country)
    return compile_dynamic(form.removeprefix("^").removesuffix("$")) if form else None


def _end_of_iban(text: str, written: re.Match[str]) -> int | None:
    """Return the end as its country writes it, or after its label as it is; None if it may be anything."""
    labelled = _IBAN_LABEL.search(text, max(0, written.start() - _LABEL_REACH), written.start())
    value = written[0].translate(_CAPITALS).replace("-", " ")
    form = _form_in(value[:2])
    whole = form.match(value) if form else None
    if whole:
        length = len(whole[0].rstrip())
        return written.start() + length if labelled or _IN_FOURS.fullmatch(value[:length]) else None
    digits = _LAST_GROUP_WITH_DIGIT.match(value)
    return written.start() + digits.end() if labelled and digits else None
