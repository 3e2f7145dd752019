"""Detects secrets under a heading: in a map, list, section or element whose key says that its values are passwords or
keys.

How much a value must look like a secret depends on the heading: under `passwords` nearly anything that is no word or
setting counts, under `tokens` or `secrets` only what a generator may have drawn. Each character is read a fixed number
of times: nested structures are read with their parents, and not again for their own headings.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction.assigned_secrets import (
    ACCESS,
    KEY,
    PASSWORD,
    is_code_expression,
    is_dummy_value,
    is_unlike_a_word,
    looks_random,
    to_lower_same_length,
)
from waystation.plugins.redaction.formats import RecognizerMatch

_Span = tuple[int, int]


class _Kind(IntEnum):
    """What a heading says about its values. The higher, the less a value must look like a secret."""

    NONE = 0
    KEYS = 1
    """`keys` alone: also of tables, objects and translations."""
    TOKENS = 2
    """`tokens`, `secrets`, `credentials`: also of designs, language models and manifests."""
    API_KEYS = 3
    PASSWORDS = 4


_WORDS = (
    rf"(?:(?P<passwords>{PASSWORD}|passw[oö]rter|kennw[oö]rter|mots\sde\spasse|пароли|\bpwds\b)"
    rf"|(?P<api_keys>{ACCESS})|(?P<tokens>{KEY}|(?<![a-z])(?:creds?|pass|pws?|mdp|logins?|zugangsdaten|anmeldedaten"
    r"|identifiants|credenciales|credenziali|credenciais)(?![a-z]))|(?P<keys>(?<![\w.-])keys(?![a-z])))s?"
)
_WORDS_BEHIND = (
    r"(?:[ _.-]?(?:lists?|maps?|dict|table|array|by|for|of|per|from|old|new|prod|production|staging|dev|test)"
    r"(?:[ _-]?[^\W_]{1,20}+){0,3}+)?+\d{0,3}+"
)
_LABEL = compile_bounded(_WORDS)
_KEY_OF_HEADING = compile_bounded(rf"{_WORDS}{_WORDS_BEHIND}\Z")
_CONSTRUCTOR = (
    r"(?:(?:new[ \t]{1,4}|&)?(?:map\[\w{1,20}\]\w{1,20}"
    r"|[\w.]{0,30}?(?:map|list|set|array|dict|freeze|tuple|of|qw|vec!|hashmap!)(?:<[^<>\n]{0,60}>)?"
    r"|\[\d{0,4}\]\w{1,20})[ \t]{0,4})?"
)
_OPENS = compile_bounded(
    rf"{_WORDS_BEHIND}[\"'`\]]{{0,2}}[ \t]{{0,8}}(?::[^\n={{}}()\"';]{{0,60}}=|=>|->|:=|[:=])(?!=)\s{{0,80}}"
    rf"{_CONSTRUCTOR}(?P<bracket>[{{\[(])",
    re.IGNORECASE,
)
_ENDS_LINE = compile_bounded(
    rf"{_WORDS_BEHIND}[\"']?[ \t]{{0,8}}:[ \t]{{0,8}}(?:[&!][\w!.:-]{{1,60}}[ \t]{{0,8}}){{0,2}}"
    r"(?:#[^\n]{0,200})?\r?\n",
    re.IGNORECASE,
)
_ENDS_SECTION = compile_bounded(
    rf"{_WORDS_BEHIND}(?:[.:/ \"'][^\[\]\n]{{0,80}})?[\"']?\]{{1,2}}[ \t]{{0,40}}(?:[#;][^\n]{{0,200}})?\r?\n",
    re.IGNORECASE,
)
_ENDS_TITLE = compile_bounded(rf"{_WORDS_BEHIND}[*_:#\t ]{{0,20}}\r?\n", re.IGNORECASE)
_BEFORE_KEY = compile_bounded(
    r"\A(?P<indent>[ \t]*+(?:[-?][ \t]{1,8}){0,4}+)"
    r"(?!(?:if|elif|for|while|with|class|def|case|except|async|switch|when|unless|until)\s)[\"']?[\w .@/-]{0,80}\Z"
)
"""Excludes the beginning of a block of code."""
_BEFORE_SECTION = compile_bounded(r"\A[ \t]{0,8}\[{1,2}[^\[\]\n]{0,80}\Z")
_BEFORE_TITLE = compile_bounded(r"\A#{1,6}[ \t][^\n]{0,80}\Z")
_MAX_KEY_CHARACTERS = 100
_MAX_VALUE_CHARACTERS = 4_000
_QUOTED = r"(?P<quote>\"|`|'(?<![^\W_]{2}'))(?P<quoted>(?:(?!(?P=quote))[^\n\\]|\\[^\n]){0,4000}+)(?P=quote)"
_TOKEN = compile_bounded(
    rf"\\[^\n]|{_QUOTED}|(?P<open>[{{\[(])|(?P<close>[}}\])])|(?P<part>[,;\n])|(?P<bare>[^\s,;{{}}\[\]()\"'`\\]++)"
)
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_SIGN_FIRST = compile_bounded(r"\A(?:=>|->|:=|[:=])")
_LINE = compile_bounded(
    r"(?P<indent>[ \t]*+)(?P<comment>(?:[#;]++|//)[ \t]*+)?(?P<dashes>(?:(?:[-*+?]|\d{1,3}[.)])[ \t]++)*+)"
    r"(?P<rest>[^\n]*+)(?:\n|\Z)"
)
_KEY_OF_LINE = compile_bounded(
    r"(?:\*\*|__)?(?:(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{1,100}+)(?P=quote)"
    r"|(?P<plain>[^\s\"'`:=,{}\[\]()][^\n\"'`:={}\[\]()]{0,98}+))"
    r"(?:\*\*|__)?[ \t]{0,8}(?:=>|:=|[:=])(?![:=]|//)(?:\*\*|__)?[ \t]{0,8}(?:&\w{1,40}[ \t]{1,8})?"
)
_VALUE_OF_LINE = compile_bounded(rf"{_QUOTED}|(?P<bare>[^\s\"'`](?:[^\n#]|(?<!\s)#){{0,4000}}+)")
_NEXT_SECTION = compile_bounded(
    r"^[ \t]{0,8}\[{1,2}[^\[\]\n]{0,200}+\]{1,2}[ \t]{0,40}+(?:[#;][^\n]{0,200}+)?\r?(?:\n|\Z)", re.MULTILINE
)
_NEXT_TITLE = compile_bounded(r"#{1,6}[ \t]")
_PATH = compile_bounded(
    rf"s?(?![ \t\"'`]{{0,9}}(?:=|:[\s\"'=])){_WORDS_BEHIND}"
    r"(?:(?:[./-]|_{1,2}|:(?=[A-Za-z][\w:]{0,60}(?:[\"']|\s?=)))[^\W_]{1,60}+"
    r"|\[\\?[\"']?[\w@.-]{1,60}\\?[\"']?\]){0,12}+[\"'`]?[ \t]{0,8}(?:=>|:=|[:=])(?![:=])[ \t]{0,8}"
    r"(?:(?P<quote>[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\n\\]){4,400}+)(?P=quote)"
    r"|(?P<bare>[^\s\"'`,;<>(){}\[\]\\&]{4,400}+))",
    re.IGNORECASE,
)
_NAME_BEHIND_PATH = compile_bounded(r"[\w@-]{1,60}(?=\\?[\"']?\]?[\"'`]?[ \t]{0,8}[:=])")

_TAG = compile_bounded(
    r"<(?P<closes>/)?(?P<tag>[A-Za-z][\w:.-]{0,80}+)(?P<attributes>(?:\s[^<>]{0,1000}+)?)>"
    r"(?:\s{0,80}+(?:<!\[CDATA\[)?(?P<text>[^<>\s][^<>]{0,4000}))?"
)
_ATTRIBUTE = compile_bounded(
    r"(?P<key>[\w:.-]{1,60}+)\s{0,8}=\s{0,8}(?P<quote>[\"'])(?P<secret>[^\"'<>\n]{1,400}+)(?P=quote)"
)
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_NAMING = frozenset({"name", "id", "key"})

_HUMP = compile_bounded(r"(?<=[a-z\d])(?=[A-Z])")
_WORD_OF_KEY = compile_bounded(r"[^\W_]++")
_OF_WEB_KEYS = frozenset(["n", "e", "x", "y"])
"""Parts of public keys in a list that is called `keys`."""
_IDS_TEXT = (
    "arn checksum commit digest etag fingerprint hash id ids image iv keyid kid nonce path pattern ref regex"
    " regexp sha sha1 sha256 sha512 thumbprint uri url uuid valuefrom version x5c x5t"
)
_IDS = frozenset(_IDS_TEXT.split())
"""Last words of keys whose values look like secrets and are none; except under `passwords`."""
_NAMES_TEXT = (
    "account alg algorithm at audience cipher class color colour comment connection count created date default"
    " description docs driver encoding engine example expires expiry file filename folder format from help"
    " hint host hostname in issuer kty label length level limit login max message min mode model name names"
    " namespace note number owner period policy prefix provider reference rule rules schema scope scopes"
    " secretname size source state status suffix summary table tag tags text time timeout timestamp title ttl"
    " type types unit until updated usage use user username users valid validation"
)
_NAMES = frozenset(_NAMES_TEXT.split())
"""Last words of keys whose value is a name or a setting, unless it can only be a secret."""
_UNIT = (
    r"(?:ms|us|ns|s|m|h|d|w|y|mins?|minutes?|secs?|seconds?|hours?|days?|weeks?|months?|years?|px|r?em|pt|vh|vw|fr|deg|%"
    r"|[kmgt]i?b?|chars?|characters?|bits?|bytes?|hz|dpi|x)"
)
_FILES = (
    r"(?:json|ya?ml|pem|key|txt|crt|cer|pub|asc|gpg|p12|pfx|jks|py|tsx?|jsx?|toml|md|env|ini|cfg|conf|xml|csv|log|html?|php"
    r"|sh|sql|lock|com|org|net|io|dev|local|internal|example|test|svc|cluster)"
)
_HARMLESS = compile_bounded(
    rf"\A(?:[~.]{{0,2}}/.*|[A-Za-z]:[\\/].*|[\w+.-]{{1,30}}://.*|[+-]?\d[\d.,_ :/-]*[%+]?"
    rf"|(?:\d{{1,9}}(?:\.\d{{1,9}})?\s?{_UNIT}){{1,4}}|-?P(?:\d{{1,6}}[YMWD]){{0,4}}(?:T(?:\d{{1,6}}[HMS]){{0,3}})?"
    r"|\d{4}-?\d\d-?\d\d(?:[T ].*)?|v?\d+(?:\.\d+)+[\w.+-]*|#[0-9a-f]{3,8}|0x[0-9a-f]{1,16}"
    rf"|[\w./@:-]{{1,300}}\.{_FILES}(?::\d{{1,5}})?|[^\s@]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{1,6}}"
    r"|(?:arn|urn|vault|op|ref\+\w*|sm|ssm|env|file|secret|secrets|spiffe|sha256|sha512)[:+].*|enc\[.*"
    r"|[a-z_]{2,20}:(?:[\d,.]+|[a-z_.,]+|/.*)|(?-i:[a-z0-9.-]{1,100}(?:/[a-z0-9._-]{1,100}){1,8})(?::[\w.-]{1,100})?)\Z",
    re.IGNORECASE,
)
"""Paths, addresses, references, numbers with and without units, times, versions, colours, files and rules."""
_ALIAS = compile_bounded(r"\A[*&!][\w.:-]*\Z")
"""An anchor, an alias or a tag of YAML."""
_BASE64 = compile_bounded(r"\A(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])[A-Za-z0-9+/]{20,4000}={0,2}\Z")
_DIGITS_INSIDE = compile_bounded(r"(?<=[A-Za-z+/])\d{1,8}(?=[A-Za-z+/])")
_EXPRESSION = compile_bounded(r"\$\{|\{\{|\$\(|<|>|\ufffc|\w\(|0-9|a-z|A-Z")
_OF_CRYPTOGRAPHY = compile_bounded(
    r"sha|pbkdf|hmac|aes|base|md5|crypt|argon|oauth|utf|rsa|ed25519|\b[hrep]s\d|x509|curve|secp|blake|chacha",
    re.IGNORECASE,
)
_CHANGE = compile_bounded(r"(?<=[A-Za-z])\d|(?<=\d)[A-Za-z]")
_PIECE = compile_bounded(r"[^\W_]++")
_DIGIT, _LETTER = compile_bounded(r"\d"), compile_bounded(r"[^\W\d_]")
_ANY_SIGN, _SURE_SIGN = compile_bounded(r"[!#$%^&*?~+@]"), compile_bounded(r"[!$%^~]|(?<!\A)#")
_WITH_SIGNS = compile_bounded(r"\A[\w!#$%^&*?~+@=.,:;-]+\Z")
_UUID = compile_bounded(r"\A[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\Z", re.IGNORECASE)
_LONE_NUMBER = compile_bounded(r"\A\d{6,64}\Z")
_LONG_WORD = 16
"""Letters: shorter unlikely words also occur among words of code."""
_AROUND_VALUE = " \t\r,;*"
_MAX_WORDS = 4
"""Maximum words of a value of which one may be a secret: `bob / Tr0ub4dor`. More are prose."""


@lru_cache(4_096)
def _kind_of(key: str) -> _Kind:
    """Return what a key says about its values."""
    label = _KEY_OF_HEADING.search(to_lower_same_length(key[-_MAX_KEY_CHARACTERS:]))
    return _Kind[(label.lastgroup or "none").upper()] if label else _Kind.NONE


@lru_cache(4_096)
def _last_word(key: str) -> str:
    words = _WORD_OF_KEY.findall(_HUMP.sub("_", key[-_MAX_KEY_CHARACTERS:]))
    return words[-1].lower() if words else ""


def _is_secret(value: str, key: str, kind: _Kind, *, quoted: bool, strict: bool = False) -> bool:
    """Return whether a value under a heading is a secret. `strict`: only if a generator may have drawn it."""
    if kind is _Kind.NONE or is_dummy_value(value) or _EXPRESSION.search(value):
        return False
    word = _last_word(key)
    if kind is _Kind.PASSWORDS and quoted and not strict and _LONE_NUMBER.match(value):
        return word not in _IDS | _NAMES
    if _HARMLESS.match(value) or (not quoted and _ALIAS.match(value)):
        return False
    if word in _IDS or (kind is _Kind.KEYS and word in _OF_WEB_KEYS):
        return kind is _Kind.PASSWORDS and _looks_drawn(value, kind)
    if strict or word in _NAMES or kind is _Kind.KEYS:
        return _looks_drawn(value, kind) and (kind is not _Kind.KEYS or len(value) >= _LONG_WORD)
    return _looks_drawn(value, kind) or _looks_chosen(value, kind)


def _looks_drawn(value: str, kind: _Kind) -> bool:
    """Return whether letters and digits alternate as in no word, name or version, or letters alone are no word."""
    if looks_random(value) or _UUID.match(value):
        return True
    if _BASE64.match(value) and len(_DIGITS_INSIDE.findall(value)) > 1:
        return True
    if is_unlike_a_word(value) and (kind >= _Kind.API_KEYS or len(value) >= _LONG_WORD):
        return True
    least = 6 if _OF_CRYPTOGRAPHY.search(value) else 4
    return any(len(piece) >= 12 and len(_CHANGE.findall(piece)) >= least for piece in _PIECE.findall(value))


def _looks_chosen(value: str, kind: _Kind) -> bool:
    """Return whether a person may have chosen it as a password or token, by the minimum that the heading requires."""
    if _OF_CRYPTOGRAPHY.search(value) and len(value) < 20:
        return False
    mixed = [piece for piece in _PIECE.findall(value) if _DIGIT.search(piece) and _LETTER.search(piece)]
    if kind is _Kind.PASSWORDS:
        signs = len(value) >= 6 and _ANY_SIGN.search(value) and _LETTER.search(value) and _WITH_SIGNS.match(value)
        return any(len(piece) >= 5 for piece in mixed) or bool(signs and not value.rstrip("!?").isalpha())
    if kind is _Kind.API_KEYS:
        return any(len(piece) >= 8 for piece in mixed)
    if len(value) >= 8 and mixed and _SURE_SIGN.search(value) and _WITH_SIGNS.match(value):
        return True
    return any(len(piece) >= 12 and len(_CHANGE.findall(piece)) >= 3 for piece in mixed)


def _secrets_in(
    text: str, start: int, end: int, key: str, kind: _Kind, *, quoted: bool, strict: bool
) -> Iterator[_Span]:
    """Yield the secrets in a value: the whole of it, or one word if it has a few."""
    value = text[start : min(end, start + _MAX_VALUE_CHARACTERS)]
    start, value = start + len(value) - len(value.lstrip(_AROUND_VALUE)), value.strip(_AROUND_VALUE)
    words = value.split(None, _MAX_WORDS)
    if len(words) == 1:
        is_name = not quoted and bool(value) and is_code_expression(text, start, start + len(value))
        if not is_name and _is_secret(value, key, kind, quoted=quoted, strict=strict):
            yield start, start + len(value)
    elif len(words) <= _MAX_WORDS and not is_dummy_value(value):
        place = start
        for word in words:
            place = text.index(word, place)
            bare = word.strip("\"'`,;|")
            if bare and _is_secret(bare, key, kind, quoted=False, strict=True):
                yield (start, start + len(value)) if quoted else (text.index(bare, place), place + len(word))
            place += len(word)


@dataclass
class _Level:
    """An open bracket, and what was read since its last comma."""

    closing: str
    kind: _Kind
    strict: bool = False
    key: str = ""
    items: list[tuple[int, int, bool]] = field(default_factory=list)
    """Start, end, and whether it was quoted."""

    def secrets(self, text: str) -> Iterator[_Span]:
        """Yield the secrets among what was read, and clear it."""
        items, key, self.items, self.key = self.items, self.key, [], ""
        if self.kind is _Kind.NONE or not items:
            return
        if len(items) == 1:
            start, end, quoted = items[0]
            if not quoted and (self.closing == ")" or not (key or self.closing == "]")):
                return
            yield from _secrets_in(text, start, end, key, self.kind, quoted=quoted, strict=self.strict)
        elif len(items) <= _MAX_WORDS:
            for start, end, quoted in items:
                yield from _secrets_in(text, start, end, key, self.kind, quoted=quoted, strict=True)

    def read_bare(self, text: str, start: int, end: int) -> None:
        """Read an unquoted word, which may have the key separator in it, before it or after it."""
        word = text[start:end]
        sign = _SIGN_FIRST.match(word)
        if sign and self.items:
            self.take_key(text)
            start += sign.end()
        elif not self.key and not word.endswith("==") and "://" not in word:
            cut = min((place for place in (word.find(":", 1), word.find("=", 1)) if place > 0), default=-1)
            if cut > 0:
                self.items.append((start, start + cut, False))
                self.take_key(text)
                start += cut + 1
        start += len(text[start:end]) - len(text[start:end].lstrip(">"))
        if start < end:
            self.items.append((start, end, False))

    def take_key(self, text: str) -> None:
        """Take the last item as a key."""
        start, end, _ = self.items[-1]
        self.key = text[max(start, end - _MAX_KEY_CHARACTERS) : end]
        self.items = []


def _in_brackets(text: str, start: int, kind: _Kind) -> tuple[list[_Span], int]:
    """Return the secrets within the bracket at `start`, and its end: that of the text if nothing closes it."""
    levels = [_Level(_CLOSING[text[start]], kind)]
    found: list[_Span] = []
    for token in _TOKEN.finditer(text, start + 1):
        level = levels[-1]
        what = token.lastgroup
        if what == "quoted":
            level.items.append((*token.span("quoted"), True))
        elif what == "bare":
            level.read_bare(text, *token.span())
        elif what == "part":
            if level.items or token[0] != "\n":
                found += level.secrets(text)
        elif what == "open":
            levels.append(_opened(token, level))
        elif what == "close":
            found += level.secrets(text)
            levels.pop()
            if token[0] != level.closing or not levels:
                return found, token.end()
    return found + list(levels[-1].secrets(text)), len(text)


def _opened(token: re.Match[str], level: _Level) -> _Level:
    """Return the level of the bracket that this token opens. After a word it is a call's or an index."""
    behind_word = bool(level.items) and level.items[-1][1] == token.start()
    kind = max(level.kind, _kind_of(level.key)) if level.key else level.kind
    if behind_word and token[0] == "[":
        kind = _Kind.NONE
    level.items = []
    if not behind_word:
        level.key = ""
    return _Level(_CLOSING[token[0]], kind, strict=level.strict or (behind_word and token[0] == "("))


