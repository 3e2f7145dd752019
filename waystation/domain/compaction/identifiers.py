"""Identifiers in text: what a summary is likely to lose and a later turn cannot guess."""

import re
from collections import Counter

from waystation.patterns import proven

_NAME = r"[\w.@+-]"
PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("citations", proven(r"\[[^\[\]\n:]{1,200}:\d+-\d+\]")),
    ("URLs", proven(r"https?://[^\s<>\"'`)\]}|]+")),
    (
        "paths",
        proven(
            rf"(?<![\w.@+/:<-])(?:(?:~|\.{{1,2}})?/(?:{_NAME}{{1,100}}/){{0,30}}{_NAME}{{1,100}}"
            rf"|(?:{_NAME}{{1,100}}/){{1,30}}[\w@+-]{{1,100}}\.\w{{1,8}}"
            r"|[A-Za-z]:\\[\w.\\-]{1,200})"
        ),
    ),
    (
        "codes",
        proven(
            r"[A-Z](?<!\w.)(?:[A-Z]{0,11}[-_]?\d{2,12}|(?<=E)[A-Z]{3,15}|[A-Z]{1,11}(?:_[A-Z0-9]{2,20}){1,5}"
            r"|\w{0,40}(?:Error|Exception))\b"
        ),
    ),
    (
        "ids",
        proven(
            r"[0-9a-f](?<![\w-].)(?:[0-9a-f]{7}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
            r"|(?=\d{0,39}[a-f])(?<=\d)[0-9a-f]{6,63}|(?=[a-f]{0,39}\d)(?<=[a-f])[0-9a-f]{6,63})\b"
        ),
    ),
    (
        "figures",
        proven(
            r"[$€£¥\d](?<![\w.,:/-].)(?:(?<=[$€£¥])\s?\d[\d.,]{0,20}|(?<=\d)(?:[\d.,]{0,20}\s?%"
            r"|\d{0,2}(?:,\d{3}){1,6}(?:\.\d+)?|\d{0,19}\.\d{1,20}|\d{3,19}))(?![\w/-])"
        ),
    ),
)
"""Kinds with their patterns. Every repetition is bounded, or starts at a boundary: a line may have megabytes. Each but
that of paths begins with a set of characters, and looks back after it: that is searched for ten times as quickly.
"""


def identifiers(text: str) -> dict[str, Counter[str]]:
    """Citations, URLs, paths, error codes, ids and figures of a text, with how often each occurs, by kind.

    In each kind the one mentioned last comes first, also in `most_common` among those mentioned as often.
    """
    return {
        kind: Counter(found.rstrip(".,;:") for found in reversed(pattern.findall(_searched(kind, text))))
        for kind, pattern in PATTERNS
    }


def _searched(kind: str, text: str) -> str:
    """Paths cannot be looked for quickly in everything: only in the words that have a slash."""
    return " ".join(word for word in text.split() if "/" in word or "\\" in word) if kind == "paths" else text
