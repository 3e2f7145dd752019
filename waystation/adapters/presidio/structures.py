"""Secrets that elements, fields, lists, calls and manifests around them name. For the whole text: these span lines.

Passwords in rows that SQL inserts: the columns are named once, and the values come in their order.

Secrets, phones and cards in a column of a table, under a heading that names them. For the whole text: a table may be
long.

A user and a password side by side: behind a word that announces them, before a host, or with a known account.
"""

import re
from collections.abc import Generator, Iterator, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from waystation.adapters.presidio.assignments import (
    ACCESS,
    CARD,
    KEY,
    PASSWORD,
    PHONE,
    UNLIKE_A_WORD,
    is_code,
    is_stand_in,
    lower,
)
from waystation.adapters.presidio.formats import Hinted, Hit
from waystation.adapters.presidio.people import PROSE
from waystation.patterns import proven

_SECRET_NAME = rf"(?:[\w .:-]{{0,40}}?(?:{PASSWORD}|{ACCESS}|secret|token|credential|passwort)|pass|pw|pin|cvv|cvc)"
_MANIFEST = proven(r"^kind:[ \t]*[\"']?(?:Sealed)?Secret[\"']?[ \t]*$", re.MULTILINE)
_SECRET_FIELDS = proven(
    r"^([ \t]*+)(?:data|stringData):[ \t]*+\n(?P<fields>(?>\1[ \t][^\n]*+(?:\n|\Z))++)", re.MULTILINE
)
_FIELD = proven(
    r"^[ \t]++[\"']?[\w.-]++[\"']?:[ \t]*+[\"']?(?P<secret>[^\s\"'|>][^\n\"']*+)(?P<end>[\"']?)[ \t]*+$", re.MULTILINE
)
_ELEMENT = proven(
    rf"<(?P<tag>{_SECRET_NAME})(?:\s[^<>\n]{{0,200}})?>\s{{0,80}}(?:<!\[CDATA\[)?(?P<secret>[^<>\s][^<>\n]{{0,400}}?)(?:\]\]>)?\s{{0,80}}</(?P=tag)>",
    re.IGNORECASE,
)
_NAMED = proven(
    rf"\b(?:name|key|id)\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}\\?[\"']?{_SECRET_NAME}\\?[\"']?[\s,]{{1,40}}\\?[\"']?val(?:ue)?\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}"
    r"(?P<quote>\\?[\"']?)(?P<secret>(?:(?!(?P=quote)[\s,/>}])[^\n<>]){1,400})(?P=quote)",
    re.IGNORECASE,
)
_QUOTED = r"(?:\"[^\"\n]{1,200}+\"|'[^'\n]{1,200}+')"
_PASSWORDS = r"(?:passwords|passphrases|passcodes|passw[oö]rter|contraseñas)\\?[\"']?\s?[:=]"
_IN_BRACKETS = proven(
    rf"{_PASSWORDS}\s?\[(?P<items>(?>\s{{0,200}}+(?:{_QUOTED}|[^\s\"'\[\](){{}},]{{1,200}}+)\s{{0,200}}+,?){{1,200}}+)\]",
    re.IGNORECASE,
)
_UNDER_EACH_OTHER = proven(
    rf"{_PASSWORDS}[ \t]{{0,200}}+\n(?P<items>"
    rf"(?>[ \t]{{0,200}}+-[ \t]{{1,200}}+(?:{_QUOTED}|[^\s\"'#:]{{1,200}}+)[ \t]{{0,200}}+(?:\n|\Z)){{1,500}}+)",
    re.IGNORECASE,
)
_ITEM = proven(r"(?P<quote>[\"'])(?P<quoted>[^\"'\n]++)(?P=quote)|(?P<bare>[^\s\"',-][^\s\"',]*+)")
_LISTS = (
    "passwords",
    "passphrases",
    "passcodes",
    "passwörter",
    "passworter",
    "contraseñas",
    "credentials",
    "zugangsdaten",
)
_ITEMS_OF_MARKDOWN = proven(
    rf"^[ \t]{{0,8}}+(?:#{{1,6}}[ \t]++|\*\*|__)?(?:[\w-]{{1,30}}[ \t]){{0,3}}(?:{'|'.join(_LISTS)})"
    r"(?:\*\*|__)?:?(?:\*\*|__)?[ \t]{0,80}+\n(?:[ \t]{0,80}+\n){0,2}+"
    r"(?P<items>(?>[ \t]{0,40}+(?:[-*+]|\d{1,3}[.)])[ \t]{1,8}+[^\n]{1,300}+(?:\n|\Z)(?:[ \t]{0,40}+\n)?+){1,500}+)",
    re.IGNORECASE | re.MULTILINE,
)
_ITEM_OF_MARKDOWN = proven(
    r"^[ \t]*+(?:[-*+]|\d{1,3}[.)])[ \t]++(?:[\w@.*`\" -]{1,60}?(?::\**[ \t]{1,4}|[ \t](?:[-–—/]|->|=)[ \t]))?"
    r"(?P<mark>\*\*|`|\"|')?(?P<secret>[^\s`*\"']{4,200}?)(?(mark)(?P=mark))[ \t]*+$",
    re.MULTILINE,
)
_KEY = proven(rf"{PASSWORD}|{ACCESS}|secret|token|\b(?:pass|pw)(?=[\"']?\s?[:=])")
_BLOCK = proven(
    r"[\"']?:[ \t]{0,40}+[|>][+-]?\d?[+-]?[ \t]{0,40}+\n(?P<lines>(?>[ \t]++[^\s#][^\n]{0,4000}+(?:\n|\Z)){1,100}+)"
)
_LINE = proven(r"^(?P<indent>[ \t]*+)(?P<secret>\S[^\n]*+)", re.MULTILINE)
_CONTINUED = proven(
    r"[ \t]{0,8}[=:][ \t]{0,8}"
    r"(?P<secret>[^\s\\\"'#()]{0,400}+(?:\\\r?\n[ \t]{0,200}+[^\s\\\"'#()]{1,400}+){1,20}+)[ \t]{0,80}+(?=\n|\Z)"
)
_CONTINUATION = proven(r"\A\\\s*+")
_OVER_LINES = proven(rf"[ \t]{{0,8}}[=:][ \t]{{0,8}}\((?P<items>(?>\s{{0,200}}+{_QUOTED}){{1,40}}+)\s{{0,200}}+\)")
_LONG_QUOTES = proven(
    r"[ \t]{0,8}[=:][ \t]{0,8}[rbf]?(?P<quote>\"{3}|'{3})\s{0,80}+"
    r"(?P<secret>(?!(?P=quote))\S(?:(?!\s{0,80}(?P=quote))[\s\S]){0,400}+)\s{0,80}(?P=quote)"
)
_INDENT = proven(r"[ \t]*+")
_TELLING = proven(r"[\d!#$%^&*?~+@]|[a-z][A-Z]")
_SET_BY_NAME = proven(
    rf"(?:set|put|add|append|update|with)\w{{0,20}}\(\s?[\"'](?P<name>{_SECRET_NAME})[\"'],\s?(?P<quote>[\"'])"
    r"(?P<secret>[^\s\"']{4,400})(?P=quote)\s?\)",
    re.IGNORECASE,
)


