"""Keys, tokens and passwords, by the formats of their issuers and by what is assigned to a telling name."""

import re
from collections import Counter
from collections.abc import Iterator
from math import log2

from waystation.adapters.presidio.formats import FormatRecognizer, Hit

_ISSUED = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      sk-ant-[\w-]{8,}
    | sk-(?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{20,}
    | [srp]k_(?:live|test)_\w{10,} | whsec_[\w+/=]{16,}
    | A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}\b
    | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | gl(?:pat|dt|rt|cbt|ptt|ft|imt|soat|agent|oas|ffct)-[\w.-]{16,}
    | xox[abeoprs]-[\w-]{10,} | xapp-[\w-]{10,}
    | AIza[\w-]{30,} | ya29\.[\w-]{20,} | GOCSPX-[\w-]{20,}
    | [\w~.-]{3}\dQ~[\w~.-]{31,34}                                                 # a client secret of Azure
    | npm_[A-Za-z0-9]{30,} | pypi-[\w-]{50,} | rubygems_[0-9a-f]{40,} | dckr_(?:pat|oat)_[\w-]{20,}
    | (?:hf|api_org)_[A-Za-z0-9]{30,} | gsk_[A-Za-z0-9]{40,} | xai-[A-Za-z0-9]{40,} | pplx-[A-Za-z0-9]{32,}
    | r8_[A-Za-z0-9]{36,} | lsv2_(?:pt|sk)_[\w]{32,} | pa-[A-Za-z0-9_-]{40,}
    | SG\.[\w-]{16,}\.[\w-]{16,} | key-[0-9a-f]{32}\b | SK[0-9a-f]{32}\b | [0-9a-f]{32}-us\d{1,2}\b
    | do[opr]_v1_[0-9a-f]{40,} | shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32} | sq0(?:atp|csp|idp)-[\w-]{20,}
    | dapi[0-9a-f]{32}(?:-\d)?\b | dp\.(?:pt|st|ct|sa)\.[\w.-]{30,} | hv[sbr]\.[\w-]{20,}
    | [A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,} | gl(?:sa|c)_[\w=]{30,} | NRAK-[A-Z0-9]{27}\b | sntry[su]_[\w+/=]{30,}
    | lin_(?:api|oauth)_[A-Za-z0-9]{32,} | ntn_[A-Za-z0-9]{40,} | fig[do]_[\w-]{30,} | PMAK-[0-9a-f-]{30,}
    | pat[A-Za-z0-9]{14}\.[0-9a-f]{64} | ATATT3[\w=-]{30,} | sbp_[0-9a-f]{40} | pscale_(?:tkn|pw|oauth)_[\w.-]{30,}
    | CCIPAT_\w{20,} | HRKU-[\w-]{30,} | ops_eyJ[\w-]{50,} | \d{8,10}:AA[\w-]{33}(?![\w-])
    | AGE-SECRET-KEY-1[0-9A-Z]{50,}
    | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}
    )""",
    re.VERBOSE,
)
_HOOK_ADDRESS = re.compile(
    r"\bhttps://(?:hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/\d+/)"
    r"(?P<secret>[\w/-]{16,200})"
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
_IS = r"\\?[\"'`]?\s{0,3}(?::=|=>|[:=|])\s{0,3}"
_ENVIRONMENT = r"\b[A-Z0-9_]{0,60}(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)"
_OPTION = r"(?<!\S)--?(?:password|passwd|pass|token|api-key|secret|secret-key|access-key)"
_ASSIGNED = (
    re.compile(rf"{_PASSWORD}{_IS}(?P<quote>\\?[\"'])(?P<secret>[^\"'\\\n]{{4,200}})(?P=quote)", re.IGNORECASE),
    re.compile(
        rf"{_PASSWORD}(?:{_IS}|\s+(?:is|was)\s+)(?P<secret>(?=\S{{0,40}}\d)[^\s\"'\\,;()<>]{{6,200}})", re.IGNORECASE
    ),
    re.compile(
        rf"{_KEY}{_IS}(?P<quote>\\?[\"'])(?P<secret>(?=[^\"']{{0,80}}\d)[^\"'\\\s]{{8,400}})(?P=quote)", re.IGNORECASE
    ),
    re.compile(
        rf"{_KEY}(?:{_IS}|\s+(?:is|was)\s+)(?P<quote>`?)(?P<secret>(?=[^\s\"']{{0,40}}\d)(?=[^\s\"']{{0,40}}[A-Za-z])"
        r"[\w.~+/=-]{11,400}[\w~+/=-])(?P=quote)",
        re.IGNORECASE,
    ),
    re.compile(rf"{_ENVIRONMENT}=(?P<secret>[^\s\"'\\,;()<>&|$]{{6,200}})"),
    re.compile(rf"{_OPTION}[= ](?P<secret>[^\s\"'\\,;()<>|$]{{6,200}})"),
    re.compile(r"\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,100}:(?P<secret>[^\s\"']{1,100})"),
)
_LIKELY = re.compile(
    r"\b(?:secrets?|tokens?|keys?|credentials?|passwords?|passphrase|pat)\b[^\n]{0,40}?"
    r"(?<![\w/.@-])(?P<secret>(?=[\w+/=-]{0,60}\d)[A-Za-z0-9+/=_-]{20,200})(?![\w@.-])",
    re.IGNORECASE,
)
_LEAST_ENTROPY = 3.7
"""Bits a character. Identifiers of code and paths have less or lack capitals or digits in between."""
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
        for pattern in (_AUTHORIZATION, _IN_URL, _HOOK_ADDRESS, *_ASSIGNED):
            for match in pattern.finditer(text):
                if not _STAND_IN.fullmatch(match["secret"]):
                    yield Hit("SECRET", *match.span("secret"), 0.9)
        for match in _LIKELY.finditer(text):
            if _is_random(match["secret"]):
                yield Hit("SECRET", *match.span("secret"), 0.6)


def _is_random(value: str) -> bool:
    """Whether the characters are of all kinds and evenly spread, as a generator draws them."""
    if not any(map(str.isupper, value)) or not any(map(str.islower, value)):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * log2(share) for share in shares) >= _LEAST_ENTROPY