def _in_lines(
    text: str, start: int, kind: _Kind, indent: int, ends: re.Pattern[str] | None, *, strict: bool = False
) -> tuple[list[_Span], int]:
    """Return the secrets in the lines from `start` that belong to a heading, and the end of these lines.

    Args:
        text: The whole text.
        start: Start of the line after the heading.
        kind: Kind of the heading.
        indent: Characters before the heading; a line that is not indented further ends it, except in a list.
        ends: Beginning of the next section's first line; then `indent` does not count.
        strict: Only what a generator may have drawn is a secret.
    """
    nested = [(indent, kind)]
    found: list[_Span] = []
    while start < len(text):
        line = _LINE.match(text, start)
        if line is None or (ends and ends.match(text, start)):
            break
        width = len(line["indent"])
        if line["rest"].strip():
            if not (ends or line["comment"] or width > indent or (line["dashes"] and width == indent)):
                break
            while len(nested) > 1 and width <= nested[-1][0]:
                nested.pop()
            more, end = _in_line(text, line, nested, strict=strict)
            found += more
        else:
            end = line.end()
        start = max(end, line.end())
    return found, start


def _in_line(
    text: str, line: re.Match[str], nested: list[tuple[int, _Kind]], *, strict: bool
) -> tuple[list[_Span], int]:
    """Return the secrets of one line, and its end: that of a bracket that it opens."""
    start, end = line.span("rest")
    kind, name = nested[-1][1], ""
    key = _KEY_OF_LINE.match(text, start, end)
    if key:
        name = key["quoted"] or key["plain"].strip(" \t*_")
        start = key.end()
        kind = max(kind, _kind_of(name)) if start == end or text[start] in "{[" else kind
    if start < end and text[start] in "{[":
        found, closed = _in_brackets(text, start, kind)
        after = text.find("\n", closed)
        return found, len(text) if after < 0 else after + 1
    if key and not text[start:end].strip():
        nested.append((len(line["indent"]) + len(line["dashes"]), kind))
        return [], line.end()
    value = _VALUE_OF_LINE.match(text, start, end)
    if value is None:
        return [], line.end()
    quoted = value["quoted"] is not None
    span = value.span("quoted" if quoted else "bare")
    return list(_secrets_in(text, *span, name, kind, quoted=quoted, strict=strict)), line.end()


