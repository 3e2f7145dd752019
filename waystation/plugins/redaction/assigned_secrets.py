"""Detects passwords and keys by the words before them: assignments, fields, and sentences; several languages.

Recognises values that only look like secrets: placeholders of manuals, types, states, and code. The words are parts of
regular expressions in lower case, searched in the lower-case text: patterns that ignore case take three times as long.
"""

import re
import string
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction.detections import MASK
from waystation.plugins.redaction.formats import PrefilteredPattern, RecognizerMatch
from waystation.plugins.redaction.people import NO_SECRETS, PROSE, SAID_OF_SECRETS

PASSWORD = (
    r"passwords?|passwd|pass[ -]?phrase|passcode|pwd|pre-?shared[ -]?key|\bpsk\b|[_.-]pass(?=[\"']?\s?[:=])"
    r"|[a-z]pass(?=[\"']?\s?[:=])|identified\sby|passwort|kennwort|contraseña|contrasena|\bsenha\b|mot\sde\spasse|wachtwoord"
    r"|parola\sd['’]ordine|hasło|lösenord|adgangskode|passord|salasana|\bheslo\b|jelszó|парол[ья]|κωδικός πρόσβασης"
    r"|\bşifre|mật\skhẩu|kata\ssandi|รหัสผ่าน|密码|密碼|口令|パスワード|비밀번호|암호|كلمة\s(?:المرور|السر)|סיסמה|पासवर्ड"
)
WEAK = r"\b(?:pass|pw|mdp|clave|parola)\b"
"""Words with other meanings too: only a value that looks like a password counts after them."""
ACCESS = (
    r"(?:api|access|auth|account|private|signing|encryption|secret|service|subscription|license|fernet)[_ -]?key"
    r"(?:_base)?|client[_ -]?secret"
)
KEY = r"secret|token|credentials?"

PHONE = (
    r"\b(?:tele)?(?:phone|fax)\b|\b(?:tel|mobile|cell|whatsapp|sms|call (?:me|us|him|her|them))\b"
    r"|\b(?:tel[eé]fon[oe]?|telefoon|t[eé]l[eé]phone|telefonnummer|rufnummer|handy(?:nummer|(?=\s?[:.]))|mobil(?:nummer)?|m[oó]vil|celular|cellulare"
    r"|portable(?=\s?:)|telem[oó]vel|mobiel|komórka|puhelin|тел|телефон|мобильный)\b"
    r"|电话|電話|手机|手機|携帯|전화|휴대폰"
)
CARD = (
    r"\b(?:(?:credit|debit|bank)[ -]?)?cards?\b(?:[ -]?(?:number\b|no\b\.?|nr\b\.?|#))?"
    r"|\b(?:kredit|bank)?karten?(?:nummer)?\b"
    r"|\bcarte(?:\s(?:bancaire|de\scrédit))?\b|\btarjeta(?:\sde\scr[eé]dito)?\b"
    r"|\bcarta\sdi\scredito\b|\bcartão(?:\sde\scrédito)?\b"
    r"|\bkaartnummer\b|卡号|卡號|カード番号|카드번호"
)

