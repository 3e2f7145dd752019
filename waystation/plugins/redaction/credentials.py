"""Detects credentials by their form or name: private keys, service keys, access and recovery codes, passwords in
fields.

Private keys in PEM and PGP armour are also found with a prefix before each line, and in fragments, since a log, a
quotation or a listing with line numbers preserves the key. The whole text is searched: a key, like a long named token,
may be longer than a chunk. Codes are those of a card, a door or a login, and those that recover lost access.
"""

import base64
import re
from collections.abc import Iterator, Sequence

from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction.assigned_secrets import is_dummy_value, looks_random, to_lower_same_length
from waystation.plugins.redaction.formats import PrefilteredPattern, RecognizerMatch

_Span = tuple[int, int]
_MARKER = compile_bounded(r"-{4,5} ?(?P<which>BEGIN|END) (?P<of>[A-Z0-9 ]{1,60}?) ?-{4,5}")
_PRIVATE = compile_bounded(r"\A(?:.* )?PRIVATE KEY(?: BLOCK)?\Z")
_REACH = 40_000
"""Characters from a marker within which its key is searched for: the longest in use, after timestamps."""
_LINE = compile_bounded(r"(?:\\[nr])++|(?P<line>(?:[^\r\n\\]++|\\(?![nr]))++)")
_A_CHARACTER = compile_bounded(r"[^\W_]")
_BETWEEN = compile_bounded(r"(?:\s++|\\[nr])*+")
_CHARACTERS = "[A-Za-z0-9+/=]"
_AFTER = r"[\"'`,;|+*\\\s]{0,12}\Z"
_WORDS = compile_bounded(rf"{_CHARACTERS}++(?: {_CHARACTERS}++)*+")
_ENDS = compile_bounded(_AFTER)
_LONG_WORD = compile_bounded(
    rf"(?<!{_CHARACTERS})(?:{_CHARACTERS}{{40}}|(?=[A-Za-z+/=]{{0,38}}\d){_CHARACTERS}{{16,39}}(?!{_CHARACTERS}))"
)
_TAIL = compile_bounded(rf"(?<![\w+/=])(?P<key>{_CHARACTERS}{{1,39}}){_AFTER}")
_CUT_OFF = compile_bounded(rf"\A[^A-Za-z+/=]*?(?P<key>{_CHARACTERS}{{1,39}}){_AFTER}")
_NO_BODY = compile_bounded(r"\A(?:[^A-Za-z]*\Z|.*\b(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset): )")
"""Lines that may be in the block besides the key: empty ones, and headers."""


_IN_BASE64 = compile_bounded(
    r"(?<![A-Za-z0-9+/=])LS0tL(?P<first>[A-Za-z0-9+/]{31,79})"
    r"(?P<rest>[A-Za-z0-9+/]*+(?:[ \t]{0,40}+(?:\\n|\r?\n)[ \t]{0,40}+[A-Za-z0-9+/]{16,}+)*+=*+)"
)
"""Base64 of text that begins with dashes."""
_PUTTY = compile_bounded(r"\bPrivate-Lines:[ \t]{0,8}+(?P<count>\d{1,4})[ \t\r]{0,80}+(?=\n|\\[nr]|\Z)")
_PUTTY_MAC = compile_bounded(r"\bPrivate-(?:MAC|Hash):[ \t]{0,8}(?P<secret>[0-9a-f]{40,128})")


_LONG_TOKEN = compile_bounded(
    r"(?:token|secret|key|passw(?:or)?d|credentials?|assertion|session|auth|cookie)\d{0,2}\\?[\"'`\]]{0,2}[ \t]{0,8}"
    r"(?::?=|[:>])[ \t\n]{0,8}\\?[\"'`]?(?P<secret>(?=[A-Za-z_.~+/%-]{0,200}\d)[\w.~+/%-]{200,40000}+={0,2})",
    re.IGNORECASE,
)
"""Its characters exclude `=` and `:`: what is read after one name has no other in it."""


