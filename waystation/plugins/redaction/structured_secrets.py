"""Detects secrets that surrounding structures name: elements, fields, lists, calls and manifests, which span lines, so
that the whole text is searched; passwords in rows of SQL inserts; and pairs of user and password, after a word that
announces them, before a host, or with a known account.
"""

import re
from base64 import b64decode
from collections.abc import Iterator

from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction.assigned_secrets import (
    ACCESS,
    PASSWORD,
    is_code_expression,
    is_dummy_value,
    to_lower_same_length,
)
from waystation.plugins.redaction.formats import PrefilteredPattern, RecognizerMatch
from waystation.plugins.redaction.people import PROSE

_SECRET_NAME = rf"(?:[\w .:-]{{0,40}}?(?:{PASSWORD}|{ACCESS}|secret|token|credential|passwort)|pass|pw|pin|cvv|cvc)"
_MANIFEST = compile_bounded(r"^kind:[ \t]*[\"']?(?:Sealed)?Secret[\"']?[ \t]*$", re.MULTILINE)
_SECRET_FIELDS = compile_bounded(
    r"^([ \t]*+)(?:data|stringData):[ \t]*+\n(?P<fields>(?>\1[ \t][^\n]*+(?:\n|\Z))++)", re.MULTILINE
)
_FIELD = compile_bounded(
    r"^[ \t]++[\"']?[\w.-]++[\"']?:[ \t]*+[\"']?(?P<secret>[^\s\"'|>][^\n\"']*+)(?P<end>[\"']?)[ \t]*+$", re.MULTILINE
)
_ELEMENT = compile_bounded(
    rf"<(?P<tag>{_SECRET_NAME})(?:\s[^<>\n]{{0,200}})?>\s{{0,80}}(?:<!\[CDATA\[)?(?P<secret>[^<>\s]"
    rf"[^<>\n]{{0,400}}?)(?:\]\]>)?\s{{0,80}}</(?P=tag)>",
    re.IGNORECASE,
)
_NAMED = compile_bounded(
    rf"\b(?:name|key|id)\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}\\?[\"']?{_SECRET_NAME}\\?[\"']?[\s,]{{1,40}}\\?[\"']?val(?:ue)?\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}"
    r"(?P<quote>\\?[\"']?)(?P<secret>(?:(?!(?P=quote)[\s,/>}])[^\n<>]){1,400})(?P=quote)",
    re.IGNORECASE,
)
_QUOTED = r"(?:\"[^\"\n]{1,200}+\"|'[^'\n]{1,200}+')"
_PASSWORDS = r"(?:passwords|passphrases|passcodes|passw[oö]rter|contraseñas)\\?[\"']?\s?[:=]"
_IN_BRACKETS = compile_bounded(
    rf"{_PASSWORDS}\s?\[(?P<items>(?>\s{{0,200}}+(?:{_QUOTED}|[^\s\"'\[\](){{}},]{{1,200}}+)"
    rf"\s{{0,200}}+,?){{1,200}}+)\]",
    re.IGNORECASE,
)
_UNDER_EACH_OTHER = compile_bounded(
    rf"{_PASSWORDS}[ \t]{{0,200}}+\n(?P<items>"
    rf"(?>[ \t]{{0,200}}+-[ \t]{{1,200}}+(?:{_QUOTED}|[^\s\"'#:]{{1,200}}+)[ \t]{{0,200}}+(?:\n|\Z)){{1,500}}+)",
    re.IGNORECASE,
)
_ITEM = compile_bounded(r"(?P<quote>[\"'])(?P<quoted>[^\"'\n]++)(?P=quote)|(?P<bare>[^\s\"',-][^\s\"',]*+)")
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
_ITEMS_OF_MARKDOWN = compile_bounded(
    rf"^[ \t]{{0,8}}+(?:#{{1,6}}[ \t]++|\*\*|__)?(?:[\w-]{{1,30}}[ \t]){{0,3}}(?:{'|'.join(_LISTS)})"
    r"(?:\*\*|__)?:?(?:\*\*|__)?[ \t]{0,80}+\n(?:[ \t]{0,80}+\n){0,2}+"
    r"(?P<items>(?>[ \t]{0,40}+(?:[-*+]|\d{1,3}[.)])[ \t]{1,8}+[^\n]{1,300}+(?:\n|\Z)(?:[ \t]{0,40}+\n)?+){1,500}+)",
    re.IGNORECASE | re.MULTILINE,
)
_ITEM_OF_MARKDOWN = compile_bounded(
    r"^[ \t]*+(?:[-*+]|\d{1,3}[.)])[ \t]++(?:[\w@.*`\" -]{1,60}?(?::\**[ \t]{1,4}|[ \t](?:[-–—/]|->|=)[ \t]))?"
    r"(?P<mark>\*\*|`|\"|')?(?P<secret>[^\s`*\"']{4,200}?)(?(mark)(?P=mark))[ \t]*+$",
    re.MULTILINE,
)
_KEY = compile_bounded(rf"{PASSWORD}|{ACCESS}|secret|token|\b(?:pass|pw)(?=[\"']?\s?[:=])")
_BLOCK = compile_bounded(
    r"[\"']?:[ \t]{0,40}+[|>][+-]?\d?[+-]?[ \t]{0,40}+\n(?P<lines>(?>[ \t]++[^\s#][^\n]{0,4000}+(?:\n|\Z)){1,100}+)"
)
_LINE = compile_bounded(r"^(?P<indent>[ \t]*+)(?P<secret>\S[^\n]*+)", re.MULTILINE)
_CONTINUED = compile_bounded(
    r"[ \t]{0,8}[=:][ \t]{0,8}"
    r"(?P<secret>[^\s\\\"'#()]{0,400}+(?:\\\r?\n[ \t]{0,200}+[^\s\\\"'#()]{1,400}+){1,20}+)[ \t]{0,80}+(?=\n|\Z)"
)
_CONTINUATION = compile_bounded(r"\A\\\s*+")
_OVER_LINES = compile_bounded(
    rf"[ \t]{{0,8}}[=:][ \t]{{0,8}}\((?P<items>(?>\s{{0,200}}+{_QUOTED}){{1,40}}+)\s{{0,200}}+\)"
)
_LONG_QUOTES = compile_bounded(
    r"[ \t]{0,8}[=:][ \t]{0,8}[rbf]?(?P<quote>\"{3}|'{3})\s{0,80}+"
    r"(?P<secret>(?!(?P=quote))\S(?:(?!\s{0,80}(?P=quote))[\s\S]){0,400}+)\s{0,80}(?P=quote)"
)
_HERE = compile_bounded(
    r"[ \t]{0,8}=[ \t]{0,8}<<[-~]?\s?[\"']?(?P<end>\w{1,20})[\"']?[ \t\r]{0,8}\n[ \t]{0,80}+"
    r"(?P<secret>\S[^\n]{1,400})\n[ \t]{0,80}+(?P=end)\b"
)
_INDENT = compile_bounded(r"[ \t]*+")
_TELLING = compile_bounded(r"[\d!#$%^&*?~+@]|[a-z][A-Z]")
_SET_BY_NAME = compile_bounded(
    rf"(?:set|put|add|append|update|with)\w{{0,20}}\(\s?[\"'](?P<name>{_SECRET_NAME})[\"'],\s?(?P<quote>[\"'])"
    r"(?P<secret>[^\s\"']{4,400})(?P=quote)\s?\)",
    re.IGNORECASE,
)