def _behind_label(text: str, start: int, end: int, kind: _Kind) -> tuple[list[_Span], int] | None:
    """Return the secrets under the heading whose label is here, and the end; None if it is no heading."""
    if opens := _OPENS.match(text, end):
        return _in_brackets(text, opens.start("bracket"), kind)
    begin = max(text.rfind("\n", 0, start) + 1, start - _MAX_KEY_CHARACTERS)
    if (line := _ENDS_LINE.match(text, end)) and (key := _BEFORE_KEY.match(text[begin:start])):
        return _in_lines(text, line.end(), kind, len(key["indent"]), None)
    if (line := _ENDS_SECTION.match(text, end)) and _BEFORE_SECTION.match(text[begin:start]):
        return _in_lines(text, line.end(), kind, 0, _NEXT_SECTION)
    if (line := _ENDS_TITLE.match(text, end)) and _BEFORE_TITLE.match(text[begin:start]):
        return _in_lines(text, line.end(), kind, 0, _NEXT_TITLE, strict=True)
    if path := _PATH.match(text, end):
        name = _NAME_BEHIND_PATH.search(text, end, path.end())
        form = "quoted" if path["quoted"] else "bare"
        span, key = path.span(form), name[0] if name else ""
        return list(_secrets_in(text, *span, key, kind, quoted=form == "quoted", strict=True)), end
    return None


