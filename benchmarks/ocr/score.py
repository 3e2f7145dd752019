"""Compares recognised text with the text that was printed, character by character."""

import unicodedata

from waystation.documents.documents import parse_place_marker
from waystation.documents.readers.page_layout import CELL_SEPARATOR

_FOLDED = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-"})
"""Characters that readers take for one another, and whose confusion changes no word."""


def compute_edit_distance(one: str, other: str) -> int:
    """The least number of characters to insert, delete or replace, by Myers' algorithm with a bit for each position."""
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for place, sign in enumerate(one):
        places[sign] = places.get(sign, 0) | 1 << place
    everywhere, last = (1 << len(one)) - 1, 1 << len(one) - 1
    more, less, distance = everywhere, 0, len(one)
    for sign in other:
        equal = places.get(sign, 0)
        vertical = equal | less
        horizontal = (((equal & more) + more) ^ more) | equal
        grows, shrinks = less | ~(horizontal | more) & everywhere, more & horizontal
        distance += bool(grows & last) - bool(shrinks & last)
        grows, shrinks = (grows << 1 | 1) & everywhere, (shrinks << 1) & everywhere
        more, less = shrinks | ~(vertical | grows) & everywhere, grows & vertical
    return distance


def normalize(text: str) -> str:
    """Text with single spaces, without the marks of places and cells that reading adds."""
    lines = [line for line in text.splitlines() if parse_place_marker(line) is None]
    folded = unicodedata.normalize("NFKC", " ".join(lines)).translate(_FOLDED)
    return " ".join(folded.replace(CELL_SEPARATOR.strip(), " ").split())


def count_wrong_characters(printed: str, read: str) -> int:
    """The number of wrong characters of a page, at most all of them."""
    said = normalize(printed)
    return min(len(said), compute_edit_distance(said, normalize(read)))