_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def to_lower_same_length(text: str) -> str:
    """Return the text in lower case, with every character at its position."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


_STAND_IN = compile_bounded(
    r"\A(?:[*.x•…#_=?-]+|(?![$@<](?=[^\n]*\d)(?=[^\n]*[!#^*~@])[\w!#^*~@-]{6,40}\Z)[$%{<\[@].*"
    r"|(?:your|my|the|some|example|dummy|test|fake|sample|change|replace|insert)"
    r"(?:[a-z]*|[_ .-][\w .-]*)"
    r"|\w+[_-](?:key|token|secret|password|passwd|pwd|pass|id|here|value|string|name)"
    r"|(?-i:[a-z]\w*(?:Key|Token|Secret|Password|Pwd|Id))"
    r"|[\w-]{0,8}\.{3}.*|process\.env\b.*|os\.(?:environ|getenv)\b.*)\Z",
    re.IGNORECASE,
)
_FIVE_CONSONANTS = r"(?:[b-df-hj-np-tv-xz]{5}|[B-DF-HJ-NP-TV-XZ]{5})"
UNLIKE_A_WORD = rf"(?=[A-Za-z]*{_FIVE_CONSONANTS})(?:[a-z]{{10,}}|[A-Z]{{10,}})"
"""Letters only, as a generator draws them and hardly any language has them."""
_UNLIKE_A_WORD = compile_bounded(rf"\A{UNLIKE_A_WORD}\Z")
_MIXED_LETTERS = compile_bounded(r"\A[A-Za-z]{16,200}\Z")
_CAPITALS, _CASE_CHANGES = compile_bounded(r"[A-Z]{2,200}+"), compile_bounded(r"(?<=[a-z])[A-Z]|(?<=[A-Z])[a-z]")
_DRAWN = compile_bounded(r"\A(?=[^\n]*[A-Z])(?=[^\n]*[a-z])(?=[^\n]*\d)[\w!#$%^&*?~+@=-]{8,100}+\Z")
_DIGITS_INSIDE = compile_bounded(r"(?<=[A-Za-z])\d{1,8}(?=[A-Za-z])")
_OF_CRYPTOGRAPHY = compile_bounded(r"sha|pbkdf|hmac|aes|base|md5|crypt|argon|oauth|utf|rsa", re.IGNORECASE)
_TYPE_NAME = compile_bounded(
    r"\A[A-Z][a-z]+(?:[A-Z][a-z]+)*(?:Str|String|Field|Type|Text|Bytes|Input|Model|Schema|Callback)\Z"
)
_DOTTED = compile_bounded(r"\A(?!(?:\D*\d){3})[A-Za-z_]\w*+(?:(?:\.|::|->)[A-Za-z_]\w*+)++\.?\Z")
_NAME = compile_bounded(r"\A[A-Za-z_][\w.]*\Z")
_CALL = compile_bounded(r"[\w\]]\(")
_EXPRESSION_GOES_ON = compile_bounded(r"[(\[{]|\s?(?:==|!=|\?\?|\|\||&&|\+)|\.\w|\s=\s")


@lru_cache(1_024)
def is_dummy_value(value: str) -> bool:
    """Return whether a reader knows that this is no secret."""
    return value.lower() in NO_SECRETS or _STAND_IN.match(value) is not None or _TYPE_NAME.match(value) is not None


def is_unlike_a_word(value: str) -> bool:
    """Return whether a value of letters only can hardly be anything but a secret."""
    return _UNLIKE_A_WORD.match(value) is not None or _is_of_mixed_letters(value)


def _is_of_mixed_letters(value: str) -> bool:
    """Return whether upper and lower case alternate in groups as in no identifier of code."""
    if not _MIXED_LETTERS.match(value):
        return False
    return len(_CAPITALS.findall(value)) > 1 and 4 * len(_CASE_CHANGES.findall(value)) >= len(value)


def looks_random(value: str) -> bool:
    """Return whether a value is clearly not a word: it has digits between letters, and also mixed case or a symbol."""
    if not _DRAWN.match(value) or _OF_CRYPTOGRAPHY.search(value):
        return False
    return _SIGN.search(value) is not None or len(_DIGITS_INSIDE.findall(value)) > 1


def is_code_expression(text: str, start: int, end: int) -> bool:
    """Return whether this span is, or begins, an expression whose value is known only at run time."""
    value = text[start:end]
    if value[0] in ":=" or "[" in value or _DOTTED.match(value):
        return True
    return _NAME.match(value) is not None and _EXPRESSION_GOES_ON.match(text, end) is not None


def is_inside_open_bracket(text: str, start: int) -> bool:
    """Return whether a brace, or the parenthesis of a call, is opened before `start` on its line and still open."""
    line = text.rfind("\n", 0, start) + 1
    if text.count("{", line, start) > text.count("}", line, start):
        return True
    closed = text.count(")", line, start)
    return text.count("(", line, start) > closed and len(_CALL.findall(text, line, start)) > closed


_LABEL = compile_bounded(rf"(?P<password>{PASSWORD})|(?P<weak>{WEAK})|(?P<access>{ACCESS})|(?P<key>{KEY})")
_WHOSE = (
    r"(?:\s{1,2}\(?(?:for|of|to|on|in|at|für|vom|von|zum|zur|de|del|della|da|do|pour|para|van|per)\s"
    r"(?:\w{1,6}\s)?[\w@.-]{1,40}\)?|\s{1,2}\(\w{1,20}\))"
)
_IS = compile_bounded(
    rf"\d?(?P<sign>\\?[\"'`\]]{{0,2}}\*{{0,2}}{_WHOSE}?\*{{0,2}}\s{{0,3}}(?:\[\d{{0,4}}\]\s?|string\s)?(?P<operator>=>|->|[-–—](?=\s)|:{{0,3}}=|[.?+]=|[:|])(?![:=])\*{{0,2}}\s{{0,8}})"
    rf"|{_WHOSE}?(?:['’]s(?=\s)|\s{{1,3}}(?:(?:is|was)\s(?:now|(?:set|changed|reset)\sto)|is|was|lautet|ist|war|est|c['’]est|était|es|era|è|é|foi|är|er|jest|to)"
    r"|\s{0,2}(?:是|为|為|は|는|은))(?P<said>\s?:\s{0,3}|\s{1,3}|(?<=[是为為は는은]))"
    r"|(?P<beside>\s{1,2})",
    re.IGNORECASE,
)
_AMPERSAND = r"&(?![\w.%\[\]-]{0,60}=|#?\w{1,8};|[&\s]|\Z)"
"""`&` within a value: not before the next field of a query, in an HTML entity, or as a shell operator."""
_PLAIN = r"[^\s\"'`\\,;()<>&|。、]"
_MAX_VALUE_CHARACTERS = 400
_VALUE = compile_bounded(
    r"[fbru]{0,2}(?:(?P<plain>[\"'`])(?P<escaped>(?:(?!(?P=plain))[^\n\\]|\\[^\n]){1,400}+)(?P=plain)"
    r"|\\(?P<inner>[\"'])(?P<nested>(?:[^\"'\n\\]|\\\\(?:\\[\"']|[^\n\"'])){1,400}+)\\(?P=inner)"
    r"|(?P<quote>\\[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\n\\]|\\(?![\"'])){1,400})(?P=quote))"
    rf"|\*{{0,2}}(?P<bare>(?:{_PLAIN}{{1,400}}+|{_AMPERSAND})(?:{_AMPERSAND}{_PLAIN}{{0,400}}+){{0,40}}+)"
)
_REST = compile_bounded(rf"{_PLAIN}*+")
_BYPASS = compile_bounded(r"(?:[a-z]p|[A-Z]P)(?i:ass)")
_NOT_ITS_END = ".,;:*}]"
_DIGIT, _LETTER = compile_bounded(r"\d"), compile_bounded(r"[^\W\d_]")
_SYMBOL = compile_bounded(r"[^\w.:/-]")
_SIGN = compile_bounded(r"[!#$%^&*?~+@]")
_WITH_DIGITS_INSIDE = compile_bounded(r"\A(?=[\w-]*?[A-Za-z]\d{1,4}[A-Za-z])[\w-]{8,100}+\Z")
"""As no name of a test has them."""
_HYPHENED = compile_bounded(r"\A[A-Z][a-z]{2,30}+-[a-z]{2,30}+\Z")
_CJK = compile_bounded(r"[\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]")
_LAST_ON_LINE = compile_bounded(
    r"[.,;*]{0,3}[ \t]{0,400}+(?:\\[rn]|[\r\n#\"'<]|\Z|//|[,;] \w{1,40}\s?[:=]"
    r"|\|[ \t]{0,400}+(?:\n(?![ \t]{0,400}+\|[ \t]{0,400}+:?-)|\Z))"
)
_NO_KEY = compile_bounded(
    r"\A(?:v?\d+(?:\.\d+)+|.*\.(?:json|pem|key|ya?ml|txt|crt|py|ts|js|toml|md)|\d{4}-\d\d-\d\d.*)\Z", re.IGNORECASE
)
_PATH = compile_bounded(r"\A(?:[~.]{0,2}/|~$|[A-Za-z]:/).*\Z")
_CELLS_BEFORE = 2
"""A word in the third column or later is in a heading or below one, unlike a cell next to it."""
_ARGUMENT_LINE = compile_bounded(r",[ \t]{0,400}+(?:\n|\Z)")
_SPACE = compile_bounded(r"\s")
_KEY_CHARACTERS = compile_bounded(r"\A[\w.~+/=:%-]+\Z")
_WORD = compile_bounded(r"\A(?!\w+\.\w)\S*[^\s:]\Z")
_MIN_PASSWORD_CHARACTERS = 4
_PHRASE = compile_bounded(
    r"^[ \t>*|-]*+(?:\d++[.|)]?[ \t]++)?[\"'*_]*+(?:[^\W\d]{1,60}[ _-])?"
    rf"(?:{PASSWORD}|(?<=[_-])pass(?=[\"']?\s?[:=]))(?<!s)"
    r"[\"'*_]{0,9}+[ \t]?[:=]\*{0,2}[ \t]++(?P<secret>[\w'’-]{2,30}(?: [\w'’-]{2,30}){1,7})[ \t]*+$",
    re.MULTILINE,
)
_OWN = compile_bounded(
    r"\b(?:my|our|mein|unser|mon|notre|mi|nuestra|la mia|la nostra|a minha|a nossa|minha|nossa|mijn|ons|moje|mitt)\s"
    r"(?:[\w-]{1,20}\s){0,2}?"
    rf"(?:{PASSWORD}|pw)(?:\s(?:for|of|to|on|at|für|de|pour|para|per)\s[\w@.-]{{1,40}})?"
    r"(?:['’]s|\s(?:is|was|ist|war|lautet|est|es|era|è|é|er|är|jest))"
    r"\s(?:still\s)?[\"'`]?(?P<secret>[^\s\"'`<>]{3,100})"
)
"""After these, any word is a secret, except those that describe it."""
_WORDS_OF_PHRASES = frozenset({"correct", "here", "open", "work", "wrong", "strong", "weak", "private"})
"""Words of manuals that are as likely as any other in a passphrase."""
_LONE = compile_bounded(r"\A[A-Za-z0-9]{20,400}\Z")
_FILE_LINE = compile_bounded(
    r"^[ \t]*+(?:(?:export|set|env|ARG|ENV|-)[ \t]++)?[\w.-]{0,60}?(?:PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|SECRET|TOKEN"
    r"|(?:API|ACCESS|PRIVATE|SECRET|AUTH|ENCRYPTION|SIGNING)_?KEY|CREDENTIALS?)="
    r"(?P<secret>(?!\S*&\w+=)[^\s\"'`]{4,400})[ \t]*+$",
    re.MULTILINE,
)
_PROPERTY_LINE = compile_bounded(
    r"^[ \t]*+[\w.-]{0,60}(?:password|passwd|passphrase|passwort)="
    r"(?P<secret>(?!\S*&\w+=)[^\s\"'`]{4,400}(?<![,()]))[ \t]*+$",
    re.MULTILINE | re.IGNORECASE,
)
_ENVIRONMENT = compile_bounded(
    r"\b[A-Z0-9_]{0,60}(?:PASSWORD|PASSWD|PASSPHRASE|_PASS|SECRET|TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)"
    r"=(?P<secret>[^\s\"'`\\,;()<>&|$]{4,200})"
)
_UUID = r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
_NO_KEYS = (
    "primary|foreign|partition|cache|sort|row|idempotency|dedup|routing|object|public|message|record|sharding|event"
)
_BARE_KEY = PrefilteredPattern(
    ("key",),
    compile_bounded(
        rf"(?:(?<![\w-])(?P<name>[A-Z][A-Z0-9_]{{0,60}}_KEY|KEY)"
        r"|\b(?:const|let|var|val|final|static|string)[ \t]{1,8}"
        r"(?P<declared>[A-Za-z][A-Za-z0-9_]{0,60}(?:Key|_KEY|_key))"
        r"|\b(?:APPINSIGHTS_)?(?:INSTRUMENTATION_?KEY|[Ii]nstrumentation_?[Kk]ey)[\"']?)"
        rf"[ \t]{{0,8}}:?[:=][ \t]{{0,8}}[\"']?(?P<secret>{_UUID})(?![\w-])"
    ),
)
"""A UUID is a key if a setting says so; keys of tables and messages are UUIDs too."""
_KEY_OF_ROWS = compile_bounded(rf"(?:{_NO_KEYS})_?key\Z", re.IGNORECASE)
_SONAR_LOGIN = PrefilteredPattern(
    ("sonar",),
    compile_bounded(
        r"\bsonar[._-]?(?:login|token)[\"']?[ \t]{0,8}[:?]{0,3}[=:][ \t]{0,8}[\"']?(?P<secret>[0-9a-z]{40})(?!\w)",
        re.IGNORECASE,
    ),
)
_GEM_SERVER = PrefilteredPattern(
    ("bundle_",),
    compile_bounded(
        r"\bBUNDLE_[A-Z0-9]{1,40}(?:_{1,3}[A-Z0-9]{1,40}){0,8}__[A-Z0-9]{2,20}[ \t]{0,8}[:=][ \t]{0,8}[\"']?"
        r"(?P<secret>[^\s\"':;&$<>@/]{2,100}:[^\s\"':;&$<>@/]{2,200})"
    ),
)
"""Bundler's user and password for a server, whose dots are written as two underscores."""
_NEXT_COMMAND = compile_bounded(r"[ \t]{0,80}+&&[ \t]{0,80}+[a-z./]")
"""Follows an assignment in a shell."""