_NAMED_ELEMENT = compile_bounded(
    rf"<(?P<tag>[A-Za-z][\w:.-]{{0,40}})\s(?:[^<>]{{0,200}}\s)?(?:name|key|id)"
    rf"\s?=\s?(?P<sign>[\"']){_SECRET_NAME}(?P=sign)[^<>/]{{0,200}}>"
    r"\s{0,80}(?:<!\[CDATA\[)?(?P<secret>[^<>\s][^<>\n]{0,400}?)(?:\]\]>)?\s{0,80}</(?P=tag)>",
    re.IGNORECASE,
)
_OF_PLIST = compile_bounded(
    rf"<key>{_SECRET_NAME}</key>\s{{0,80}}<(?P<tag>string|data)>\s{{0,80}}(?P<secret>[^<>\s][^<>\n]{{0,400}}?)"
    rf"\s{{0,80}}</(?P=tag)>",
    re.IGNORECASE,
)
_IN_A_PAIR = compile_bounded(
    rf"\[\s?\\?(?P<quote>[\"']){_SECRET_NAME}\\?(?P=quote),\s?\\?(?P=quote)"
    rf"(?P<secret>[^\s\"'\\]{{4,400}})\\?(?P=quote)\s?\]",
    re.IGNORECASE,
)
_SECURE_STRING = compile_bounded(
    r"ConvertTo-SecureString\s{1,3}(?:-String\s{1,3})?(?P<quote>[\"']?)(?P<secret>(?!-)[^\s\"']{2,400})(?P=quote)",
    re.IGNORECASE,
)
_MEMBER = compile_bounded(
    r"</name>\s{0,80}<value>\s{0,80}<(?P<tag>string|base64)>(?P<secret>[^<>\s][^<>\n]{0,400}?)</(?P=tag)>"
)
_BESIDE_ELEMENT = compile_bounded(
    r"[ \w-]{0,12}\s?:?\s{0,20}</(?:dt|th|td|label|b|strong|span|p)>\s{0,80}"
    r"<(?P<tag>dd|td|code|span|kbd|samp|b|strong|p)(?:\s[^<>\n]{0,200})?>\s{0,80}(?P<secret>[^<>\s]{4,400})"
    r"\s{0,80}</(?P=tag)>"
)
_SETTER = compile_bounded(r"\w{0,10}\(\s?[@rb]?(?P<quote>[\"'])(?P<secret>[^\s\"']{4,400})(?P=quote)\s?\)")
_SETS = compile_bounded(r"(?:set|with|use)\w{0,30}\Z")
_DEFINED = compile_bounded(r"[\"'],\s?(?P<quote>[\"'])(?P<secret>[^\s\"']{4,400})(?P=quote)\s?\)")
_DEFINES = compile_bounded(r"\bdefine\(\s?[\"']\w{0,40}\Z")
_DECLARED = compile_bounded(
    r"(?:_?\d{1,3})?\s?(?::\s?[A-Za-z][\w.<>\[\]]{0,40}[?!]?\s?)?:?=\s?(?:@|r#{1,3}|[RLu]|q\(|qq?\{|\{)?"
    r"(?P<quote>(?<=q\()|(?<=[{])|[\"'])(?P<secret>[^\s\"'(){}<>]{4,400})[\"'){}]"
)
_OF_VARIABLE = compile_bounded(
    r"\w{0,20}\"\s{0,4}\{(?:[^{}\n]{0,200}+\n){0,8}?[ \t]{0,40}+default[ \t]{0,40}+=[ \t]{0,8}"
    r"\"(?P<secret>[^\s\"]{4,400})\""
)
_VARIABLE = compile_bounded(r"\bvariable\s{1,4}\"\w{0,40}\Z")
_OF_A_ROUTER = compile_bounded(r"[ \t][05-9][ \t](?P<secret>[^\s\"'<>]{4,200})(?=[ \t\r]{0,40}(?:\n|\Z))")
_ON_A_LATER_LINE = compile_bounded(
    r"(?:\*\*|__|[\"'`])?[ \t]{0,3}(?:is|:{1,2})?(?:\*\*|__)?[ \t\r]{0,8}\n"
    r"(?:[ \t>|+*#=_~\r-]{0,80}+\n){0,3}+[ \t]{0,40}+(?:[>|+*-]{1,3}[ \t]{1,40}+|\d{1,6}[:|.)-]"
    r"[ \t]{1,40}+|[\d:.,TZ/-]{8,40}[ \t][^\n]{0,60}?[ \t])?"
    r"[\"'`]?(?P<secret>[^\s\"'`<>,;|]{6,200})[\"'`]?[ \t\r]{0,40}(?=\n|\Z)"
)
"""After the prefix that a quotation, a list, a listing or a log puts before each line."""
_NOT_IN_A_ROW = compile_bounded(r"(?:\A|\n)[^,;|\t\n]{0,60}\Z")
_BEHIND_A_SIGN = compile_bounded(
    r"(?:[ \t]?(?:→|⇒|::)[ \t]?|[ \t]\(|\\tab[ \t]|\{)(?P<secret>[^\s\"'`<>(){}\\]{6,200})"
)
_BESIDE_A_KEY = (
    (None, _MEMBER),
    (None, _BESIDE_ELEMENT),
    (_SETS, _SETTER),
    (_DEFINES, _DEFINED),
    (None, _DECLARED),
    (_VARIABLE, _OF_VARIABLE),
    (None, _OF_A_ROUTER),
    (_NOT_IN_A_ROW, _ON_A_LATER_LINE),
    (None, _BEHIND_A_SIGN),
)
"""What precedes the word, and what follows it."""
_BEFORE_A_KEY = 80
"""Characters before a key that are checked."""
_VALUE_FIRST = PrefilteredPattern(
    ('val"', "val'", "val=", 'value"', 'value\\"', "value'", "value=", "value:"),
    compile_bounded(
        r"[\s{,<]\\?[\"']?val(?:ue)?\\?[\"']?\s{0,2}[:=]\s{0,2}(?P<quote>\\?[\"'])(?P<secret>[^\s\"'\\<>]{4,400})(?P=quote)"
        rf"[\s,]{{1,40}}\\?[\"']?(?:name|key|id)\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}\\?[\"']{_SECRET_NAME}\\?[\"']",
        re.IGNORECASE,
    ),
)
_SET_BY_SHELL = PrefilteredPattern(
    ("env ", "setenv", "set -"),
    compile_bounded(
        r"^[ \t]{0,40}+(?:ENV|setenv|set[ \t]-\w{0,3}x)[ \t]{1,8}\w{0,60}?"
        r"(?:PASSWORD|PASSWD|PASSPHRASE|_PASS|_PWD|SECRET|TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)\w{0,10}[ \t]{1,8}"
        r"(?P<quote>[\"']?)(?P<secret>[^\s\"'$=]{4,400})(?P=quote)[ \t\r]{0,40}+$",
        re.MULTILINE,
    ),
)
_COMMUNITY = PrefilteredPattern(
    ("snmp-server",),
    compile_bounded(
        r"\bsnmp-server[ \t]community[ \t](?P<secret>[^\s\"'<>]{3,100})(?=[ \t]{1,8}R[OW]\b|[ \t\r]{0,8}(?:\n|\Z))"
    ),
)
_OF_DIRECTORY = PrefilteredPattern(
    ("userpassword", "{sha", "{ssha", "{md5", "{smd5", "{crypt"),
    compile_bounded(
        r"\buserPassword::?[ \t]{0,4}(?P<secret>[A-Za-z0-9+/]{12,400}={0,2})(?=\s|\Z)"
        r"|\{S?(?:SHA\d{0,3}|MD5|CRYPT)\}(?P<hash>[\w+/=$.]{12,200})",
        re.IGNORECASE,
    ),
)
_JOSE = PrefilteredPattern(
    ('"kty"',), compile_bounded(r"\"(?:d|k|p|q|dp|dq|qi)\"\s?:\s?\"(?P<secret>[\w-]{20,2000})\"")
)
_OF_A_REGISTRY = PrefilteredPattern(
    ('auth"', "_auth", "auth=", "auth:"),
    compile_bounded(r"\b_?auth\"?\s{0,4}[:=]\s{0,4}\"?(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})(?![\w+/=])"),
)


