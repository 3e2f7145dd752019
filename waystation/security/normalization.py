"""A value as a reader sees it: without characters that cannot be seen, and with the plain form of those that only look
different, so that `exam<U+200B>ple.com` and `ｅxample.com` are read like `example.com`.
"""

import unicodedata

from waystation.security.confusables import UNSEEN

_LOOKALIKES = frozenset({"<wide>", "<small>", "<font>", "<noBreak>"})
"""Kinds of compatibility characters (Unicode Standard Annex 44) that stand for one plain character each."""
_HYPHENS = {0x2010: "-", 0x2011: "-"}


def _plain_form(character: str) -> str | None:
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if unicodedata.decomposition(character).partition(" ")[0] not in _LOOKALIKES:
        return None
    plain = unicodedata.normalize("NFKC", character)
    return plain if len(plain) == 1 else None


_BEYOND_ASCII = range(0x80, 0x20000)
"""Ideographs beyond, and private use, look like nothing else and steer nothing."""
_FORMATS = (number for number in _BEYOND_ASCII if unicodedata.category(chr(number)) == "Cf")
"""Some of them, marks of annotations and of numbers in other scripts, do show; none is a part of what is private."""
_UNSEEN = dict.fromkeys((*map(ord, UNSEEN), *_FORMATS), "")
PLAIN_FORMS = {number: form for number in _BEYOND_ASCII if (form := _plain_form(chr(number))) is not None} | _HYPHENS
"""A table for `str.translate`; every plain form is one character."""
_FOLDED = PLAIN_FORMS | _UNSEEN
UNSEEN_CHARACTERS = frozenset(map(chr, _UNSEEN))
"""Their set is asked ten times faster than a pattern of them."""


def normalize_characters(value: str) -> str:
    """The value as a reader sees it."""
    return value if value.isascii() else value.translate(_FOLDED)


def strip_invisible_characters(value: str) -> str:
    """The value without characters that cannot be seen, and else as it is."""
    return value if value.isascii() else value.translate(_UNSEEN)
