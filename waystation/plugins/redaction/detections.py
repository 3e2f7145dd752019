"""Detections in a text, resolution of overlaps, and the ways to read a text.

A text is read as a reader sees it, without invisible characters and with the plain form of lookalikes, so that
`exam<U+200B>ple.com` and `ｅxample.com` are found like `example.com`; escaped characters are decoded, and sentences in
JSON values are read by themselves.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from waystation.kernel.patterns import compile_bounded
from waystation.privacy.policy import NAME_TYPES
from waystation.security.normalization import PLAIN_FORMS, is_unseen
from waystation.security.placeholders import SECRET

MASK = "\ufffc"
_A_WORD = compile_bounded(r"\w[^\n]*\w")


class Detection(NamedTuple):
    """A detection, in characters of the text. `type` is one of ours (`placeholders.SHORT_TYPES`)."""

    type: str
    start: int
    end: int
    score: float

    @property
    def rank(self) -> tuple[int, int, float]:
        """Higher wins: secrets before identifiers before names, then the longer, then the more certain."""
        severity = 2 if self.type == SECRET else 0 if self.type in NAME_TYPES else 1
        return severity, self.end - self.start, self.score


def resolve_overlaps(text: str, finds: Iterable[Detection]) -> tuple[Detection, ...]:
    """Return the detections in the order of the text, without overlaps.

    Secrets that overlap are joined: each is a part of one secret. A name that overlaps a stronger detection keeps the
    part outside of it; any other loser is dropped.
    """
    return tuple(find for group in _overlapping(finds) for find in _winners(text, group))


_TOKEN, _WORD_OR_MORE = compile_bounded(r"[\w-]++"), compile_bounded(r"[^\s\"'`<>,;()\[\]{}]++")
_DIGIT, _LETTER = compile_bounded(r"\d"), compile_bounded(r"[^\W\d_]")
_MIN_REPEATED_CHARACTERS = 10
"""Minimum characters: a shorter secret may also be a word of the text."""


def find_repeated_secrets(text: str, finds: Iterable[Detection]) -> Iterator[Detection]:
    """Yield further occurrences of secrets without the context that revealed them: a password of a setting, in the log
    below.
    """
    values = {text[find.start : find.end] for find in finds if find.type == SECRET}
    known = {value for value in values if len(value) >= _MIN_REPEATED_CHARACTERS and _is_mixed(value)}
    for pattern in (_TOKEN, _WORD_OR_MORE) if known else ():
        for token in pattern.finditer(text):
            for value in {token[0], token[0].rstrip(".:!?"), token[0].rpartition("=")[2]} & known:
                start = token.start() + token[0].rindex(value)
                yield Detection(SECRET, start, start + len(value), 0.5)


def _is_mixed(value: str) -> bool:
    return _DIGIT.search(value) is not None and _LETTER.search(value) is not None


_START = attrgetter("start")


def _overlapping(finds: Iterable[Detection]) -> Iterator[list[Detection]]:
    """Yield groups of connected detections, so that a long text is not compared pair by pair."""
    group: list[Detection] = []
    end = 0
    for find in sorted(finds, key=_START):
        if group and find.start >= end:
            yield group
            group = []
        group.append(find)
        end = max(end, find.end)
    if group:
        yield group


def _winners(text: str, group: Sequence[Detection]) -> list[Detection]:
    kept: list[Detection] = []
    for find in sorted(_united(group), key=lambda find: find.rank, reverse=True):
        # Kept detections are in order and disjoint, so the rivals of a detection are its neighbours.
        first = bisect_right(kept, find.start, key=lambda other: other.end)
        last = bisect_left(kept, find.end, key=lambda other: other.start)
        if first >= last:
            kept.insert(first, find)
        elif find.type in NAME_TYPES:
            rivals = kept[first:last]
            kept[first:last] = sorted((*rivals, *_outside(text, find, rivals)), key=lambda one: one.start)
    return kept


def _united(group: Sequence[Detection]) -> list[Detection]:
    """Return the group, which is in the order of the text, with overlapping secrets joined."""
    united: list[Detection] = []
    secrets: list[Detection] = []
    for find in group:
        if find.type != SECRET:
            united.append(find)
        elif secrets and find.start < secrets[-1].end:
            last = secrets[-1]
            secrets[-1] = last._replace(end=max(last.end, find.end), score=max(last.score, find.score))
        else:
            secrets.append(find)
    return united + secrets


def _outside(text: str, find: Detection, rivals: Sequence[Detection]) -> list[Detection]:
    edges = [find.start]
    for rival in rivals:
        edges += [rival.start, rival.end]
    edges.append(find.end)
    pieces = (
        _A_WORD.search(text, start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end
    )
    return [find._replace(start=piece.start(), end=piece.end()) for piece in pieces if piece]


def mask_detections(piece: str, finds: Sequence[Detection]) -> str:
    """Return the piece with its detections replaced at the same length by text that looks like placeholders.

    The detections are in order and disjoint.
    """
    parts: list[str] = []
    position = 0
    for find in finds:
        length = find.end - find.start
        parts += (piece[position : find.start], f"<{MASK * (length - 2)}>" if length > 2 else MASK * length)
        position = find.end
    return "".join((*parts, piece[position:]))


_MAYBE_A_SPACE = compile_bounded("(?<=\\w)\u200b+(?=\\w)")


@dataclass(frozen=True)
class NormalizedView:
    """One way to read a text. `places`: position of each character in it; None if both have the same length."""

    text: str
    places: Sequence[int] | None = None

    def to_original_range(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the text for this span of the view, including invisible characters within it."""
        return (start, end) if self.places is None else (self.places[start], self.places[end - 1] + 1)


