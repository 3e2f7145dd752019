"""Finds larger cities by their names, for where the language model takes them for dates or firms or sees nothing."""

from collections.abc import Iterator

from waystation.adapters.presidio.found import Found
from waystation.adapters.presidio.vocabulary import PLACES
from waystation.patterns import proven

_SCORE = 0.5
"""Under the language model's: `Florence` and `Austin` are people where it says so."""
_MOST_WORDS = 4
_CAPITALISED = proven(r"(?<!\w)[^\W\d_a-z][^\W\d_]*+(?:['’-][^\W\d_]++)*+")


def known_places(text: str, start: int, end: int) -> Iterator[Found]:
    """Cities in this stretch of the text, the longest name that stands there."""
    words = [word.span() for word in _CAPITALISED.finditer(text, start, end)]
    position = start
    for first, (begin, _) in enumerate(words):
        if begin < position:
            continue
        for _, last in reversed(words[first : first + _MOST_WORDS]):
            if text[begin:last] in PLACES:
                yield Found("LOCATION", begin, last, _SCORE)
                position = last
                break