_NAMED_ELEMENT = proven(
    rf"<(?P<tag>[A-Za-z][\w:.-]{{0,40}})\s(?:[^<>]{{0,200}}\s)?(?:name|key|id)\s?=\s?(?P<sign>[\"']){_SECRET_NAME}(?P=sign)[^<>/]{{0,200}}>"
    r"\s{0,80}(?:<!\[CDATA\[)?(?P<secret>[^<>\s][^<>\n]{0,400}?)(?:\]\]>)?\s{0,80}</(?P=tag)>",
    re.IGNORECASE,
)
_OF_PLIST = proven(
    rf"<key>{_SECRET_NAME}</key>\s{{0,80}}<(?P<tag>string|data)>\s{{0,80}}(?P<secret>[^<>\s][^<>\n]{{0,400}}?)\s{{0,80}}</(?P=tag)>",
    re.IGNORECASE,
)
_IN_A_PAIR = proven(
    rf"\[\s?\\?(?P<quote>[\"']){_SECRET_NAME}\\?(?P=quote),\s?\\?(?P=quote)(?P<secret>[^\s\"'\\]{{4,400}})\\?(?P=quote)\s?\]",
    re.IGNORECASE,
)
_SECURE_STRING = proven(
    r"ConvertTo-SecureString\s{1,3}(?:-String\s{1,3})?(?P<quote>[\"']?)(?P<secret>(?!-)[^\s\"']{2,400})(?P=quote)",
    re.IGNORECASE,
)