_DASH_IN_NUMBER = compile_bounded(r"(?<=\d)[\u2010-\u2014\u2212](?=\d)")


def iter_normalized_views(text: str) -> Iterator[NormalizedView]:
    """Yield the ways to read a text: one for nearly all texts.

    A zero-width space can hide in a word or separate two, so a text that has one between letters is read both ways.
    """
    if text.isascii():
        yield NormalizedView(text)
        return
    plain = _DASH_IN_NUMBER.sub("-", PLAIN_FORMS.apply(text))
    unseen = set(filter(is_unseen, set(plain)))
    if not unseen:
        yield NormalizedView(plain)
        return
    seen = [place for place, character in enumerate(plain) if character not in unseen]
    yield NormalizedView("".join(plain[place] for place in seen), seen)
    if _MAYBE_A_SPACE.search(plain):
        yield NormalizedView(plain)


_ESCAPE = compile_bounded(
    r"%(?P<hex>[2-7][0-9A-Fa-f])|&(?P<name>quot|apos|amp|#34|#39|#58|#61|#x2[27]|#x3[AaDd]);|\\u00(?P<unicode>[2-7][0-9A-Fa-f])"
    r"|\\{2,8}+(?=[\"'])|\\(?=[_*])"
)
_NAMED_SIGNS = {"quot": '"', "apos": "'", "amp": "&", "#34": '"', "#39": "'", "#58": ":", "#61": "="}
_BEFORE_AN_ESCAPE, _BEHIND_AN_ESCAPE = 200, 400
"""Characters that are read together with an escape."""


class UnescapedSpan(NamedTuple):
    """A span of a text after decoding, with the characters that URLs, HTML and JSON escape."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    """End position of each character in the original text."""

    def to_original_range(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original text."""
        return self.starts[start], self.ends[end - 1]


def iter_unescaped_spans(text: str) -> Iterator[UnescapedSpan]:
    """Yield spans of a text around escaped characters; none in nearly all texts."""
    start = end = 0
    escapes: list[re.Match[str]] = []
    for escape in _ESCAPE.finditer(text):
        if escapes and escape.start() - _BEFORE_AN_ESCAPE > end:
            yield _unpacked(text, start, end, escapes)
            escapes = []
        if not escapes:
            start = max(end, escape.start() - _BEFORE_AN_ESCAPE)
        escapes.append(escape)
        end = min(len(text), escape.end() + _BEHIND_AN_ESCAPE)
    if escapes:
        yield _unpacked(text, start, end, escapes)


def _unpacked(text: str, start: int, end: int, escapes: Sequence[re.Match[str]]) -> UnescapedSpan:
    signs: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for escape in escapes:
        plain = range(start, escape.start())
        signs.append(text[start : escape.start()])
        starts += plain
        ends += [place + 1 for place in plain]
        if sign := _sign(escape):
            signs.append(sign)
            starts.append(escape.start())
            ends.append(escape.end())
        start = escape.end()
    rest = range(start, end)
    return UnescapedSpan("".join((*signs, text[start:end])), [*starts, *rest], [*ends, *[place + 1 for place in rest]])