class _Value(NamedTuple):
    """A value after a word. `operator`: what joins them; `beside` for a blank, empty in a sentence."""

    kind: str
    operator: str
    quoted: bool
    label: str
    start: int
    end: int


def find_assigned_secrets(text: str) -> Iterator[RecognizerMatch]:
    """Yield every secret that a word announces; the same characters may be detected more than once."""
    covered = 0
    for label in _LABEL.finditer(to_lower_same_length(text)):
        found = _value_of(text, label)
        if found is None or found.end <= covered or not _counts(text, found):
            continue
        end = _end_of_long(text, found)
        yield RecognizerMatch("SECRET", found.start, end, 0.9)
        # A partly masked value is not taken: then a value within it may be.
        if MASK not in text[found.start : end]:
            covered = end
    for phrase in _PHRASE.finditer(to_lower_same_length(text)):
        if (PROSE - _WORDS_OF_PHRASES).isdisjoint(phrase["secret"].split()):
            yield RecognizerMatch("SECRET", *phrase.span("secret"), 0.9)
    yield from _own(text)
    yield from _on_lines(text)
    yield from _of_programs(text)


def _of_programs(text: str) -> Iterator[RecognizerMatch]:
    """Yield secrets in the settings of certain programs, and keys that are UUIDs."""
    lowered = to_lower_same_length(text)
    for key in _BARE_KEY.matches(text, lowered):
        if not _KEY_OF_ROWS.search(key["name"] or key["declared"] or ""):
            yield RecognizerMatch("SECRET", *key.span("secret"), 0.9)
    for pattern in (_SONAR_LOGIN, _GEM_SERVER):
        for match in pattern.matches(text, lowered):
            if not is_dummy_value(match["secret"]):
                yield RecognizerMatch("SECRET", *match.span("secret"), 0.9)