def _in_elements(text: str) -> Iterator[_Span]:
    """Yield the secrets in XML elements whose own name, or an enclosing one, is a heading."""
    kinds: list[tuple[str, _Kind]] = []
    open_tags: dict[str, int] = {}
    said = _Kind.NONE
    for element in _TAG.finditer(text):
        tag = element["tag"].lower()
        if element["closes"]:
            if open_tags.get(tag):
                _close(kinds, open_tags, tag)
            continue
        kind = kinds[-1][1] if kinds else _Kind.NONE
        attributes = list(_ATTRIBUTE.finditer(text, *element.span("attributes")))
        naming = [_kind_of(one["secret"]) for one in attributes if one["key"].lower() in _NAMING]
        own = max([_kind_of(tag.rpartition(":")[2]), said if tag in {"dict", "array"} else _Kind.NONE, *naming])
        said = _kind_of(element["text"] or "") if tag == "key" else _Kind.NONE
        if tag in _VOID or element["attributes"].endswith("/"):
            pass
        elif own > kind or tag in open_tags:
            kinds.append((tag, max(own, kind)))
            open_tags[tag] = open_tags.get(tag, 0) + 1
        if kind or own:
            yield from _of_element(text, element, attributes, kind, max(own, kind))


def _close(kinds: list[tuple[str, _Kind]], open_tags: dict[str, int], tag: str) -> None:
    """Close all open elements down to this tag."""
    while kinds:
        closed, _ = kinds.pop()
        open_tags[closed] -= 1
        if closed == tag:
            return