def find_structural_secrets(text: str) -> Iterator[RecognizerMatch]:
    """Yield every secret that is one by its place in the text."""
    for start, end in _spans(text):
        if end - start > 1 and not is_dummy_value(text[start:end].strip()):
            yield RecognizerMatch("SECRET", start, end, 0.9)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for pattern in (_ELEMENT, _OF_PLIST, _NAMED, _IN_A_PAIR, _SET_BY_NAME, _SECURE_STRING):
        for match in pattern.finditer(text):
            yield match.span("secret")
    yield from _of_formats(text, to_lower_same_length(text))
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


def _beside_a_key(text: str, lowered: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield values that have more than a word or identifier, where those may occur as well."""
    for before, behind in _BESIDE_A_KEY:
        match = behind.match(text, end)
        if match is None or not _is_password(match["secret"]) or is_code_expression(text, *match.span("secret")):
            continue
        if before is None or before.search(lowered, max(0, start - _BEFORE_A_KEY), start):
            yield match.span("secret")


def _of_formats(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield secrets in the files of certain programs."""
    for pattern in (_VALUE_FIRST, _SET_BY_SHELL):
        for match in pattern.matches(text, lowered):
            if _TELLING.search(match["secret"]) and not is_code_expression(text, *match.span("secret")):
                yield match.span("secret")
    for pattern in (_COMMUNITY, _OF_DIRECTORY, _JOSE):
        for match in pattern.matches(text, lowered):
            yield match.span("secret" if match["secret"] else "hash")
    for match in _OF_A_REGISTRY.matches(text, lowered):
        if _is_a_pair(match["secret"]):
            yield match.span("secret")


def _is_a_pair(encoded: str) -> bool:
    """Return whether Base64 has a user and a password."""
    try:
        user, _, password = b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return False
    return bool(user) and bool(password) and (user + password).isprintable()


def _is_said(element: re.Match[str]) -> bool:
    """Return whether it is text for people: `<string name="new_password">Your password</string>`."""
    return element["tag"].lower() == "string" and (" " in element["secret"] or not _TELLING.search(element["secret"]))


def _over_lines(text: str) -> Iterator[tuple[int, int]]:
    lowered = to_lower_same_length(text)
    if any(name in lowered for name in _LISTS):
        for passwords in _ITEMS_OF_MARKDOWN.finditer(text):
            for item in _ITEM_OF_MARKDOWN.finditer(text, *passwords.span("items")):
                if item["mark"] == "`" or _TELLING.search(item["secret"]):
                    yield item.span("secret")
    for key in _KEY.finditer(lowered):
        yield from _beside_a_key(text, lowered, *key.span())
        for start, end in _behind(text, *key.span()):
            if not (_is_prose(text[start:end]) or is_code_expression(text, start, end)):
                yield start, end


def _behind(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the values of a key in a YAML block, after line ends, in brackets over lines or in long quotes."""
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
    elif quoted := (_LONG_QUOTES.match(text, end) or _HERE.match(text, end)):
        yield quoted.span("secret")


def _is_prose(value: str) -> bool:
    words = value.lower().split()
    return len(words) > 1 and not PROSE.isdisjoint(words)


def _manifest(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for fields in _SECRET_FIELDS.finditer(text, start, end):
        for field in _FIELD.finditer(text, *fields.span("fields")):
            secret = field["secret"] if field["end"] else field["secret"].rstrip(" \t")
            yield field.start("secret"), field.start("secret") + len(secret)


_INSERT = compile_bounded(
    r"\b(?:insert|replace)\s++(?:ignore\s++)?into\s++[^\s(]{1,200}+\s*+\((?P<columns>[^()]{1,2000}+)"
    r"\)\s*+values(?=\s*+\()",
    re.IGNORECASE,
)
_PASSWORD = compile_bounded(rf"\A(?:(?:(?!{PASSWORD})[\w.-]){{0,200}}+(?:{PASSWORD})[\w.-]*+|pass|pw)\Z", re.IGNORECASE)
_AROUND_A_NAME = "\"'`[] \t\r\n"
_VALUE = (
    r"(?>\s*+'(?:[^'\\]++|''|\\.)*+'\s*+|\s*+\"(?:[^\"\\]++|\\.)*+\"\s*+"
    r"|[^,()'\"]*+(?:\([^()]*+\)\s*+)?)"
)
_ROW = compile_bounded(rf"(?<!\s)\s*+(?:,\s*+)?\({_VALUE}(?:,{_VALUE})*+\)")
_MAX_ROW_CHARACTERS = 40_000
"""Maximum characters: otherwise an unclosed row would be read to the end of the text, once for each statement in it."""
_CELL = compile_bounded(rf"[(,]({_VALUE})")
_WRITTEN = compile_bounded(r"(?<!\s)\s*+N?(?P<quote>['\"])(?P<secret>.{2,400})(?P=quote)\s*+", re.DOTALL)


def find_sql_insert_passwords(text: str) -> Iterator[RecognizerMatch]:
    """Yield every literal password among the values."""
    for insert in _INSERT.finditer(text):
        columns = [bool(_PASSWORD.match(name.strip(_AROUND_A_NAME))) for name in insert["columns"].split(",")]
        row = _row(text, insert.end()) if any(columns) else None
        while row:
            yield from _passwords(text, row, columns)
            row = _row(text, row.end())


def _row(text: str, start: int) -> re.Match[str] | None:
    return _ROW.match(text, start, start + _MAX_ROW_CHARACTERS)


def _passwords(text: str, row: re.Match[str], columns: list[bool]) -> Iterator[RecognizerMatch]:
    begin = text.index("(", row.start())
    for is_password, cell in zip(columns, _CELL.finditer(text, begin, row.end()), strict=False):
        value = _WRITTEN.fullmatch(text, *cell.span(1)) if is_password else None
        if value and not is_dummy_value(value["secret"]):
            yield RecognizerMatch("SECRET", *value.span("secret"), 0.9)


_USER = r"[\w.+-]{2,64}+(?:@[\w.-]{1,100}+)?"
_SECRET = r"(?P<secret>[^\s\"'`<>,;|()\[\]{}]{4,100})"
_ACCOUNTS = "admin|administrator|root|superuser|sa|sysadmin|sysdba"
_ANNOUNCED = PrefilteredPattern(
    ("login", "log-in", "logon", "cred", "user", "account", "zugang", "anmeld", "usuario", "utilisateur", "utente"),
    compile_bounded(
        r"(?<![^\W_])(?<!/)(?:login|log-?in|logon|credentials?|creds?|user(?:name)?|account|zugang(?:sdaten)?|anmeldung|usuario|utilisateur"
        r"|utente)(?:s?[ \t]?(?:/|and|und|&|\+|y|et|e)[ \t]?(?:pass(?:word|wort)?|pw|pwd|passwort|contraseña|mdp))?"
        r"[\"'*]{0,3}(?:[ \t]{0,3}[:=]|[ \t](?:is|are|ist|lauten?))[ \t*\"'`]{0,4}+"
        rf"{_USER}[\"'`]?(?:[ \t]{{1,3}}[/|][ \t]{{1,3}}|[:/](?![/\d]{{1,9}}(?!\w)))[\"'`]?{_SECRET}",
        re.IGNORECASE,
    ),
)
_WITH_A_WORD = PrefilteredPattern(
    (" pw", " pass", " pwd", " mdp", " with ", " mit "),
    compile_bounded(
        r"(?<![^\W_])(?:(?:user(?:name)?|login|account|benutzer|usuario|utilisateur|utente)[ \t]{0,2}[:=]?[ \t]{1,3}"
        rf"{_USER}[ \t]{{0,2}}[,;/]?"
        r"[ \t]{1,3}(?:(?:and|und|y|et|with|mit)[ \t])?(?:pw|pass|pwd|password|passwort|mdp)[ \t]{0,2}[:=]?"
        rf"|(?:log|sign)[ \t]?in[ \t](?:as|with)[ \t]{_USER}[ \t](?:with|and|/))[ \t]{{1,3}}[\"'`]?{_SECRET}",
        re.IGNORECASE,
    ),
)
_AT_A_HOST = PrefilteredPattern(
    ("@",),
    compile_bounded(
        r"(?<![\w/.:@+-])(?P<user>[A-Za-z][\w.-]{1,31}):(?P<secret>[^\s\"'`<>,;|()\[\]{}/@:]{4,64})"
        r"@(?P<host>[A-Za-z\d](?:[\w-]|\.(?=\w)){1,100}+)(?!@)"
    ),
)
_KNOWN_ACCOUNT = PrefilteredPattern(
    tuple(f"{account}:" for account in _ACCOUNTS.split("|")),
    compile_bounded(rf"(?<![\w/.:@$-])(?:{_ACCOUNTS}):(?P<secret>[^\s\"'`<>,;|()\[\]{{}}@]{{4,100}})"),
)
_ARGUMENT = r"(?:\"[^\"\n]{0,200}+\"|'[^'\n]{0,200}+'|[\w.:/-]{1,100}+)"
_LAST = r",\s?(?P<quote>[\"'])(?P<secret>[^\s\"']{4,200}+)(?P=quote)"
_IN_A_CALL = PrefilteredPattern(
    ("auth", "credential", "login"),
    compile_bounded(
        rf"(?:auth\s?[=:]\s?|auth|credentials?|authentication|log_?in)\(\s?{_ARGUMENT}{_LAST}",
        re.IGNORECASE,
    ),
)
_OF_A_CONNECTION = PrefilteredPattern(
    ("connect", "pdo("),
    compile_bounded(rf"(?:connect(?:ion)?|PDO)\(\s?{_ARGUMENT},\s?{_ARGUMENT}{_LAST}", re.IGNORECASE),
)
_AS_THE_PASSWORD = PrefilteredPattern(
    (" as the pass", " as your pass"),
    compile_bounded(
        r"\buse[ \t][\"'`]?(?P<secret>[^\s\"'`]{4,100})[\"'`]?[ \t]as[ \t](?:the|your)[ \t]pass(?:word|phrase|code)",
        re.IGNORECASE,
    ),
)
_OF_TWILIO = compile_bounded(r"\b(?:AC|SK)[0-9a-f]{32}:(?P<secret>[0-9A-Za-z]{32})\b")
_DUMPED = PrefilteredPattern(
    ("@",),
    compile_bounded(
        r"^[\"']?[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}[\"']?(?:[:;|\t]|[ \t]{1,3}[|/]"
        r"[ \t]{1,3}|,[ \t]?)[\"']?"
        r"(?P<secret>[^\s\"':;|,<>@]{4,64})[\"']?[ \t\r]{0,8}$",
        re.MULTILINE,
    ),
)
"""An address and a password alone on a line, as in credential dumps."""
_NO_USERS = (
    "acct bcc cc contact docker e-mail email from git github image mail mailto npm pkg reply-to sender sip to xmpp"
)
_NO_USER = frozenset(_NO_USERS.split())
_NO_HOST = compile_bounded(r"\A(?:sha\d{3}|md5|v?\d+(?:\.\d+){0,2}|latest|next|beta)\Z")
_DIGIT, _LETTER = compile_bounded(r"\d"), compile_bounded(r"[^\W\d_]")
_SYMBOL = compile_bounded(r"[!#$%^&*?=~+]")
_NO_PASSWORD = compile_bounded(r"\A(?:v?\d++(?:\.\d++)++[\w.-]*+|\d++-[a-z]++|[\d.:x-]++|[\w./-]*\.[a-z]\w{0,4})\Z")
"""Versions, numbers and files."""
_NOT_ITS_END = ".,;:*"


def find_login_passwords(text: str) -> Iterator[RecognizerMatch]:
    """Yield every password next to its user; the same characters may be matched more than once."""
    for token in _OF_TWILIO.finditer(text):
        yield RecognizerMatch("SECRET", *token.span("secret"), 1.0)
    for start, end in _pair_spans(text, to_lower_same_length(text)):
        value = text[start:end]
        if _is_password(value) and not (is_dummy_value(value) or is_code_expression(text, start, end)):
            yield RecognizerMatch("SECRET", start, end, 0.9)


def _pair_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for pattern in (_ANNOUNCED, _WITH_A_WORD, _KNOWN_ACCOUNT, _IN_A_CALL, _OF_A_CONNECTION, _AS_THE_PASSWORD, _DUMPED):
        for match in pattern.matches(text, lowered):
            start = match.start("secret")
            yield start, start + len(match["secret"].rstrip(_NOT_ITS_END))
    for match in _AT_A_HOST.matches(text, lowered):
        if match["user"].lower() not in _NO_USER and not _NO_HOST.match(match["host"]):
            # Without a dot it is not certainly a host: a password may have an @ too.
            yield match.start("secret"), match.end("secret" if "." in match["host"] else "host")


def _is_password(value: str) -> bool:
    """Return whether it has what words, versions and paths do not have."""
    if value.startswith(("/", "urn:")) or "://" in value or _NO_PASSWORD.match(value):
        return False
    if _SYMBOL.search(value):
        return True
    return _DIGIT.search(value) is not None and _LETTER.search(value) is not None
