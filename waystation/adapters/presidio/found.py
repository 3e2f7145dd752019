"""What was found in a text, and which of several overlapping finds counts."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from waystation.patterns import proven

SECRET = "SECRET"
MASK = "\ufffc"
NAME_TYPES = frozenset({"PERSON", "LOCATION"})
_A_WORD = proven(r"\w[^\n]*\w")


@dataclass(frozen=True, slots=True)
class Found:
    """One find, in characters of the text. `type` is one of ours (`placeholders.SHORT_TYPES`)."""

    type: str
    start: int
    end: int
    score: float

    @property
    def rank(self) -> tuple[int, int, float]:
        """Higher wins: secrets before identifiers before names, then the longer, then the surer."""
        severity = 2 if self.type == SECRET else 0 if self.type in NAME_TYPES else 1
        return severity, self.end - self.start, self.score


def without_overlaps(text: str, finds: Iterable[Found]) -> tuple[Found, ...]:
    """Finds in the order of the text, none touching another's characters.

    A name that reaches into a stronger find keeps what lies outside of it; any other loser goes.
    """
    return tuple(find for group in _overlapping(finds) for find in _winners(text, group))


def _overlapping(finds: Iterable[Found]) -> Iterator[list[Found]]:
    """Groups of finds that hang together, so that a long text is not compared pair by pair."""
    group: list[Found] = []
    end = 0
    for find in sorted(finds, key=lambda find: find.start):
        if group and find.start >= end:
            yield group
            group = []
        group.append(find)
        end = max(end, find.end)
    if group:
        yield group


def _winners(text: str, group: Sequence[Found]) -> list[Found]:
    kept: list[Found] = []
    for find in sorted(group, key=lambda find: find.rank, reverse=True):
        # What is kept stands in the order of the text and does not touch: the rivals of a find are neighbours.
        first = bisect_right(kept, find.start, key=lambda other: other.end)
        last = bisect_left(kept, find.end, key=lambda other: other.start)
        if first >= last:
            kept.insert(first, find)
        elif find.type in NAME_TYPES:
            rivals = kept[first:last]
            kept[first:last] = sorted((*rivals, *_outside(text, find, rivals)), key=lambda one: one.start)
    return kept


def _outside(text: str, find: Found, rivals: Sequence[Found]) -> list[Found]:
    edges = [find.start]
    for rival in rivals:
        edges += [rival.start, rival.end]
    edges.append(find.end)
    pieces = (
        _A_WORD.search(text, start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end
    )
    return [replace(find, start=piece.start(), end=piece.end()) for piece in pieces if piece]


def masked(piece: str, finds: Sequence[Found]) -> str:
    """The piece with its finds blotted out at the same length, and looking like placeholders from outside.

    The finds are in order, and none touches another's characters.
    """
    parts: list[str] = []
    position = 0
    for find in finds:
        length = find.end - find.start
        parts += (piece[position : find.start], f"<{MASK * (length - 2)}>" if length > 2 else MASK * length)
        position = find.end
    return "".join((*parts, piece[position:]))
