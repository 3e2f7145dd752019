"""Reads numbers that are spelled as words, such as `twenty-one`."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from waystation.documents.figure_units import SCALES
from waystation.kernel.patterns import compile_bounded

MAX_SPELLED_NUMBERS = 5_000
"""Maximum spelled numbers of one text that are read, and as many words such as `first`."""
_SPELLED = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_FOREIGN = {
    "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10, "elf": 11,
    "zwölf": 12, "zwanzig": 20, "dreißig": 30, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "sept": 7, "huit": 8,
    "neuf": 9, "dix": 10, "onze": 11, "douze": 12, "vingt": 20, "trente": 30, "dos": 2, "tres": 3, "cuatro": 4,
    "cinco": 5, "siete": 7, "ocho": 8, "nueve": 9, "diez": 10, "veinte": 20, "treinta": 30,
}  # fmt: skip
_SMALL = {
    **{word: number for number, word in enumerate(_SPELLED)},
    **{word: 10 * number for number, word in enumerate(_TENS, 2)},
    **_FOREIGN,
    "dozen": 12,
}
_ORDINAL_WORDS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    *("eleventh", "twelfth"),
)
_ORDINALS = {word: number for number, word in enumerate(_ORDINAL_WORDS, 1)}
_FRACTIONS = {"half": 50.0, "quarter": 25.0, "halved": 50.0}
_NUMBER_WORD = "|".join(sorted([*_SMALL, *SCALES, "hundred"], key=len, reverse=True))
_NUMBER = compile_bounded(
    rf"(?<![^\W_])(?:{_NUMBER_WORD})(?:(?:[ -]| and )(?:{_NUMBER_WORD})(?![^\W_])){{0,8}}(?![^\W_])", re.IGNORECASE
)
_WORD = compile_bounded(rf"(?<![^\W_])(?:{'|'.join([*_ORDINALS, *_FRACTIONS])})(?![^\W_])", re.IGNORECASE)


class SpelledNumber(NamedTuple):
    """A number of words, with its place."""

    text: str
    start: int
    end: int
    value: float
    kind: str
    """`number`, `ordinal`, or `share`: a percentage, as of `half`."""


def iter_spelled_numbers(text: str) -> Iterator[SpelledNumber]:
    """Yield the numbers that are spelled as words; first those of `twenty-one`, then those of `first` and `half`."""
    for match in islice(_NUMBER.finditer(text), MAX_SPELLED_NUMBERS):
        value = _read(match[0])
        # A scale alone belongs to the digits before it: `5 million`.
        if value is not None:
            yield SpelledNumber(match[0], match.start(), match.end(), float(value), "number")
    for match in islice(_WORD.finditer(text), MAX_SPELLED_NUMBERS):
        word = match[0].casefold()
        value, kind = (_ORDINALS[word], "ordinal") if word in _ORDINALS else (_FRACTIONS[word], "share")
        yield SpelledNumber(match[0], match.start(), match.end(), float(value), kind)


def _read(written: str) -> int | None:
    total = current = 0
    words = [word for word in written.casefold().replace("-", " ").split() if word != "and"]
    if not words or words[0] in SCALES or words[0] == "hundred":
        return None
    for word in words:
        if word == "hundred":
            current = max(1, current) * 100
        elif word in SCALES:
            total, current = total + max(1, current) * SCALES[word], 0
        elif word == "dozen":
            current = max(1, current) * 12
        else:
            current += _SMALL[word]
    return total + current