def _own(text: str) -> Iterator[RecognizerMatch]:
    for own in _OWN.finditer(to_lower_same_length(text)):
        start = own.start("secret")
        value = text[start : own.end("secret")].rstrip(_NOT_ITS_END)
        if value.rstrip("!?").lower() not in SAID_OF_SECRETS and not is_dummy_value(value):
            yield RecognizerMatch("SECRET", start, start + len(value), 0.9)


def _on_lines(text: str) -> Iterator[RecognizerMatch]:
    for pattern in (_FILE_LINE, _PROPERTY_LINE, _ENVIRONMENT):
        for match in pattern.finditer(text):
            start, end = match.span("secret")
            code = is_code_expression(text, start, end) and not (
                pattern is _ENVIRONMENT and _NEXT_COMMAND.match(text, end)
            )
            if not (code or is_dummy_value(text[start:end]) or _PATH.match(text[start:end])):
                yield RecognizerMatch("SECRET", start, end, 0.9)


def _value_of(text: str, label: re.Match[str]) -> _Value | None:
    if _BYPASS.fullmatch(text, *label.span()):
        return None
    joint = _IS.match(text, label.end())
    value = _VALUE.match(text, joint.end()) if joint else None
    if not joint or not value:
        return None
    form = value.lastgroup or "bare"
    quoted = form != "bare"
    start, end = value.span(form)
    if not quoted:
        end = _end_of_word(text, start, end, label[0])
    operator = (
        (joint["operator"] or "").lstrip(".?+:")
        or joint["operator"]
        or ("beside" if joint["beside"] else ":" if ":" in (joint["said"] or "") else "")
    )
    if "\n" in joint[0] and not quoted:
        operator = ""
    return _Value(label.lastgroup or "", operator, quoted, label[0], start, end) if start < end else None


