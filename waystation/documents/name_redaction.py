"""Redacts private values in names of files, folders, sessions and pages.

Names join their words by `_`, `-`, `.` and other characters, and a value between two joints is often found only without
them, or only with them. So a name is read in several ways, and what any of them finds is replaced.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from waystation.documents.documents import parse_place_marker
from waystation.kernel.patterns import compile_bounded
from waystation.privacy.policy import (
    NAME_TYPES,
    PLACEHOLDER_PATTERN,
    RedactionResult,
    Span,
    TextDestination,
    with_placeholders,
)
from waystation.privacy.ports import Redactor

SUFFIX = compile_bounded(r"\.[A-Za-z][A-Za-z0-9]{0,5}\Z")
_JOINTS: Mapping[int, int] = str.maketrans("_-/", "   ")
"""Between words of a file name: a language model finds no one in `interview_Ada_Lovelace`."""
_RARER_JOINTS: Mapping[int, int] = str.maketrans("_-/.~+,;", "        ")
"""Also those that occur within numbers and addresses."""
_BLANK = "%20"
_DATE = r"(?:19|20)\d{2}([-._ ]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])(?!\d)"
_TIME = r"(?:[-._T ][0-2]\d[-._: h]?[0-5]\d(?:[-._: m]?[0-5]\d)?(?!\d))?"
_SIGNS = "$+("
_WORD = compile_bounded(
    rf"{PLACEHOLDER_PATTERN.pattern}|(?<!\d){_DATE}{_TIME}|[{_SIGNS}]{{0,3}}[^\W_]++(?:={{1,2}}(?!\w))?"
)
"""A date is one word: a part of it and what follows would look like another number."""
_DIGIT = compile_bounded(r"\d")
_CHOSEN = compile_bounded(
    r"\A\[(?!page \d{1,6}(?: \(recognised from a picture, confidence [\d.]{4}\))?\]|slide \d{1,6}\])"
)
_MAX_WORDS = 8
"""Maximum words of a part that does not reach the end of the name: an IPv6 address has the most."""
_MIN_DIGITS, _MIN_CHARACTERS = 6, 16
"""Minimum digits of an identifier, and minimum characters of a secret with at least one digit."""
_JOINT_OF_VALUE = r"(?:[_.~+,;=#:!({\[ -]{1,3}|%20)"
_LABELLED = compile_bounded(
    r"(?:pass(?:word|wort|wd|code|phrase)?s?|pwds?|pws?|psk|mdp|kennwort|contraseña|senha|wachtwoord|secrets?|tokens?"
    r"|cred(?:ential)?s?|logins?|keys?)\d{0,2}"
    rf"(?=(?:{_JOINT_OF_VALUE}[a-z]{{2,12}}){{0,2}}{_JOINT_OF_VALUE}"
    r"(?P<value>(?P<word>[^\s_.~,;()\[\]{}<>-]{6,200})[^\n]{0,400}))",
    re.IGNORECASE,
)
"""Words that label a secret: `Pass-…`, `api_key_…`, `password for kim …`."""
_LOOKS_DRAWN = compile_bounded(
    r"[A-Za-z]\d{1,8}[A-Za-z]\D{0,200}?(?<=[A-Za-z])\d{1,8}[A-Za-z]|(?=\D{0,60}\d)[^!#$%^*?@]{1,60}[!#$%^*?@]"
)
"""Digits between letters twice, as in no word, date or version, or a digit and a special character."""
_ASSIGNS = "password="
"""Recognisers take what follows it for a secret."""
_PART_END = "\n\n"
_ROUNDS = 3


class _Reading(NamedTuple):
    """One way to read a name. `places`: position of each character in the name; -1 if it is not in it."""

    text: str
    places: Sequence[int]


@dataclass(frozen=True)
class _Find:
    start: int
    end: int
    span: Span

    @property
    def rank(self) -> tuple[int, int]:
        """Secrets before identifiers before names of people and places, then the longer one."""
        severity = 2 if self.span.type == "SECRET" else 0 if self.span.type in NAME_TYPES else 1
        return severity, self.end - self.start


def replace_separators(name: str, joints: Mapping[int, int] = _JOINTS) -> str:
    """Replace the joints in a name by spaces, at the same length. Placeholders stay unchanged."""
    parts: list[str] = []
    position = 0
    for found in PLACEHOLDER_PATTERN.finditer(name):
        parts += (name[position : found.start()].translate(joints), found[0])
        position = found.end()
    return "".join((*parts, name[position:].translate(joints)))


async def redact_names(
    names: Sequence[str], redactor: Redactor, tenant: str, destination: TextDestination
) -> list[str]:
    """Return the names as they may be shown at this place. Redacting them again finds nothing.

    The place must not be that of titles, whose spans are not of the text.

    Raises:
        RedactionFailed: a name could not be redacted.
    """
    shown = dict.fromkeys(names, "")
    waiting = {name: name for name in shown}
    for _ in range(_ROUNDS):
        finds = await _find_in_names(list(waiting.values()), redactor, tenant, destination)
        found = dict(zip(waiting, finds, strict=True))
        shown |= {name: _replace_in_name(waiting[name], spans) for name, spans in found.items()}
        waiting = {name: shown[name] for name, spans in found.items() if spans}
        if not waiting:
            break
    for name, text in waiting.items():  # another reading might always find more, so what remains is replaced completely
        shown[name] = next((one[0] for one in PLACEHOLDER_PATTERN.finditer(text)), "")
    return [shown[name] for name in names]


async def redact_document_text(
    text: str, redactor: Redactor, tenant: str, destination: TextDestination
) -> RedactionResult:
    """Redact a document's text.

    Names in its place markers (`[sheet …]`) are also read as `redact_names` reads file names.

    Raises:
        RedactionFailed: the text could not be redacted.
    """
    (redacted,) = await redactor.redact([text], destination, tenant)
    named = [] if redacted.redaction_failed else list(_names_of_places(text))
    if not named:
        return redacted
    finds = [_Find(span.start, span.end, span) for span in redacted.spans]
    for (start, _), spans in zip(
        named, await _find_in_names([name for _, name in named], redactor, tenant, destination), strict=True
    ):
        finds += [_Find(start + span.start, start + span.end, span) for span in spans]
    if len(finds) == len(redacted.spans):
        return redacted
    whole = with_placeholders(text, [_one_of(group) for group in _groups(finds)])
    return whole.replace(languages_without_names=redacted.languages_without_names)


def _names_of_places(text: str) -> Iterator[tuple[int, str]]:
    """Yield the names that someone chose, and where they begin; not page numbers."""
    start = 0
    for line in text.split("\n") if "[" in text else ():
        if _CHOSEN.search(line) and (name := parse_place_marker(line)) is not None:
            yield start + line.index(name), name
        start += len(line) + 1


async def _find_in_names(
    names: Sequence[str], redactor: Redactor, tenant: str, destination: TextDestination
) -> Sequence[Sequence[Span]]:
    readings = [list(_readings(name)) for name in names]
    texts = [reading.text for each in readings for reading in each]
    results = iter(await redactor.redact(texts, destination, tenant)) if texts else iter(())
    return [
        _united(name, [(reading, next(results)) for reading in each])
        for name, each in zip(names, readings, strict=True)
    ]


def _readings(name: str) -> Iterator[_Reading]:
    """Yield the readings: with and without the suffix, since `.eml` hides that `a@example.org.eml` is an address, and
    `.org` is not a suffix; both with spaces for joints, and without suffix for rarer joints; what a word in it labels
    as a secret; and the parts between two joints.
    """
    stem = SUFFIX.sub("", name)
    for text in dict.fromkeys(
        (name, stem, replace_separators(name), replace_separators(stem), replace_separators(stem, _RARER_JOINTS))
    ):
        yield _Reading(text, range(len(text)))
    if _BLANK in stem:
        yield _with_blanks(stem)
    yield from _assigned(stem)
    parts = list(dict.fromkeys(_parts(name, len(stem))))
    if parts:
        text = _PART_END.join(name[start:end] for start, end in parts)
        places = [place for start, end in parts for place in (*range(start, end), *(-1 for _ in range(len(_PART_END))))]
        yield _Reading(text, places[: len(text)])


def _assigned(stem: str) -> Iterator[_Reading]:
    """Yield what follows a word for secrets and looks like one, as if it were assigned to a password."""
    without_placeholders = PLACEHOLDER_PATTERN.sub(lambda found: " " * len(found[0]), stem)
    text, places = "", list[int]()
    for label in _LABELLED.finditer(without_placeholders):
        if _LOOKS_DRAWN.search(label["word"]):
            for part in ("word", "value"):  # `value` may look like code: `Tr0ub4dor.tar`
                text += f"{_ASSIGNS}{label[part]}{_PART_END}"
                places += (*(-1 for _ in _ASSIGNS), *range(*label.span(part)), *(-1 for _ in _PART_END))
    if text:
        yield _Reading(text, places)


def _with_blanks(stem: str) -> _Reading:
    """Read the name as before it was put into an address: a space for each `%20`."""
    text, places = "", list[int]()
    position = 0
    for word in stem.split(_BLANK):
        text += f"{word} "
        places += (*range(position, position + len(word)), -1)
        position += len(word) + len(_BLANK)
    return _Reading(replace_separators(text[:-1], _RARER_JOINTS), places[:-1])


def _parts(name: str, end_of_stem: int) -> Iterator[tuple[int, int]]:
    """Yield sequences of whole words that may be an identifier or a secret."""
    words = [word.span() for word in _WORD.finditer(name, 0, end_of_stem)]
    for first, (word, _) in enumerate(words):
        ends = {end for _, end in words[first : first + _MAX_WORDS]} | {words[-1][1]}
        for start, end in product(_starts(name, word), sorted(ends)):
            part = name[start:end]
            digits = len(_DIGIT.findall(part))
            if digits >= _MIN_DIGITS or (digits and len(part) >= _MIN_CHARACTERS):
                yield start, end


def _starts(name: str, word: int) -> Iterator[int]:
    """Yield starts with the characters before a word that may belong to it or be a joint: `call++49…`."""
    while name[word] in _SIGNS:
        yield word
        word += 1
    yield word


def _united(name: str, results: Sequence[tuple[_Reading, RedactionResult]]) -> list[Span]:
    """Return what all readings found, as positions in the name; overlapping finds become the one that counts most."""
    finds: list[_Find] = []
    for reading, result in results:
        for span in result.spans:
            if result.redaction_failed:
                return [span.replace(start=0, end=len(name))]
            finds += _in_name(reading, span)
    return [_one_of(group) for group in _groups(finds)]


def _groups(finds: Iterable[_Find]) -> list[list[_Find]]:
    """Group finds that overlap, in the order of the text."""
    groups: list[list[_Find]] = []
    end = -1
    for find in sorted(finds, key=lambda one: one.start):
        if find.start >= end:
            groups.append([])
        groups[-1].append(find)
        end = max(end, find.end)
    return groups


def _in_name(reading: _Reading, span: Span) -> Iterator[_Find]:
    start = None
    places = [*reading.places[span.start : span.end], -1]
    for before, place in zip([-1, *places], places, strict=False):
        if start is not None and place != before + 1:
            yield _Find(start, before + 1, span)
            start = None
        if start is None and place >= 0:
            start = place


def _one_of(group: Sequence[_Find]) -> Span:
    best = max(group, key=lambda one: one.rank)
    end = max(one.end for one in group)
    return best.span.replace(start=group[0].start, end=end)


def _replace_in_name(name: str, spans: Sequence[Span]) -> str:
    return with_placeholders(name, spans).text if spans else name