def _of_element(
    text: str, element: re.Match[str], attributes: list[re.Match[str]], around: _Kind, own: _Kind
) -> Iterator[_Span]:
    """Yield the secrets in an element's attributes, by its enclosing headings, and in its text, also by its own
    name.
    """
    for one in attributes:
        yield from _secrets_in(text, *one.span("secret"), one["key"], around, quoted=True, strict=False)
    key = "" if attributes else element["tag"]
    start = element.start("text")
    for line in (element["text"] or "").split("\n"):
        yield from _secrets_in(text, start, start + len(line.rstrip("]")), key, own, quoted=False, strict=own > around)
        start += len(line) + 1


def find_secrets_under_headings(text: str) -> Iterator[RecognizerMatch]:
    """Yield every secret that the key of its map, list, section or element announces. Searches the whole text."""
    lowered = to_lower_same_length(text)
    covered = 0
    for label in _LABEL.finditer(lowered):
        if label.start() < covered:
            continue
        kind = _Kind[(label.lastgroup or "none").upper()]
        under = _behind_label(text, *label.span(), kind)
        if under is None:
            continue
        spans, covered = under
        for span in spans:
            yield RecognizerMatch("SECRET", *span, 0.9)
    if "</" in text:
        for span in _in_elements(text):
            yield RecognizerMatch("SECRET", *span, 0.9)
