"""A value as a reader sees it: without characters that cannot be seen, and with the plain form of those that only look
different, so that `exam<U+200B>ple.com` and `ｅxample.com` are read like `example.com`.
"""

import unicodedata
from collections.abc import Callable

from waystation.security.confusables import UNSEEN

_LOOKALIKES = frozenset({"<wide>", "<small>", "<font>", "<noBreak>"})
"""Kinds of compatibility characters (Unicode Standard Annex 44) that stand for one plain character each."""
_HYPHENS = {0x2010: "-", 0x2011: "-"}


_BEYOND_ASCII = range(0x80, 0x20000)
"""Ideographs beyond, and private use, look like nothing else and steer nothing."""


def _plain_form(code: int) -> str | None:
    """Return the one character that this one stands for; None if it stands for itself."""
    if code not in _BEYOND_ASCII:
        return None
    character = chr(code)
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if unicodedata.decomposition(character).partition(" ")[0] not in _LOOKALIKES:
        return None
    plain = unicodedata.normalize("NFKC", character)
    return plain if len(plain) == 1 else None


class CharacterTable:
    """Replaces single characters of texts.

    A replacement is computed when its character first occurs. All 130,000 in advance would add a tenth of a second to
    the start of every command.
    """

    def __init__(self, replace: Callable[[int], str | None]) -> None:
        """Take the function that gives a character's replacement by its code point; None if the character stays."""
        self._replace = replace
        self._replacements: dict[int, str] = {}
        self._checked: set[str] = set()

    def apply(self, text: str) -> str:
        """Return the text with every character replaced that has a replacement."""
        for character in set(text) - self._checked:
            code = ord(character)
            replacement = self._replace(code)
            if replacement is not None:
                self._replacements[code] = replacement
            if code in _BEYOND_ASCII or code < 0x80:  # the rest is too many to keep
                self._checked.add(character)
        return text.translate(self._replacements)


PLAIN_FORMS = CharacterTable(lambda code: _HYPHENS.get(code) or _plain_form(code))
"""Every plain form is one character."""
_WITHOUT_UNSEEN = CharacterTable(lambda code: "" if is_unseen(chr(code)) else None)
_FOLDED = CharacterTable(lambda code: "" if is_unseen(chr(code)) else _HYPHENS.get(code) or _plain_form(code))


def is_unseen(character: str) -> bool:
    """Return whether a character cannot be seen."""
    # Some format characters, marks of annotations and of numbers in other scripts, do show; none is a part of what is
    # private.
    return character in UNSEEN or (ord(character) in _BEYOND_ASCII and unicodedata.category(character) == "Cf")


def normalize_characters(value: str) -> str:
    """The value as a reader sees it."""
    return value if value.isascii() else _FOLDED.apply(value)


def strip_invisible_characters(value: str) -> str:
    """The value without characters that cannot be seen, and else as it is."""
    return value if value.isascii() else _WITHOUT_UNSEEN.apply(value)
