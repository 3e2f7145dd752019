"""Keys, tokens and passwords: by the formats of their issuers, by what is said of them, and by where they stand."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from math import log2

from waystation.adapters.presidio.assigned import assigned
from waystation.adapters.presidio.codes import codes
from waystation.adapters.presidio.commands import typed
from waystation.adapters.presidio.fallbacks import fallbacks
from waystation.adapters.presidio.formats import FormatRecognizer, Hit
from waystation.adapters.presidio.headers import carried
from waystation.adapters.presidio.issued import issued
from waystation.adapters.presidio.pairs import paired
from waystation.adapters.presidio.private_keys import private_keys
from waystation.adapters.presidio.sql import inserted
from waystation.adapters.presidio.structures import structured
from waystation.adapters.presidio.tables import in_columns
from waystation.patterns import proven

_LIKELY = proven(
    r"(?:\b|_)(?:secrets?|tokens?|keys?|credentials?|passwords?|passphrase|pat)\b[^\n]{0,40}?"
    r"(?<![\w/.@-])(?P<secret>(?=[\w+/=-]{0,60}\d)[A-Za-z0-9+/=_-]{20,200})(?![\w@.-])",
    re.IGNORECASE,
)
_LEAST_ENTROPY = 3.7
"""Bits a character. Identifiers of code and paths have less or lack capitals or digits in between."""


def hits_of_the_whole(text: str) -> Iterator[Hit]:
    """Secrets, and numbers in tables, that a chunk may part from what names them."""
    return chain(private_keys(text), structured(text), inserted(text), in_columns(text))


class SecretRecognizer(FormatRecognizer):
    """Finds SECRET, but for what only the whole text shows.

    Of an assignment or URL only the value is found; stand-ins (`your-key`, `***`, `$TOKEN`) stay.
    """

    TYPES = ("SECRET",)

    def hits(self, text: str) -> Iterator[Hit]:
        """Every secret in the text; the same characters may be found more than once."""
        yield from chain(
            issued(text), assigned(text), carried(text), typed(text), codes(text), paired(text), fallbacks(text)
        )
        for match in _LIKELY.finditer(text):
            if _is_random(match["secret"]):
                yield Hit("SECRET", *match.span("secret"), 0.6)


def _is_random(value: str) -> bool:
    """Whether the characters are of all kinds and evenly spread, as a generator draws them."""
    if not any(map(str.isupper, value)) or not any(map(str.islower, value)):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * log2(share) for share in shares) >= _LEAST_ENTROPY