def _sign(escape: re.Match[str]) -> str:
    """Return the decoded character; empty for an escape that only protects the next one."""
    if written := escape["hex"] or escape["unicode"]:
        return chr(int(written, 16))
    name = escape["name"]
    return "" if name is None else _NAMED_SIGNS.get(name) or chr(int(name[2:], 16))


_STRING = compile_bounded(r"(?<!\\)\"(?P<inside>(?:[^\"\\\n]|\\.)*+)\"(?P<key>\s{0,80}+:)?")
_ESCAPE_OF_JSON = compile_bounded(r"\\(?:u(?P<number>[0-9a-fA-F]{4})|(?P<sign>.))")
_SIGNS_OF_JSON = {"n": "\n", "r": "\n", "t": "\t", "b": " ", "f": "\n"}
_LOWER_WORD = compile_bounded(r"(?<![\w-])[^\W\d_A-Z]{2}")
_MIN_BLANKS = 2
_MAX_JSON_DEPTH = 3
"""Maximum depth of JSON within JSON strings."""


def extract_json_prose(text: str, layers: int = _MAX_JSON_DEPTH) -> Iterator[UnescapedSpan]:
    """Yield JSON values that have a sentence, decoded; also from JSON within a value."""
    end, in_value, of_array = 0, False, False
    for string in _STRING.finditer(text):
        gap = "".join(text[end : string.start()].split())
        of_array = gap.endswith("[") or (of_array and in_value and gap == ",")
        in_value = string["key"] is None and (of_array or (in_value and gap == ""))
        if in_value:
            yield from _prose_of(text, *string.span("inside"), layers)
        end, in_value = string.end(), in_value or string["key"] is not None


def _prose_of(text: str, start: int, end: int, layers: int) -> Iterator[UnescapedSpan]:
    if text.count(" ", start, end) + text.count("\\n", start, end) < _MIN_BLANKS:
        return
    value = _unescaped_json(text, start, end)
    inner = extract_json_prose(value.text, layers - 1) if layers and "\\" in text[start:end] else ()
    for one in inner:
        spans = [value.to_original_range(first, last) for first, last in zip(one.starts, one.ends, strict=True)]
        yield UnescapedSpan(one.text, [first for first, _ in spans], [last for _, last in spans])
    if value.text[:1] not in {"{", "["} and _LOWER_WORD.search(value.text):
        yield value


def _unescaped_json(text: str, start: int, end: int) -> UnescapedSpan:
    signs: list[str] = []
    starts, ends = list[int](), list[int]()
    for escape in (*_ESCAPE_OF_JSON.finditer(text, start, end), None):
        plain = range(start, escape.start() if escape else end)
        signs.append(text[plain.start : plain.stop])
        starts += plain
        ends += [place + 1 for place in plain]
        if escape:
            signs.append(_sign_of_json(escape))
            starts.append(escape.start())
            ends.append(escape.end())
            start = escape.end()
    return UnescapedSpan("".join(signs), starts, ends)


def _sign_of_json(escape: re.Match[str]) -> str:
    """Return the decoded character. Surrogate halves are no letter."""
    if escape["number"] is None:
        return _SIGNS_OF_JSON.get(escape["sign"], escape["sign"])
    number = int(escape["number"], 16)
    return MASK if 0xD800 <= number < 0xE000 else chr(number)


_JOINT = compile_bounded(
    r"""
      (?<=[^\W_])_{1,3}(?=[(+]?\d(?:[ ._()/-]{0,2}\d){6})
    | (?<=\d{4})_(?!\d)
    | (?<=[a-z])[-./](?=(?:[2-9]\d\d([.-])\d{3}\1\d{4}|\(\d{3}\)\ ?\d{3}-\d{4}|\d{3}-\d\d-\d{4})(?!\w|[.-]\d))
    """,
    re.VERBOSE,
)
_GROUPS = compile_bounded(
    r"(?<!\d)(?<!\d[_-])(?:\d{4}_\d{4}_\d{4}_\d{4}|\d{4}_\d{6}_\d{5}|\d{3}_\d{2,3}_\d{4})(?!\d|_\d)"
)


def blank_number_joints(text: str) -> str:
    """Return a text of the same length, with the characters that join numbers to words replaced: `run_212-555-0147` is
    one word to a pattern.
    """
    return _JOINT.sub(_blanks, _GROUPS.sub(_hyphened, text) if "_" in text else text)


def _blanks(joint: re.Match[str]) -> str:
    return " " * len(joint[0])


def _hyphened(groups: re.Match[str]) -> str:
    return groups[0].replace("_", "-")
