"""Puts the characters of a PDF's page into reading order where the library has the letters of one glyph reversed.

Runs in children only.
"""

import ctypes
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol, cast

from pypdfium2 import raw

from waystation.kernel.patterns import compile_bounded

_RIGHT_TO_LEFT = compile_bounded(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_JOINED = frozenset(
    unicodedata.normalize("NFKC", chr(code)) for code in (*range(0xFB50, 0xFE00), *range(0xFE70, 0xFEFD))
)
"""What the one-glyph forms of Arabic stand for, in reading order."""


class _Functions(Protocol):
    def FPDFText_GetCharOrigin(self, page: object, index: int, x: object, y: object) -> int: ...


_PDFIUM = cast("_Functions", raw)


def has_right_to_left_letters(text: str) -> bool:
    """Whether a text contains letters that are written right to left."""
    return _RIGHT_TO_LEFT.search(text) is not None


def iter_reading_order(page: object, signs: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of a page's characters in reading order.

    The library reverses right-to-left text character by character, and treats the letters of one glyph, such as lam and
    alef, as characters. It has already corrected those whose glyph has a character of its own.

    Args:
        page: The library's handle of the page's text.
        signs: The characters in the order of the library.
    """
    if not any(map(_RIGHT_TO_LEFT.match, signs)):
        yield from range(len(signs))
        return
    origins = [
        _find_origin(page, index) if _RIGHT_TO_LEFT.match(sign) else (float(index), "")
        for index, sign in enumerate(signs)
    ]
    for _, group in groupby(range(len(signs)), lambda index: origins[index]):
        indices = [*group]
        letters = "".join(signs[index] for index in indices)
        is_glyph = len(letters) > 1 and letters.isalpha()
        is_reversed = is_glyph and (letters not in _JOINED or letters[::-1] in _JOINED)
        yield from reversed(indices) if is_reversed else indices


def _find_origin(page: object, index: int) -> tuple[float, float]:
    x, y = ctypes.c_double(), ctypes.c_double()
    _PDFIUM.FPDFText_GetCharOrigin(page, index, x, y)
    return x.value, y.value
