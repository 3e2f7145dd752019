"""Cuts a conversation that is too long for the model that condenses it into parts that it can read."""

from collections.abc import Sequence

from waystation.domain.compaction.tokens import estimate_text


def parts_of(texts: Sequence[str], room: int) -> tuple[str, ...]:
    """The texts in order, joined by line ends, in as few parts of at most `room` tokens as go one after another.

    A text that alone is over the room is cut by characters. One part where everything fits.
    """
    parts: list[str] = []
    part: list[str] = []
    size = 0
    for piece in (piece for text in texts for piece in _pieces(text, room)):
        tokens = estimate_text(piece) + 1
        if part and size + tokens > room:
            parts.append("\n".join(part))
            part, size = [], 0
        part.append(piece)
        size += tokens
    return (*parts, "\n".join(part))


def part_length(length: tuple[int, int], parts: int, room: int) -> tuple[int, int]:
    """Least and most tokens of the summary of one of so many parts: together they are no longer than the room, so
    that joining them is one more call and never again parts.
    """
    most = max(1, min(length[1], room // parts))
    return min(length[0], most), most


def _pieces(text: str, room: int) -> list[str]:
    size = estimate_text(text) + 1
    if size <= room:
        return [text]
    # By halves: how many tokens a character has may differ from place to place.
    half = len(text) // 2
    return [*_pieces(text[:half], room), *_pieces(text[half:], room)] if half else [text]
