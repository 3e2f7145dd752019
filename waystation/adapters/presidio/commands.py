"""Passwords on command lines and in the small files that commands read."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import Hinted, Hit
from waystation.adapters.presidio.labels import lower
from waystation.adapters.presidio.stand_ins import is_stand_in
from waystation.patterns import proven

_WORD = r"(?P<quote>[\"'])?(?P<secret>(?(quote)(?!(?P=quote))[^\n]|[^\s;|&)`\"']){1,200})(?(quote)(?P=quote))"
_TO = r"[^\n|;&]{0,200}?\s"
_TO_LATER_LINES = r"(?:[^\n|;]|(?<=\\)\n){0,300}?\s"
"""Commands with addresses and bodies go on over lines that end in a backslash."""
_PATTERNS = (
    Hinted(
        ("pass", "token", "key", "secret"),
        proven(
            r"(?<!\S)--?(?:[\w-]{0,30}-)?(?:password|passwd|passphrase|pass|token|api-?key|secret|secret-key|access-key|client-secret)"
            rf"(?:[= ]|[ \t]{{1,20}}+\\\r?\n[ \t]{{0,80}}+)(?!\\\r?\n){_WORD}"
        ),
    ),
    Hinted(
        ("curl",),
        proven(
            rf"\bcurl\b{_TO_LATER_LINES}(?:-u|--user|--proxy-user|-U)[ =]{{0,3}}(?:"
            r"[\"'](?P<token>[^\s:\"'<$]{8,100}):[\"']"
            r"|[\"']?[^\s:\"'<$]{0,100}[\"']?:[\"']?(?P<secret>[^\s\"'>]{1,100}))"
        ),
    ),
    Hinted(
        ("mysql", "mariadb", "mycli"),
        proven(rf"\b(?:mysql\w{{0,40}}|mariadb\w{{0,40}}|mysqldump|mycli)\b{_TO}-p(?=\S){_WORD}"),
    ),
    Hinted(
        ("sshpass", "redis-cli", "zip", "sqlcmd", "7z"),
        proven(
            rf"\b(?:sshpass\b{_TO}?-p|redis-cli\b{_TO}-a|(?:un)?zip\b{_TO}-P|sqlcmd\b{_TO}-P"
            rf"|7z\b{_TO}-p(?=\S)) ?{_WORD}"
        ),
    ),
    Hinted(
        ("login",),
        proven(rf"\b(?:(?:docker|podman|helm|az|oc|skopeo|buildah)\b[^\n|;&]{{0,60}}?\slogin\b{_TO}-p) {_WORD}"),
    ),
    Hinted(("mongo", "ldap"), proven(rf"\b(?:(?:mongo(?:sh|dump|restore)?\b{_TO}-p|ldap\w{{1,40}}\b{_TO}-w)) {_WORD}")),
    Hinted(
        ("htpasswd", "/user:"),
        proven(
            rf"\b(?:htpasswd\s-(?=\w{{0,20}}b)\w{{1,40}}+\s\S{{1,100}}\s\S{{1,60}}"
            rf"|net\suse\s\S{{1,100}}(?=[^\n]{{0,80}}/user:)) {_WORD}"
        ),
    ),
    Hinted(
        ("smb", "rpcclient", "winexe"),
        proven(
            r"\b(?:smbclient|rpcclient|winexe|smbmap)\b[^\n]{0,120}?\s-U ?[\"']?[^\s%\"']{1,60}%"
            r"(?P<secret>[^\s\"']{1,100})"
        ),
    ),
    Hinted(("pass:",), proven(r"(?<!\S)-?-pass(?:in|out)? (?:pass:)(?P<secret>[^\s\"']{1,200})")),
    Hinted(
        ("passw",),
        proven(
            r"\b(?:login|user|account)\s{1,8}(?!(?:or|and)\s)\S{1,100}\s{1,8}passw(?:or)?d\s{1,8}(?P<secret>\S{1,200})(?=[^\S\n]{0,80}+(?:\Z|[\n\"'`]|machine\b|account\b))"
        ),
    ),
    Hinted(
        (":",),
        proven(r"^[\w.*-]{1,100}:(?:\d{2,5}|\*):[^:\s]{1,60}:[^:\s]{1,60}:(?P<secret>[^:\s]{1,100})$", re.MULTILINE),
    ),
)
_NO_VALUE = proven(r"\A(?:-.*|[|&;]|\$\(.*|\\+)\Z")


def typed(text: str) -> Iterator[Hit]:
    """Every password that is an argument; the same characters may be found more than once."""
    lowered = lower(text)
    for pattern in _PATTERNS:
        for match in pattern.matches(text, lowered):
            # A token may stand where a user does, without a password.
            group = "secret" if match["secret"] is not None else "token"
            if not (is_stand_in(match[group].rstrip(",.")) or _NO_VALUE.match(match[group])):
                yield Hit("SECRET", *match.span(group), 0.9)
