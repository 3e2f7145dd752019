"""Secrets where HTTP carries them: headers, cookies, and addresses."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import Hinted, Hit
from waystation.adapters.presidio.labels import lower
from waystation.adapters.presidio.stand_ins import is_stand_in
from waystation.patterns import proven

_END = r"\s\"'`\\,;<>"
_AUTHORIZATION = Hinted(
    ("authorization",),
    proven(
        r"(?:proxy-)?authorization\\?[\"']?\s{0,3}[:=,]\s{0,3}[fb]?\\?[\"'`]?"
        r"(?!digest\b|aws4)(?:[a-z][\w-]{1,30}[ \t]{1,3})?(?:(?:auth|token|key|credential|apikey)=\"?)?"
        rf"(?P<secret>[^{_END}]{{6,4000}})",
        re.IGNORECASE,
    ),
)
_SCHEME = Hinted(
    ("bearer", "basic"),
    proven(
        r"\b(?:bearer|basic)\s{1,3}(?P<secret>(?:(?=[\w.~+/-]{0,80}\d)[\w.~+/-]{16,}|[\w+/]{10,}(?==))={0,2})", re.I
    ),
)
_SIGNED = Hinted(
    ("response=", "signature="),
    proven(r"\b(?:response=\"(?P<response>[0-9a-f]{32,128})\"|Signature=(?P<secret>[0-9a-fA-F]{32,128}))"),
)
_HEADER_OPTION = Hinted(
    ("-h", "--header"),
    proven(
        r"\s(?:-H|--header)[ =]?(?P<quote>[\"'])[\w-]{0,40}(?:key|token|secret|auth|password)[\w-]{0,20}:\s{0,3}"
        r"(?P<secret>(?:(?!(?P=quote))\S){4,4000})(?P=quote)",
        re.IGNORECASE,
    ),
)
_COOKIES = Hinted(
    ("cookie", "-b"),
    proven(
        r"(?:cookie2?\\?[\"']?\s{0,2}[:=,]\s{0,2}\[?\\?[\"']?|\s(?:-b|--cookie)[ =]?[\"'])"
        r"(?=[\w.$%-]{1,60}=)(?P<all>[^\n]{1,8000})",
        re.IGNORECASE,
    ),
)
_COOKIE = proven(rf"(?P<name>[\w.$%-]{{1,60}})=(?P<secret>[^{_END}]{{4,4000}})")
_OF_A_SESSION = proven(r"sess|sid|token|auth|jwt|csrf|xsrf|remember|ticket|secret|pass|login", re.IGNORECASE)
_KNOWN_COOKIE = Hinted(
    ("sess", "sid=", "csrf", "token=", ".aspnetcore.", "wordpress"),
    proven(
        r"(?:\b(?:JSESSIONID|PHPSESSID|ASPSESSIONID\w{0,12}|ASP\.NET_SessionId|CFTOKEN|connect\.sid|laravel_session|_gh_sess"
        r"|csrftoken|XSRF-TOKEN|sessionid|sid|ssid|wordpress_logged_in_\w{1,40})|\.AspNetCore\.\w{1,40})="
        rf"(?=[^{_END}&]{{0,60}}\d)(?P<secret>[^{_END}&?)]{{8,4000}})",
        re.IGNORECASE,
    ),
)
_IN_QUERY = Hinted(
    ("?", "&", ";"),
    proven(
        r"[?&;](?:amp;)?(?:(?P<sure>[\w.-]{0,30}?(?:api_?-?key|access_?token|password|passwd|pwd|client_?secret|sig|signature))"
        r"|[\w.-]{0,30}?(?:key|token|secret|pass|auth|sid|session|otp|code_verifier|jwt|ticket))="
        r"(?P<secret>[^&#\s\"'`\\<>);,]{4,4000})",
        re.IGNORECASE,
    ),
)
_IN_URL = Hinted(
    ("://",),
    proven(
        r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[^\s:/@<>]{0,200}:"
        r"(?P<secret>[^\s/@]{1,200}(?:@[^\s/@,;?&=#()\"'`<>]{1,100}){0,3})@"
    ),
)
_KEY_IN_URL = Hinted(("://",), proven(r"://(?P<secret>(?=[\w-]{0,100}\d)[\w-]{20,200})@(?=[\w.-]{1,250}\.\w)"))
_WIFI = Hinted(
    ("wifi:",),
    proven(r"\bWIFI:(?>[A-OQ-Z]:(?:\\.|[^;\\\s]){0,200}+;){0,8}+P:(?P<secret>(?:\\.|[^;\\\n]){1,200});", re.IGNORECASE),
)
_ORACLE = Hinted(
    ("sqlplus", "jdbc:oracle"),
    proven(r"\b(?:sqlplus\s(?:-\w\s){0,3}|jdbc:oracle:\w{1,10}:)[\w$#]{1,60}/(?P<secret>[^\s/@\"']{1,100})@"),
)
_SHORTEST_KEY, _LONG_COOKIE = 6, 16
_DIGIT = proven(r"\d")
_INNER_CAPITAL, _CAPITALS, _SMALL = proven(r"[a-z][A-Z]"), proven(r"[A-Z]{2}"), proven(r"[a-z]")


def carried(text: str) -> Iterator[Hit]:
    """Every secret in a header, cookie or address; the same characters may be found more than once."""
    for start, end in _spans(text, lower(text)):
        if not is_stand_in(text[start:end]):
            yield Hit("SECRET", start, end, 0.9)


def _spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for pattern in (_SCHEME, _HEADER_OPTION, _KNOWN_COOKIE, _IN_URL, _KEY_IN_URL, _WIFI, _ORACLE):
        for match in pattern.matches(text, lowered):
            yield match.span("secret")
    for match in _SIGNED.matches(text, lowered):
        yield match.span(match.lastgroup or 0)
    yield from _authorizations(text, lowered)
    yield from _in_queries(text, lowered)
    yield from _cookies(text, lowered)


def _authorizations(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for match in _AUTHORIZATION.matches(text, lowered):
        if _DIGIT.search(match["secret"]) or _is_mixed(match["secret"]):
            yield match.span("secret")


def _is_mixed(value: str) -> bool:
    """Whether capitals stand where no word has them, or the value is filled up as Base64 is."""
    capitals = _CAPITALS.search(value)
    small = capitals and _SMALL.search(value, capitals.end())
    return "=" in value or small is not None or len(_INNER_CAPITAL.findall(value)) > 1


def _in_queries(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for match in _IN_QUERY.matches(text, lowered):
        if match["sure"] or (len(match["secret"]) >= _SHORTEST_KEY and _DIGIT.search(match["secret"])):
            yield match.span("secret")


def _cookies(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for cookies in _COOKIES.matches(text, lowered):
        for match in _COOKIE.finditer(text, *cookies.span("all")):
            is_long = len(match["secret"]) >= _LONG_COOKIE and _DIGIT.search(match["secret"])
            if is_long or _OF_A_SESSION.search(match["name"]):
                yield match.span("secret")