def find_private_keys(text: str) -> Iterator[RecognizerMatch]:
    """Yield every private key, as one secret if only white space separates its lines, else line by line; and tokens
    that are longer than any password.
    """
    yield from _of_putty(text)
    for token in _LONG_TOKEN.finditer(text):
        yield RecognizerMatch("SECRET", *token.span("secret"), 0.9)
    for encoded in _IN_BASE64.finditer(text):
        written = f"LS0tL{encoded['first']}"
        if b"PRIVATE" in base64.b64decode(written[: len(written) // 4 * 4]):
            yield RecognizerMatch("SECRET", *encoded.span(), 1.0)
    markers = list(_MARKER.finditer(text))
    private = [number for number, marker in enumerate(markers) if _PRIVATE.match(marker["of"])]
    body = {span for number in private for span in _beside(text, markers, number)}
    for start, end in _joined(text, body, [markers[number].span() for number in private]):
        yield RecognizerMatch("SECRET", start, end, 1.0)


def _of_putty(text: str) -> Iterator[RecognizerMatch]:
    """Yield the private lines of a PuTTY key, whose header gives their number, and their checksum."""
    for header in _PUTTY.finditer(text):
        lines = _lines(text, header.end(), min(len(text), header.end() + _REACH))[: int(header["count"])]
        body = {(offset + found[0], offset + found[1]) for line, offset in lines if (found := _body(line))}
        for start, end in _joined(text, body, []):
            yield RecognizerMatch("SECRET", start, end, 1.0)
    for mac in _PUTTY_MAC.finditer(text):
        yield RecognizerMatch("SECRET", *mac.span("secret"), 1.0)


def _beside(text: str, markers: Sequence[re.Match[str]], number: int) -> Iterator[_Span]:
    """Yield the lines of the key after its begin marker, or before its end marker."""
    marker = markers[number]
    if marker["which"] == "BEGIN":
        next_marker = markers[number + 1].start() if number + 1 < len(markers) else len(text)
        return _key_lines(_lines(text, marker.end(), min(next_marker, marker.end() + _REACH)))
    last_marker = markers[number - 1].end() if number else 0
    return _key_lines(_lines(text, max(last_marker, marker.start() - _REACH), marker.start())[::-1])


def _lines(text: str, start: int, end: int) -> list[tuple[str, int]]:
    """Return non-empty lines with their starts, without the text before a marker on its own line."""
    lines = [
        (line["line"], line.start("line"))
        for line in _LINE.finditer(text, start, end)
        if line["line"] and _A_CHARACTER.search(line["line"])
    ]
    if lines and end < len(text) and lines[-1][1] + len(lines[-1][0]) == end and not _body(lines[-1][0]):
        lines.pop()
    return lines


def _key_lines(lines: Sequence[tuple[str, int]]) -> Iterator[_Span]:
    """Yield key lines from the marker on, up to the first line that is not part of a key."""
    for number, (line, offset) in enumerate(lines):
        found = _body(line) or _short(lines, number)
        if found:
            yield offset + found[0], offset + found[1]
        elif not _NO_BODY.match(line):
            return


def _body(line: str) -> _Span | None:
    """Return the span of key words at the end of a line, from the first that is long enough."""
    words = None
    for words in _WORDS.finditer(line):  # noqa: B007 - the last ones
        pass
    if not words or not _ENDS.match(line, words.end()):
        return None
    first = _LONG_WORD.search(line, *words.span())
    return (first.start(), words.end()) if first else None


def _short(lines: Sequence[tuple[str, int]], number: int) -> _Span | None:
    """Return the last line of a key, at its end marker; or the rest of a line if the text is cut off."""
    line = lines[number][0]
    found = None
    if number == 0 and len(lines) > 1 and _body(lines[1][0]):
        found = None if _NO_BODY.match(line) else _TAIL.search(line)
    elif number == len(lines) - 1 and number and _body(lines[number - 1][0]):
        found = _CUT_OFF.match(line)
    return found.span("key") if found else None


def _joined(text: str, body: set[_Span], markers: Sequence[_Span]) -> Iterator[_Span]:
    """Join lines and markers that only white space separates; markers alone are no secret."""
    start = end = 0
    has_body = False
    for piece in sorted({*body, *markers}):
        if not _BETWEEN.fullmatch(text, end, max(end, piece[0])) or not end:
            if has_body:
                yield start, end
            start, has_body = piece[0], False
        end = max(end, piece[1])
        has_body = has_body or piece in body
    if has_body:
        yield start, end


_NAMED_KEY = PrefilteredPattern(
    ("key",),
    compile_bounded(
        r"(?<![\w.-])(?P<name>[A-Za-z](?:[\w.-]{0,60}?(?:[_.-][Kk]ey|_KEY|[a-z0-9]Key)|\w{1,30}key))\d{0,2}"
        r"(?:[ \t]string)?\\?[\"'`\]]{0,2}[ \t]{0,8}(?::?=|:|=>)[ \t]{0,8}\\?[\"'`]?"
        r"(?P<secret>[A-Za-z0-9_-]{20,200}+)(?![\w./@(\[-])"
    ),
)
_SAID_KEY = PrefilteredPattern(
    ("key is", "key was", "key: ", "key - "),
    compile_bounded(
        r"(?P<name>\w{1,40}[ \t]key)(?:[ \t](?:is|was)(?:[ \t]now)?:?|:|[ \t]-)[ \t]{1,3}[\"'`]?"
        r"(?P<secret>[A-Za-z0-9_-]{20,200}+)(?![\w./@(\[-])",
        re.IGNORECASE,
    ),
)
_OPENS_NOTHING = compile_bounded(
    r"(?:primary|foreign|partition|cache|sort|row|idempotency|dedup\w{0,12}|routing|object|public|pub|publishable|site|host"
    r"|message|record|shard(?:ing)?|event|content|index|group|lookup|translation|storage|s3|blob|file|image|asset|item"
    r"|join|unique|hash|dict|map|memo|state|redis|bucket|commit|issue|query|trace|build|artifact|digest|request|batch"
    r"|block|node|parent|doc(?:ument)?|tree|entry|job|task|run|test|known|natural|surrogate|composite|search|etag|chunk"
    r"|layer|package|dependency|lock|metric|series|dataset|experiment|result|session|verify(?:ing)?|verification|no|not"
    r"|right|left|arrow|hot|sub|meta|i18n|locale|material|product|order|order?ing|track(?:ing)?|data|db|the|a)"
    r"[_. -]?key\Z",
    re.IGNORECASE,
)
_CHANGE = compile_bounded(r"(?<=[A-Za-z])\d|(?<=\d)[A-Za-z]")
_MIN_CHANGES = 5
"""Minimum changes between letters and digits: names and dates have fewer."""
_A_UUID = compile_bounded(r"\A[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z")


def find_service_keys(text: str, lowered: str) -> Iterator[RecognizerMatch]:
    """Yield keys named after their service: `sendgrid_key: …`, *your weather key is …*."""
    for pattern in (_NAMED_KEY, _SAID_KEY):
        for match in pattern.matches(text, lowered):
            value = match["secret"]
            if _OPENS_NOTHING.search(match["name"]) or _A_UUID.match(value):
                continue
            if len(_CHANGE.findall(value)) >= _MIN_CHANGES:
                yield RecognizerMatch("SECRET", *match.span("secret"), 0.9)


_CODE = r"(?:[0-9a-z]{4,5}-[0-9a-z]{4,5}|\d{4} \d{4}|\d{8})(?!\w)"
_RECOVERY_CODES = PrefilteredPattern(
    ("backup code", "recovery code", "scratch code", "backup-code", "recovery-code"),
    compile_bounded(
        r"\b(?:backup|recovery|scratch)[ -]codes?[\"'*]{0,3}(?:[ \t](?:is|are))?[:=]?"
        rf"(?P<secret>(?:(?:[ \t,;\"'\[*•-]|\r?\n|\d{{1,2}}[.)] ){{1,8}}{_CODE}){{1,20}}+)",
        re.IGNORECASE,
    ),
)
_RECOVERY_KEY = PrefilteredPattern(
    ("recovery key", "recovery-key", "recoverykey", "product key", "activation"),
    compile_bounded(
        r"\b(?:recovery|product|activation)[ _-]?(?:key|code)[\"'*]{0,3}(?:[ \t]is)?[:=]?[ \t\r\n\"']{1,8}"
        r"(?P<secret>(?=[A-Z-]{0,40}\d)[0-9A-Z]{4,6}(?:-[0-9A-Z]{4,6}){2,12})(?![\w-])",
        re.IGNORECASE,
    ),
)
_OF_BITLOCKER = compile_bounded(r"(?<![\w-])\d{6}(?:-\d{6}){7}(?![\w-])")
_PHRASE = PrefilteredPattern(
    ("seed", "phrase", "mnemonic"),
    compile_bounded(
        r"\b(?:seed(?: phrase)?|(?:recovery|backup|secret|mnemonic)[ -]phrase|mnemonic)[\"'*]{0,3}(?: is)?[ \t]?[:=]"
        r"\s{0,4}[\"'`]?(?P<secret>[a-z]{3,8}(?: [a-z]{3,8}){11}(?:(?: [a-z]{3,8}){3}){0,4})(?![ \t]?[\w,])",
        re.IGNORECASE,
    ),
)
_DOOR = PrefilteredPattern(
    (" code", "combination"),
    compile_bounded(
        r"\b(?:(?:front )?door|gate|entry|garage|keypad|lockbox|key ?safe|safe|building)[ -](?:code|combination)"
        r"(?:[ \t](?:is|was)|[ \t]?[:=])?[ \t]{1,3}(?P<secret>\d{4,8}|\d{2}-\d{2}-\d{2})(?![\w-]|[.,:]\d)",
        re.IGNORECASE,
    ),
)


def find_recovery_secrets(text: str, lowered: str) -> Iterator[RecognizerMatch]:
    """Yield secrets that grant access without a key or password: recovery codes and keys, wallet phrases, door
    codes.
    """
    for match in _OF_BITLOCKER.finditer(text):
        yield RecognizerMatch("SECRET", *match.span(), 1.0)
    for pattern in (_RECOVERY_CODES, _RECOVERY_KEY, _PHRASE, _DOOR):
        for match in pattern.matches(text, lowered):
            blank = len(match["secret"]) - len(match["secret"].lstrip(" \t\r\n,;\"'[*•-"))
            yield RecognizerMatch("SECRET", match.start("secret") + blank, match.end("secret"), 0.9)


_IS_CODE = r"\\?[\"']?\s{0,2}(?:(?:is|was|lautet|ist|es|est|is:|was:)\s|[:=#]|是|は)?\s{0,2}[\"']?"
_NO_MORE = r"(?![\w]|[.,:/-]\d)"
_CODES = (
    PrefilteredPattern(
        ("cvv", "cvc", "card security", "prüf"),
        compile_bounded(
            rf"\b(?:CVV2?|CVC2?|card security code|Kartenprüfnummer|Prüfziffer){_IS_CODE}(?P<code>\d{{3,4}}){_NO_MORE}",
            re.I,
        ),
    ),
    PrefilteredPattern(
        ("pin",),
        compile_bounded(
            r"(?<![\w-])pin(?:[ -]?(?:code|number|nummer))?\\?[\"']?"
            rf"(?:\s{{0,2}}[:=]\s{{0,2}}[\"']?|\s(?:is|was|lautet|ist|es|est)\s)(?P<code>\d{{4,8}}){_NO_MORE}",
            re.IGNORECASE,
        ),
    ),
    PrefilteredPattern(("pin",), compile_bounded(rf"(?<![\w-])PIN (?P<code>\d{{4}}){_NO_MORE}(?! ?\d)")),
    PrefilteredPattern(
        ("otp", "puk", "code", "códi", "codi", "time pass", "验证码", "驗證碼", "認証", "暗証", "인증"),
        compile_bounded(
            r"(?:\b(?:OTP|PUK|one[ -]time (?:code|pass(?:word|code))"
            r"|(?:verification|security|2FA|MFA|auth(?:entication)?|login) code"
            r"|Bestätigungscode|Sicherheitscode|código de (?:verificación|seguridad|verificação)"
            r"|code de (?:vérification|sécurité)"
            rf"|codice di verifica)|验证码|驗證碼|認証コード|暗証番号|인증번호){_IS_CODE}"
            rf"(?P<code>\d{{3}}[ -]\d{{3}}|\d{{4,8}}){_NO_MORE}",
            re.IGNORECASE,
        ),
    ),
)


def find_access_codes(text: str) -> Iterator[RecognizerMatch]:
    """Yield every short access number of a card, a phone or a login, after its name."""
    lowered = to_lower_same_length(text)
    for pattern in _CODES:
        for match in pattern.matches(text, lowered):
            yield RecognizerMatch("SECRET", *match.span("code"), 0.9)


_IN_FIELDS = (
    PrefilteredPattern(
        ("<input",),
        compile_bounded(
            r"<input\b(?=[^<>]{0,400}\btype=[\"']?password)[^<>]{0,400}?\bvalue=(?P<quote>[\"'])(?P<secret>[^\"'<>\n]{3,200})"
            r"(?P=quote)",
            re.IGNORECASE,
        ),
    ),
    PrefilteredPattern(
        ("protectinmemory", "protected="),
        compile_bounded(
            r"<Value\b[^<>]{0,100}\bProtect(?:ed|InMemory)=[\"']True[\"'][^<>]{0,100}>(?P<secret>[^<>\n]{1,400})<"
        ),
    ),
    PrefilteredPattern(
        ("_salt", "nonce_key", "logged_in_key", "auth_key"),
        compile_bounded(
            r"\b(?:SECURE_AUTH|AUTH|LOGGED_IN|NONCE)_(?:KEY|SALT)[\"']?[ \t]{0,8}[,=:][ \t]{0,8}(?P<quote>[\"'])"
            r"(?P<secret>(?:(?!(?P=quote))[^\n]){16,200})(?P=quote)"
        ),
    ),
)
_BESIDE = (
    PrefilteredPattern(
        ("@",),
        compile_bounded(
            r"^[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}[ \t]{1,8}(?P<secret>\S{8,64})[ \t]{0,8}\r?$",
            re.MULTILINE,
        ),
    ),
    PrefilteredPattern(
        ("wifi", "wi-fi", "wlan", "ssid"),
        compile_bounded(
            r"\b(?:wi-?fi|wlan|ssid)\b[ \t]?[:=]?[ \t]{1,2}[\w.-]{1,40}(?: [\w.-]{1,40}){0,2}[ \t]{0,2}[/|,][ \t]{0,2}"
            r"(?P<secret>[^\s,;]{8,64})",
            re.IGNORECASE,
        ),
    ),
    PrefilteredPattern(
        ("credentials are", "logins are", "login is"),
        compile_bounded(
            r"\b(?:credentials are|logins? (?:is|are)):?[ \t]{1,2}[\w.+@-]{2,100}[ \t](?:and|/|\+|with)[ \t][\"'`]?"
            r"(?P<secret>[^\s\"'`,;]{8,64})",
            re.IGNORECASE,
        ),
    ),
)


def find_field_secrets(text: str, lowered: str) -> Iterator[RecognizerMatch]:
    """Yield passwords named by their fields, and random-looking values next to an address or a network."""
    for pattern in _IN_FIELDS:
        for match in pattern.matches(text, lowered):
            if not is_dummy_value(match["secret"]):
                yield RecognizerMatch("SECRET", *match.span("secret"), 0.9)
    for pattern in _BESIDE:
        for match in pattern.matches(text, lowered):
            start = match.start("secret")
            value = match["secret"].rstrip(".:")
            if looks_random(value):
                yield RecognizerMatch("SECRET", start, start + len(value), 0.9)
