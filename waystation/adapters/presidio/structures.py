"""Secrets that elements, fields, lists, calls and manifests around them name. For the whole text: these span lines."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import Hit
from waystation.adapters.presidio.labels import ACCESS, PASSWORD
from waystation.adapters.presidio.stand_ins import is_stand_in
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
    kind = _MANIFEST.search(text)
    while kind:
        end = text.find("\n---", kind.end())
        end = len(text) if end < 0 else end
        yield from _manifest(text, text.rfind("\n---", 0, kind.start()) + 1, end)
        kind = _MANIFEST.search(text, end)


def _manifest(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for fields in _SECRET_FIELDS.finditer(text, start, end):
        for field in _FIELD.finditer(text, *fields.span("fields")):
            secret = field["secret"] if field["end"] else field["secret"].rstrip(" \t")
            yield field.start("secret"), field.start("secret") + len(secret)
