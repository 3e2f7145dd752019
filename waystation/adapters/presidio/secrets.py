"""Keys, tokens and passwords, by the formats of their issuers and by what is assigned to a telling name."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import FormatRecognizer, Hit

_ISSUED = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      sk-ant-[\w-]{8,}
    | sk-(?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{20,}
    | [srp]k_(?:live|test)_\w{10,} | whsec_[\w+/=]{16,}
    | (?:AKIA|ASIA)[0-9A-Z]{16}\b
    | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}
    | xox[abeoprs]-[\w-]{10,} | xapp-[\w-]{10,}
    | AIza[\w-]{30,} | ya29\.[\w-]{20,}
    | npm_[A-Za-z0-9]{30,} | pypi-[\w-]{50,} | hf_[A-Za-z0-9]{30,}
    | SG\.[\w-]{16,}\.[\w-]{16,} | dop_v1_[0-9a-f]{40,} | shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}
    | AGE-SECRET-KEY-1[0-9A-Z]{50,}
    | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}
    )""",
    re.VERBOSE,
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:\s|\\n){0,4}[A-Za-z0-9+/=:,-]{16,200}|(?:\s|\\n){1,4}[\w-]{1,30}: [^\n\\]{1,100}){0,400}"
    r"(?:(?:\s|\\n){0,4}[A-Za-z0-9+/=]{1,200})?"
    r"(?:(?:\s|\\n){0,4}-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_AUTHORIZATION = re.compile(
    r"\b(?:bearer|basic|authorization:\s{0,3}token)\s{1,3}(?=[\w.~+/-]{0,80}\d)(?P<secret>[\w.~+/-]{16,}={0,2})",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[^\s:/@<>]{0,200}:(?P<secret>[^\s/@]{1,200})@")

_PASSWORD = r"(?:password|passwd|passphrase|passwort|pwd)"
_KEY = r"(?:secret|token|(?:api|access|auth|account|private|signing|encryption|secret|service)[_ -]?key|credentials?)"
_IS = r"\\?[\"']?\s{0,3}(?::=|=>|[:=])\s{0,3}"
_ASSIGNED = (
    re.compile(rf"{_PASSWORD}{_IS}(?P<quote>\\?[\"'])(?P<secret>[^\"'\\\n]{{4,200}})(?P=quote)", re.IGNORECASE),
    re.compile(
        rf"{_PASSWORD}(?:{_IS}|\s+(?:is|was)\s+)(?P<secret>(?=\S{{0,40}}\d)[^\s\"'\\,;()<>]{{6,200}})", re.IGNORECASE
    ),
    re.compile(
        rf"{_KEY}{_IS}(?P<quote>\\?[\"'])(?P<secret>(?=[^\"']{{0,80}}\d)[^\"'\\\s]{{8,400}})(?P=quote)", re.IGNORECASE
    ),
    re.compile(
        rf"{_KEY}{_IS}(?P<secret>(?=[^\s\"']{{0,40}}\d)(?=[^\s\"']{{0,40}}[A-Za-z])[\w.~+/=-]{{12,400}})", re.IGNORECASE
    ),
)
_STAND_IN = re.compile(
    r"[*.x•…-]+|[$%{<\[].*|(?:your|my|the|some|example|dummy|test|fake|change)[\w -]*"
    r"|\w+_(?:key|token|secret|password|id)"
    r"|(?:user|pass|passwd|password|secret|token|key|string|str|none|null|true|false|required|optional)",
    re.IGNORECASE,
)


def private_keys(text: str) -> Iterator[Hit]:
    """Private key blocks, whole or cut off. For the whole text: a block is longer than a chunk may be."""
    for match in _PRIVATE_KEY.finditer(text):
        yield Hit("SECRET", match.start(), match.end(), 1.0)


class SecretRecognizer(FormatRecognizer):
    """Finds SECRET, private key blocks apart.

    Of an assignment or URL only the value is found; stand-ins (`your-key`, `***`, `$TOKEN`) stay.
    """

    TYPES = ("SECRET",)

    def hits(self, text: str) -> Iterator[Hit]:
        """Every secret in the text; the same characters may be found more than once."""
        for match in _ISSUED.finditer(text):
            yield Hit("SECRET", match.start(), match.end(), 1.0)
        for pattern in (_AUTHORIZATION, _IN_URL, *_ASSIGNED):
            for match in pattern.finditer(text):
                if not _STAND_IN.fullmatch(match["secret"]):
                    yield Hit("SECRET", match.start("secret"), match.end("secret"), 0.9)