def _end_of_word(text: str, start: int, end: int, label: str) -> int:
    """Return the end without the sentence's full stop, and without what follows in languages without spaces."""
    if not label.isascii() and _CJK.search(label):
        foreign = _CJK.search(text, start, end)
        end = foreign.start() if foreign else end
    return start + len(text[start : min(end, start + _MAX_VALUE_CHARACTERS)].rstrip(_NOT_ITS_END))


def _end_of_long(text: str, found: _Value) -> int:
    """Return the end of an unquoted value that is longer than the searched span, with its whole rest."""
    rest = None if found.quoted or found.end - found.start < _MAX_VALUE_CHARACTERS else _REST.match(text, found.end)
    return rest.end() if rest else found.end


def _counts(text: str, found: _Value) -> bool:
    value = text[found.start : found.end]
    if is_dummy_value(value):
        return False
    if found.quoted:
        return _quoted_counts(value, found)
    return _bare_counts(text, value, found) and not is_code_expression(text, found.start, found.end)


def _bare_counts(text: str, value: str, found: _Value) -> bool:
    if found.operator == "beside":
        if found.kind == "password" or found.label in {"pw", "mdp"}:
            return looks_random(value) or (_LONE.match(value) is not None and _is_mixed(value))
        return _LONE.match(value) is not None and _is_mixed(value)
    if found.kind == "password":
        return _password_counts(text, value, found)
    if found.kind == "weak":
        return _weak_counts(text, value, found)
    return _key_counts(value, found)