def structured(text: str) -> Iterator[Hit]:
    """Every secret that its place in the text makes one."""
    for start, end in _spans(text):
        if end - start > 1 and not is_stand_in(text[start:end].strip()):
            yield Hit("SECRET", start, end, 0.9)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for pattern in (_ELEMENT, _OF_PLIST, _NAMED, _IN_A_PAIR, _SET_BY_NAME, _SECURE_STRING):
        for match in pattern.finditer(text):
            yield match.span("secret")
    yield from (element.span("secret") for element in _NAMED_ELEMENT.finditer(text) if not _is_said(element))
    for pattern in (_IN_BRACKETS, _UNDER_EACH_OTHER):
        for passwords in pattern.finditer(text):
            for item in _ITEM.finditer(text, *passwords.span("items")):
                yield item.span(item.lastgroup or 0)
    yield from _over_lines(text)
    kind = _MANIFEST.search(text)
    while kind:
        end = text.find("\n---", kind.end())
        end = len(text) if end < 0 else end
        yield from _manifest(text, text.rfind("\n---", 0, kind.start()) + 1, end)
        kind = _MANIFEST.search(text, end)


def _is_said(element: re.Match[str]) -> bool:
    """Whether it is what a program says to people: `<string name="new_password">Your password</string>`."""
    return element["tag"].lower() == "string" and (" " in element["secret"] or not _TELLING.search(element["secret"]))


def _over_lines(text: str) -> Iterator[tuple[int, int]]:
    lowered = lower(text)
    if any(name in lowered for name in _LISTS):
        for passwords in _ITEMS_OF_MARKDOWN.finditer(text):
            for item in _ITEM_OF_MARKDOWN.finditer(text, *passwords.span("items")):
                if item["mark"] == "`" or _TELLING.search(item["secret"]):
                    yield item.span("secret")
    for key in _KEY.finditer(lowered):
        for start, end in _behind(text, *key.span()):
            if not (_is_prose(text[start:end]) or is_code(text, start, end)):
                yield start, end


