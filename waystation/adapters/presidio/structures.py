"""Secrets that elements, fields, lists, calls and manifests around them name. For the whole text: these span lines."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import Hit
from waystation.adapters.presidio.labels import ACCESS, PASSWORD, lower
from waystation.adapters.presidio.stand_ins import is_code, is_stand_in
from waystation.adapters.presidio.vocabulary import PROSE
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
    rf"\b(?:name|key|id)\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}\\?[\"']?{_SECRET_NAME}\\?[\"']?[\s,]{{1,40}}\\?[\"']?value\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}"
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


def structured(text: str) -> Iterator[Hit]:
    """Every secret that its place in the text makes one."""
    for start, end in _spans(text):
        if end - start > 1 and not is_stand_in(text[start:end].strip()):
            yield Hit("SECRET", start, end, 0.9)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for pattern in (_ELEMENT, _NAMED, _SET_BY_NAME):
        for match in pattern.finditer(text):
            yield match.span("secret")
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
