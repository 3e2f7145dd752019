"""A user and a password side by side: behind a word that announces them, before a host, or with a known account."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import Hinted, Hit
from waystation.adapters.presidio.labels import lower
from waystation.adapters.presidio.stand_ins import is_code, is_stand_in
from waystation.patterns import proven

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
    for start, end in _spans(text, lower(text)):
        value = text[start:end]
        if _is_password(value) and not (is_stand_in(value) or is_code(text, start, end)):
            yield Hit("SECRET", start, end, 0.9)


def _spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for pattern in (_ANNOUNCED, _WITH_A_WORD, _KNOWN_ACCOUNT):
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
