"""Identifiers in text: what a summary is likely to lose and a later turn cannot guess."""

import re
from collections import Counter

_NAME = r"[\w.@+-]"
PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("citations", re.compile(r"\[[^\[\]\n:]{1,200}:\d+-\d+\]")),
    ("URLs", re.compile(r"\bhttps?://[^\s<>\"'`)\]}|]+")),
    (
        "paths",
        re.compile(
            rf"(?<![\w.@+/:<-])(?:(?:~|\.{{1,2}})?/(?:{_NAME}{{1,100}}/){{0,30}}{_NAME}{{1,100}}"
            rf"|(?:{_NAME}{{1,100}}/){{1,30}}[\w@+-]{{1,100}}\.\w{{1,8}}"
            r"|[A-Za-z]:\\[\w.\\-]{1,200})"
        ),
    ),
    (
        "codes",
        re.compile(
            r"\b(?:[A-Z]{1,12}[-_]?\d{2,12}|E[A-Z]{3,15}|[A-Z]{2,12}(?:_[A-Z0-9]{2,20}){1,5}"
            r"|[A-Z]\w{0,40}(?:Error|Exception)|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b"
        ),
    ),
    (
        "figures",
        re.compile(
            r"(?<![\w.,:/-])(?:[$€£¥]\s?\d[\d.,]{0,20}|\d[\d.,]{0,20}\s?%|\d{1,3}(?:,\d{3}){1,6}(?:\.\d+)?"
            r"|\d{1,20}\.\d{1,20}|\d{4,20})(?![\w/-])"
        ),
    ),
)
"""Kinds with their patterns. Every repetition is bounded, or starts at a boundary: a line may have megabytes."""


def identifiers(text: str) -> dict[str, Counter[str]]:
    """Citations, URLs, paths, error codes and figures of a text, with how often each occurs, by kind."""
    return {kind: Counter(found.rstrip(".,;:") for found in pattern.findall(text)) for kind, pattern in PATTERNS}