def _quoted_counts(value: str, found: _Value) -> bool:
    if value != value.strip():
        return False
    if found.kind == "password":
        return _is_password_at_all(value, found) and (found.operator != "beside" or _WORD.match(value) is not None)
    if found.operator not in {"", "beside"} and is_unlike_a_word(value):
        return True
    if found.operator in {"", "beside"} or _SPACE.search(value) or not _DIGIT.search(value):
        return found.kind == "weak" and found.operator in {":", "="} and len(value) >= 6 and not _SPACE.search(value)
    return len(value) >= {"weak": 6, "access": 4, "key": 8}[found.kind]


def _is_password_at_all(value: str, found: _Value) -> bool:
    return len(value) >= _MIN_PASSWORD_CHARACTERS and not (found.label == "pwd" and _PATH.match(value))


def _password_counts(text: str, value: str, found: _Value) -> bool:
    if not _is_password_at_all(value, found):
        return False
    if _DIGIT.search(value):
        return len(value) >= 6 or not is_inside_open_bracket(text, found.start)
    if _SYMBOL.search(value):
        return bool(found.operator) and not _PATH.match(value)
    return "_" not in value and _is_bare_word_a_password(text, found)


def _weak_counts(text: str, value: str, found: _Value) -> bool:
    if found.operator in {"", ":", "="} and looks_random(value) and not is_inside_open_bracket(text, found.start):
        return True
    if found.operator in {"", ":", "="} and found.label != "clave" and _is_unlike_prose(value):
        return not (_PATH.match(value) or is_inside_open_bracket(text, found.start))
    if found.operator == "=" and found.label != "pass" and value.isalpha():
        return len(value) >= _MIN_PASSWORD_CHARACTERS and _is_bare_word_a_password(text, found)
    if found.operator in {":", "="} and _WITH_DIGITS_INSIDE.match(value):
        return _LAST_ON_LINE.match(text, found.end) is not None and not is_inside_open_bracket(text, found.start)
    return len(value) >= 6 and value.isalnum() and _is_mixed(value) and found.operator != "|"


def _is_unlike_prose(value: str) -> bool:
    """Return whether a value has a character that words, identifiers and dotted paths do not have, or a hyphen between
    an upper and a lower case letter.
    """
    if len(value) <= _MIN_PASSWORD_CHARACTERS or value.rstrip("!?").isalpha():
        return False
    return (_SIGN.search(value) is not None and _LETTER.search(value) is not None) or _HYPHENED.match(value) is not None


def _is_bare_word_a_password(text: str, found: _Value) -> bool:
    """Return whether letters only are a literal value: `pwd=letmein`, and not `connect(password=entered)`."""
    if found.operator not in {"=", ":", "|"} or is_inside_open_bracket(text, found.start):
        return False
    if found.operator == "=":
        return not _ARGUMENT_LINE.match(text, found.end)
    line = text[text.rfind("\n", 0, found.start) + 1 : found.start]
    if found.operator == "|" and line.lstrip("| \t").count("|") >= _CELLS_BEFORE:
        return False
    return _LAST_ON_LINE.match(text, found.end) is not None


def _key_counts(value: str, found: _Value) -> bool:
    if found.operator and is_unlike_a_word(value):
        return True
    if found.operator == "|" and len(value) < 8:
        return False
    if not _DIGIT.search(value) or not _KEY_CHARACTERS.match(value) or _NO_KEY.match(value):
        return False
    if found.kind == "access" and found.operator:
        return len(value) >= 6
    return len(value) >= 12 and _LETTER.search(value) is not None


def _is_mixed(value: str) -> bool:
    return _DIGIT.search(value) is not None and _LETTER.search(value) is not None
