"""Detects names of people whose words are joined as in file names: `Margaret_Hamilton.xlsx`, `Ada_Lovelace`.

A language model finds no name in them, so candidates are also read with blanks between the words, as a text of their
own.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction.detections import UnescapedSpan
from waystation.plugins.redaction.people import GIVEN_NAMES, NameWord

_PART = r"[^\W_]{1,60}+(?:['’][^\W\d_]{1,40}+)?+"
_JOINTS = r"(?:%20|[_~+,;./-]){1,3}+"
_TOKEN = compile_bounded(rf"(?<![^\W_]){_PART}(?:{_JOINTS}{_PART}){{0,30}}+")
_FILE = compile_bounded(
    r"\.(?:pdf|docx?|docm|odt|rtf|pages|xls[xmb]?|ods|numbers|csv|tsv|parquet|pptx?|odp|key|epub|mobi|txt|text|md|rst|tex"
    r"|html?|xhtml|mht|mhtml|eml|msg|mbox|ics|vcf|json|jsonl|ya?ml|xml|zip|png|jpe?g|gif|tiff?|heic|webp|svg"
    r"|mp[34]|m4a|wav|mov|avi|webm|log|bak)\Z",
    re.IGNORECASE,
)
_SOURCE = compile_bounded(
    r"\.(?:py|pyi|ipynb|[jt]sx?|mjs|go|rs|java|kt|scala|swift|c|cc|cpp|cs|h|hpp|rb|php|pl|lua|r|sql|sh|ps1|toml|lock)\Z",
    re.IGNORECASE,
)
"""Source files are named after what they define."""
_JOINT = compile_bounded(r"%20|[_~+,;./-]")
_CAPITALISED = compile_bounded(r"\A[^\W\d_a-z](?:[^\W\d_]{0,60}[a-zß-öø-ÿ][^\W\d_]{0,60}|['’][^\W\d_]{2,40})?\Z")
_CAMEL_JOINT = compile_bounded(r"(?<=[a-zß-öø-ÿ])(?=[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ])")
_PLAIN_JOINTS = compile_bounded(r"\A(?:%20|[_~])+\Z")
_NOUN = compile_bounded(r" [a-z]")
_FEWEST = 2


class JoinedWordSpan(NamedTuple):
    """Words that may contain a name, read with blanks between them."""

    reading: UnescapedSpan
    is_file: bool
    """Whether it ends like a file name: then Presidio alone decides whether it names a person.

    Identifiers of code have joints too, so elsewhere the lists must have one of the words.
    """


def find_joined_words(text: str, start: int, end: int) -> Iterator[JoinedWordSpan]:
    """Yield candidates that begin in this span of the text."""
    for token in _TOKEN.finditer(text, start, end):
        if _SOURCE.search(text, *token.span()):
            continue
        suffix = _FILE.search(text, *token.span())
        stem = token.start(), suffix.start() if suffix else token.end()
        words = list(_split(_JOINT, text, *stem))
        if suffix is None:
            if len(words) >= _FEWEST and _may_name_somebody(text, words):
                yield JoinedWordSpan(_spaced(text, words), is_file=False)
            continue
        parts = [part for word in words for part in _split(_CAMEL_JOINT, text, *word)]
        capitalised = [part for part in parts if _CAPITALISED.match(text[part[0] : part[1]])]
        if len(capitalised) >= _FEWEST and (
            len(parts) == len(words) or any(NameWord.from_span(text, *part).is_listed for part in capitalised)
        ):
            yield JoinedWordSpan(_spaced(text, parts), is_file=True)


def _split(joint: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for found in joint.finditer(text, start, end):
        if start < found.start():
            yield start, found.start()
        start = found.end()
    if start < end:
        yield start, end


def _may_name_somebody(text: str, words: Sequence[tuple[int, int]]) -> bool:
    """Return whether there are adjacent capitalised words, and the lists have a name among them.

    Hyphens and slashes join much else in prose, `Bose-Einstein statistics` and `Client/Server`: there it must be a
    given name, and no noun may follow.
    """
    for before, behind in pairwise(words):
        if not all(_CAPITALISED.match(text[first:last]) for first, last in (before, behind)):
            continue
        first, second = NameWord.from_span(text, *before), NameWord.from_span(text, *behind)
        if first.part in GIVEN_NAMES and first.is_unambiguous_name:
            if _PLAIN_JOINTS.match(text[before[1] : behind[0]]) or not _NOUN.match(text, words[-1][1]):
                return True
        elif _PLAIN_JOINTS.match(text[before[1] : behind[0]]) and (
            second.is_listed or (first.part in GIVEN_NAMES and second.is_unambiguous_name)
        ):
            return True
    return False


def _spaced(text: str, words: Sequence[tuple[int, int]]) -> UnescapedSpan:
    """Return the words with one blank between two, whatever separates them; it may be nothing."""
    signs, starts, ends = list[str](), list[int](), list[int]()
    last = words[0][0]
    for start, end in words:
        if signs:
            signs.append(" ")
            starts.append(last)
            ends.append(start)
        signs.append(text[start:end])
        starts += range(start, end)
        ends += range(start + 1, end + 1)
        last = end
    return UnescapedSpan("".join(signs), starts, ends)
