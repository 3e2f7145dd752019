"""Puts recognised pieces of text into reading order: columns one after another, rows of tables as one line each."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import atan2, cos, sin
from statistics import median
from typing import NamedTuple

from waystation.documents.documents import CELL_SEPARATOR

_MIN_COLUMN_LINES = 3
"""Minimum lines on each side of the space between two columns of prose."""
_MIN_COLUMN_CHARACTERS = 18
"""Minimum median characters of a line of prose in a column; cells of tables have fewer."""
_MIN_COLUMN_FILL = 0.6
"""Minimum median share of its column that a line of prose fills."""
_MAX_CROSSING_SHARE = 0.4
"""Maximum share of lines, such as headings, that cross the space between two columns."""
_MIN_OVERLAP = 0.5
"""Minimum share of the lower piece's height that two pieces of one row have in common."""
_CELL_GAP = 1.6
"""Space between two pieces of a row, in heights of a line, from which they are cells."""
_PARAGRAPH_GAP = 0.9
"""Space between two rows, in heights of a line, from which they are paragraphs."""


class TextBox(NamedTuple):
    """A recognised piece of a line in an upright rectangle; coordinates in pixels, from the top left."""

    number: int
    """Its number among the pieces of its page, from 0."""
    text: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        """Height in pixels."""
        return self.bottom - self.top


Corner = tuple[float, float]


def build_page_text(pieces: Sequence[tuple[str, Sequence[Corner]]]) -> str:
    """Return the text of a page in reading order.

    Args:
        pieces: each text with the four corners of its box: top left, top right, bottom right, bottom left.
    """
    blocks = ("\n".join(_join(row) if row else "" for row in _rows(block)) for block in _blocks(_straighten(pieces)))
    return "\n\n".join(blocks)


def find_reading_order(pieces: Sequence[tuple[str, Sequence[Corner]]]) -> list[int]:
    """Return the numbers of the pieces, from 0, in the order in which `build_page_text` writes them."""
    return [one.number for block in _blocks(_straighten(pieces)) for row in _rows(block) for one in row]


def _straighten(pieces: Sequence[tuple[str, Sequence[Corner]]]) -> list[TextBox]:
    """Turn the page so that its lines are level, and return the pieces in upright rectangles."""
    said = [(number, text.strip(), corners) for number, (text, corners) in enumerate(pieces) if text.strip()]
    angles = [
        atan2(corners[1][1] - corners[0][1], corners[1][0] - corners[0][0])
        for _, _, corners in said
        if abs(corners[1][0] - corners[0][0]) > 2 * abs(corners[3][1] - corners[0][1])
    ]
    angle = median(angles) if angles else 0.0
    return [_frame(number, text, [_turn(corner, -angle) for corner in corners]) for number, text, corners in said]


def _turn(corner: Corner, angle: float) -> Corner:
    x, y = corner
    return x * cos(angle) - y * sin(angle), x * sin(angle) + y * cos(angle)


def _frame(number: int, text: str, corners: Sequence[Corner]) -> TextBox:
    xs, ys = sorted(x for x, _ in corners), sorted(y for _, y in corners)
    # A box that is not quite level would be higher than its line.
    return TextBox(number, text, xs[0], (ys[0] + ys[1]) / 2, xs[-1], (ys[-2] + ys[-1]) / 2)


def _blocks(pieces: Sequence[TextBox]) -> Iterator[Sequence[TextBox]]:
    """Yield the pieces in reading order by columns; what crosses the columns separates those above from those below."""
    gutter = _find_gutter(pieces)
    if gutter is None:
        if pieces:
            yield pieces
        return
    crossing = sorted((one for one in pieces if one.left < gutter < one.right), key=lambda one: one.top)
    rest = [one for one in pieces if not one.left < gutter < one.right]
    for one in [*crossing, None]:
        above = [other for other in rest if one is None or other.top + other.bottom < one.top + one.bottom]
        rest = [other for other in rest if other not in above]
        yield from _blocks([other for other in above if other.right <= gutter])
        yield from _blocks([other for other in above if other.left >= gutter])
        if one is not None:
            yield [one]


def _find_gutter(pieces: Sequence[TextBox]) -> float | None:
    """Return where the space between two columns of prose is; None if there are none."""
    best: tuple[int, float] | None = None
    for place in sorted({one.left for one in pieces})[1:]:
        gutter = place - 1
        left = [one for one in pieces if one.right <= gutter]
        right = [one for one in pieces if one.left >= gutter]
        crossing = len(pieces) - len(left) - len(right)
        if crossing <= _MAX_CROSSING_SHARE * len(pieces) and _is_prose(left) and _is_prose(right):
            best = min(best or (crossing, gutter), (crossing, gutter))
    return best[1] if best else None


def _is_prose(column: Sequence[TextBox]) -> bool:
    if len(column) < _MIN_COLUMN_LINES:
        return False
    width = max(one.right for one in column) - min(one.left for one in column)
    fill = median(one.right - one.left for one in column) / max(width, 1)
    return fill >= _MIN_COLUMN_FILL and median(len(one.text) for one in column) >= _MIN_COLUMN_CHARACTERS


def _rows(pieces: Sequence[TextBox]) -> Iterator[Sequence[TextBox]]:
    """Yield the pieces of each row, from left to right, from top to bottom; nothing between paragraphs."""
    rows: list[list[TextBox]] = []
    for piece in sorted(pieces, key=lambda one: one.top + one.bottom):
        if rows and _is_same_row(rows[-1], piece):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    height = median(one.height for one in pieces)
    for number, row in enumerate(rows):
        if number and min(one.top for one in row) - max(one.bottom for one in rows[number - 1]) > (
            _PARAGRAPH_GAP * height
        ):
            yield ()
        yield sorted(row, key=lambda one: one.left)


def _is_same_row(row: Sequence[TextBox], piece: TextBox) -> bool:
    last = row[-1]
    common = min(last.bottom, piece.bottom) - max(last.top, piece.top)
    apart = all(piece.left >= one.right - one.height or one.left >= piece.right - one.height for one in row)
    return apart and common >= _MIN_OVERLAP * min(last.height, piece.height)


def _join(row: Sequence[TextBox]) -> str:
    joined = row[0].text
    for one, following in pairwise(row):
        is_cell = following.left - one.right > _CELL_GAP * min(one.height, following.height)
        joined += f"{CELL_SEPARATOR if is_cell else ' '}{following.text}"
    return joined
