"""Characters that can be mistaken for those of a tag, and characters that are invisible.

Source: `confusables.toml`, which `make lookalikes` generates from Unicode's tables.
"""

import tomllib
from importlib import resources

_TABLES = tomllib.loads((resources.files(__package__) / "confusables.toml").read_text(encoding="utf-8"))


def _signs(written: str) -> frozenset[str]:
    """Parse hexadecimal code points and ranges of them."""
    ends = [[int(end, 16) for end in one.split("-")] for one in written.split()]
    return frozenset(chr(code) for first_last in ends for code in range(first_last[0], first_last[-1] + 1))


READINGS: dict[str, tuple[str, ...]] = {
    sign: tuple(letters.split()) for letters, signs in _TABLES["readings"].items() for sign in _signs(signs)
}
"""Lower-case ASCII letters that a character may be mistaken for, with `m` as `rn`. Characters that decompose to their
letter (NFKD) are not listed.
"""
OPENING = _signs(_TABLES["opening"])
"""Characters that can be mistaken for the start of a tag."""
CLOSING = _signs(_TABLES["closing"])
"""Characters that can be mistaken for the end of a tag."""
SEPARATORS = _signs(_TABLES["separators"])
"""Characters that can be mistaken for a colon or a slash."""
UNSEEN = _signs(_TABLES["unseen"])
"""Invisible characters: fillers, variation selectors, joiners, directional marks, tags."""