def _behind(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """What a key at this place has in a block of YAML, behind ends of lines, in brackets over lines or long quotes."""
    if block := _BLOCK.match(text, end):
        begin = text.rfind("\n", 0, start) + 1
        indent = _INDENT.match(text, begin)
        for line in _LINE.finditer(text, *block.span("lines")):
            if indent and len(line["indent"]) <= indent.end() - begin:
                return
            yield line.span("secret")
    elif continued := _CONTINUED.match(text, end):
        joined = _CONTINUATION.match(continued["secret"])
        yield continued.start("secret") + (joined.end() if joined else 0), continued.end("secret")
    elif several := _OVER_LINES.match(text, end):
        for item in _ITEM.finditer(text, *several.span("items")):
            yield item.span(item.lastgroup or 0)
    elif quoted := _LONG_QUOTES.match(text, end):
        yield quoted.span("secret")


def _is_prose(value: str) -> bool:
    words = value.lower().split()
    return len(words) > 1 and not PROSE.isdisjoint(words)


def _manifest(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for fields in _SECRET_FIELDS.finditer(text, start, end):
        for field in _FIELD.finditer(text, *fields.span("fields")):
            secret = field["secret"] if field["end"] else field["secret"].rstrip(" \t")
            yield field.start("secret"), field.start("secret") + len(secret)


_INSERT = proven(
    r"\b(?:insert|replace)\s++(?:ignore\s++)?into\s++[^\s(]{1,200}+\s*+\((?P<columns>[^()]{1,2000}+)\)\s*+values(?=\s*+\()",
    re.IGNORECASE,
)
_PASSWORD = proven(rf"\A(?:(?:(?!{PASSWORD})[\w.-]){{0,200}}+(?:{PASSWORD})[\w.-]*+|pass|pw)\Z", re.IGNORECASE)
_AROUND_A_NAME = "\"'`[] \t\r\n"
_VALUE = (
    r"(?>\s*+'(?:[^'\\]++|''|\\.)*+'\s*+|\s*+\"(?:[^\"\\]++|\\.)*+\"\s*+"
    r"|[^,()'\"]*+(?:\([^()]*+\)\s*+)?)"
)
_ROW = proven(rf"(?<!\s)\s*+(?:,\s*+)?\({_VALUE}(?:,{_VALUE})*+\)")
_LONGEST_ROW = 40_000
"""Characters: else a row without an end would be read to the end of the text, once for each statement in it."""
_CELL = proven(rf"[(,]({_VALUE})")
_WRITTEN = proven(r"(?<!\s)\s*+N?(?P<quote>['\"])(?P<secret>.{2,400})(?P=quote)\s*+", re.DOTALL)


def inserted(text: str) -> Iterator[Hit]:
    """Every password among the values, where it is written out."""
    for insert in _INSERT.finditer(text):
        columns = [bool(_PASSWORD.match(name.strip(_AROUND_A_NAME))) for name in insert["columns"].split(",")]
        row = _row(text, insert.end()) if any(columns) else None
        while row:
            yield from _passwords(text, row, columns)
            row = _row(text, row.end())


def _row(text: str, start: int) -> re.Match[str] | None:
    return _ROW.match(text, start, start + _LONGEST_ROW)


def _passwords(text: str, row: re.Match[str], columns: list[bool]) -> Iterator[Hit]:
    begin = text.index("(", row.start())
    for is_password, cell in zip(columns, _CELL.finditer(text, begin, row.end()), strict=False):
        value = _WRITTEN.fullmatch(text, *cell.span(1)) if is_password else None
        if value and not is_stand_in(value["secret"]):
            yield Hit("SECRET", *value.span("secret"), 0.9)


_NAME = rf"[\w .-]{{0,40}}?(?:(?P<password>{PASSWORD})|(?P<key>{ACCESS}|{KEY}))"
_HEADING = proven(
    rf"\A(?:{_NAME}|(?P<short>pass|pw|pass[ _-]word)|(?P<code>pin|cv[vc]2?)"
    rf"|[\w .-]{{0,20}}?(?:(?P<phone>{PHONE})|(?P<card>{CARD}))(?:[ -](?:numbers?|no\.?))?)\Z"
)
_ANY_NAME = proven(
    rf"{PASSWORD}|\b(?:pass|pw|pin|cv[vc]2?|pass[ _-]word)\b|{ACCESS}|{KEY}"
    r"|phone|fax|mobil|telef|\btel\b|handy|card|kart"
)
_AROUND_A_HEADING = "\"'*_` \t\r\n"
_SEPARATORS = "|\t;,"
_FIELD_NAME = proven(
    r"\A(?:\s*(?:[A-Za-z_][\w.-]*|\"[\w .-]+\"|'[\w .-]+')\s*"
    r"|[A-Za-z_][\w.-]* [\w.-]+\s*|[A-Z][\w.-]*(?: [\w.-]++){2,3}\s*)\Z"
)
"""Two words, and more with a capital, count where no blank is before them, as there is behind a comma of a sentence."""
_RULE = proven(r"\A[\s|:+=-]+\Z")
_CODE = proven(r"\A\d{3,8}\Z")
_LEAST_KEY = proven(
    rf"\A(?:(?=[^\s]*\d)(?=[^\s]*[a-z])\S{{6,}}|{UNLIKE_A_WORD}|(?-i:(?=\S*[a-z][A-Z])[\w+/=-]{{24,}}))\Z",
    re.IGNORECASE,
)
_PHONE = proven(r"\A(?=(?:\D*\d){7,15}\D*\Z)(?![1-9]\d{0,8}\Z|\d+\.\d+\Z|\d{4}-\d\d-\d\d\Z)[+(]?\d[\d ()./-]*\d\Z")
"""A few digits without a sign may be a count, of calls from mobiles, say."""
_CARD = proven(r"\A\d(?:[ -]?\d){12,18}\Z")
_ANYTHING = proven(r"\A(?=..)\S++(?: \S++){0,5}\Z")


_FITS = MappingProxyType(
    {
        "password": ("SECRET", _ANYTHING),
        "short": ("SECRET", _ANYTHING),
        "key": ("SECRET", _LEAST_KEY),
        "code": ("SECRET", _CODE),
        "phone": ("PHONE", _PHONE),
        "card": ("CARD", _CARD),
    }
)
"""By the group of the heading: what the column holds, and the form of it."""


class _Column(NamedTuple):
    number: int
    type: str
    fits: re.Pattern[str]


def in_columns(text: str) -> Iterator[Hit]:
    """The cells under such a heading, down to the first line of another form."""
    lowered = lower(text)
    read = 0
    for name in _ANY_NAME.finditer(lowered):
        if name.start() < read:
            continue
        start, end = text.rfind("\n", 0, name.start()) + 1, _end_of_line(text, name.end())
        read = end
        line = text[start:end]
        separator = next((mark for mark in _SEPARATORS if mark in line), "")
        columns = _columns(line, separator) if separator else []
        if columns and not _goes_on(text, start, separator):
            read = yield from _cells_below(text, (start, end), separator, columns)


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _columns(heading: str, separator: str) -> list[_Column]:
    names = heading.split(separator)
    if separator in ",;" and not all(_FIELD_NAME.match(name) for name in names):
        return []
    found = (
        (number, _HEADING.match(lower(name).strip(_AROUND_A_HEADING).replace("_", " ")))
        for number, name in enumerate(names)
    )
    return [_Column(number, *_FITS[name.lastgroup or ""]) for number, name in found if name]


def _goes_on(text: str, start: int, separator: str) -> bool:
    """Whether the line is a row of a table that began before it."""
    before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
    return start > 0 and before.count(separator) == text[start : _end_of_line(text, start)].count(separator)


def _cells_below(
    text: str, heading: tuple[int, int], separator: str, columns: Sequence[_Column]
) -> Generator[Hit, None, int]:
    """Ends with the place behind the table."""
    parts = text[slice(*heading)].count(separator)
    position = heading[1] + 1
    while position < len(text):
        end = _end_of_line(text, position)
        line = text[position:end]
        if line.count(separator) != parts:
            break
        if not _RULE.match(line):
            yield from _cells(line.split(separator), columns, position)
        position = end + 1
    return position


def _cells(cells: Sequence[str], columns: Sequence[_Column], position: int) -> Iterator[Hit]:
    starts = list(accumulate((len(cell) + 1 for cell in cells), initial=position))
    for number, type_, fits in columns:
        value = cells[number].strip().strip("\"'`")
        if fits.match(value) and not is_stand_in(value):
            start = starts[number] + cells[number].index(value)
            yield Hit(type_, start, start + len(value), 0.9)


_USER = r"[\w.+-]{2,64}+(?:@[\w.-]{1,100}+)?"
_SECRET = r"(?P<secret>[^\s\"'`<>,;|()\[\]{}]{4,100})"
_ACCOUNTS = "admin|administrator|root|superuser|sa|sysadmin|sysdba"
_ANNOUNCED = Hinted(
    ("login", "log-in", "logon", "cred", "user", "account", "zugang", "anmeld", "usuario", "utilisateur", "utente"),
    proven(
        r"(?<![^\W_])(?<!/)(?:login|log-?in|logon|credentials?|creds?|user(?:name)?|account|zugang(?:sdaten)?|anmeldung|usuario|utilisateur"
        r"|utente)(?:s?[ \t]?(?:/|and|und|&|\+|y|et|e)[ \t]?(?:pass(?:word|wort)?|pw|pwd|passwort|contraseña|mdp))?"
        r"[\"'*]{0,3}(?:[ \t]{0,3}[:=]|[ \t](?:is|are|ist|lauten?))[ \t*\"'`]{0,4}+"
        rf"{_USER}[\"'`]?(?:[ \t]{{1,3}}[/|][ \t]{{1,3}}|[:/](?![/\d]{{1,9}}(?!\w)))[\"'`]?{_SECRET}",
        re.IGNORECASE,
    ),
)
_WITH_A_WORD = Hinted(
    (" pw", " pass", " pwd", " mdp", " with ", " mit "),
    proven(
        r"(?<![^\W_])(?:(?:user(?:name)?|login|account|benutzer|usuario|utilisateur|utente)[ \t]{0,2}[:=]?[ \t]{1,3}"
        rf"{_USER}[ \t]{{0,2}}[,;/]?"
        r"[ \t]{1,3}(?:(?:and|und|y|et|with|mit)[ \t])?(?:pw|pass|pwd|password|passwort|mdp)[ \t]{0,2}[:=]?"
        rf"|(?:log|sign)[ \t]?in[ \t](?:as|with)[ \t]{_USER}[ \t](?:with|and|/))[ \t]{{1,3}}[\"'`]?{_SECRET}",
        re.IGNORECASE,
    ),
)
_AT_A_HOST = Hinted(
    ("@",),
    proven(
        r"(?<![\w/.:@+-])(?P<user>[A-Za-z][\w.-]{1,31}):(?P<secret>[^\s\"'`<>,;|()\[\]{}/@:]{4,64})"
        r"@(?P<host>[A-Za-z\d](?:[\w-]|\.(?=\w)){1,100}+)(?!@)"
    ),
)
_KNOWN_ACCOUNT = Hinted(
    tuple(f"{account}:" for account in _ACCOUNTS.split("|")),
    proven(rf"(?<![\w/.:@$-])(?:{_ACCOUNTS}):(?P<secret>[^\s\"'`<>,;|()\[\]{{}}@]{{4,100}})"),
)
_ARGUMENT = r"(?:\"[^\"\n]{0,200}+\"|'[^'\n]{0,200}+'|[\w.:/-]{1,100}+)"
_LAST = r",\s?(?P<quote>[\"'])(?P<secret>[^\s\"']{4,200}+)(?P=quote)"
_IN_A_CALL = Hinted(
    ("auth", "credential", "login"),
    proven(
        rf"(?:auth\s?[=:]\s?|auth|credentials?|authentication|log_?in)\(\s?{_ARGUMENT}{_LAST}",
        re.IGNORECASE,
    ),
)
_OF_A_CONNECTION = Hinted(
    ("connect",), proven(rf"connect(?:ion)?\(\s?{_ARGUMENT},\s?{_ARGUMENT}{_LAST}", re.IGNORECASE)
)
_AS_THE_PASSWORD = Hinted(
    (" as the pass", " as your pass"),
    proven(
        r"\buse[ \t][\"'`]?(?P<secret>[^\s\"'`]{4,100})[\"'`]?[ \t]as[ \t](?:the|your)[ \t]pass(?:word|phrase|code)",
        re.IGNORECASE,
    ),
)
_OF_TWILIO = proven(r"\b(?:AC|SK)[0-9a-f]{32}:(?P<secret>[0-9A-Za-z]{32})\b")
_NO_USERS = (
    "acct bcc cc contact docker e-mail email from git github image mail mailto npm pkg reply-to sender sip to xmpp"
)
_NO_USER = frozenset(_NO_USERS.split())
_NO_HOST = proven(r"\A(?:sha\d{3}|md5|v?\d+(?:\.\d+){0,2}|latest|next|beta)\Z")
_DIGIT, _LETTER = proven(r"\d"), proven(r"[^\W\d_]")
_SYMBOL = proven(r"[!#$%^&*?=~+]")
_NO_PASSWORD = proven(r"\A(?:v?\d++(?:\.\d++)++[\w.-]*+|\d++-[a-z]++|[\d.:x-]++|[\w./-]*\.[a-z]\w{0,4})\Z")
"""Versions, numbers and files."""
_NOT_ITS_END = ".,;:*"


def paired(text: str) -> Iterator[Hit]:
    """Every password beside its user; the same characters may be found more than once."""
    for token in _OF_TWILIO.finditer(text):
        yield Hit("SECRET", *token.span("secret"), 1.0)
    for start, end in _pair_spans(text, lower(text)):
        value = text[start:end]
        if _is_password(value) and not (is_stand_in(value) or is_code(text, start, end)):
            yield Hit("SECRET", start, end, 0.9)


def _pair_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for pattern in (_ANNOUNCED, _WITH_A_WORD, _KNOWN_ACCOUNT, _IN_A_CALL, _OF_A_CONNECTION, _AS_THE_PASSWORD):
        for match in pattern.matches(text, lowered):
            start = match.start("secret")
            yield start, start + len(match["secret"].rstrip(_NOT_ITS_END))
    for match in _AT_A_HOST.matches(text, lowered):
        if match["user"].lower() not in _NO_USER and not _NO_HOST.match(match["host"]):
            # Without a dot it is no host for certain: a password may hold an @ as well.
            yield match.start("secret"), match.end("secret" if "." in match["host"] else "host")


def _is_password(value: str) -> bool:
    """Whether it has what words, versions and paths do not."""
    if value.startswith("/") or "://" in value or _NO_PASSWORD.match(value):
        return False
    if _SYMBOL.search(value):
        return True
    return _DIGIT.search(value) is not None and _LETTER.search(value) is not None
