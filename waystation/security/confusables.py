"""Letters and signs that are taken for those of a tag, and signs that show nothing.

Source: `confusables.toml`, which `make lookalikes` writes from the tables of Unicode.
"""

import tomllib
from importlib import resources

_TABLES = tomllib.loads((resources.files(__package__) / "confusables.toml").read_text(encoding="utf-8"))


def _signs(written: str) -> frozenset[str]:
    """Of code points in hexadecimal, and of ranges of them."""
    ends = [[int(end, 16) for end in one.split("-")] for one in written.split()]
    return frozenset(chr(code) for first_last in ends for code in range(first_last[0], first_last[-1] + 1))


READINGS: dict[str, tuple[str, ...]] = {
    sign: tuple(letters.split()) for letters, signs in _TABLES["readings"].items() for sign in _signs(signs)
}
"""What a sign may be taken for: letters of ours, lower case, `m` as `rn`; not what decomposes to its letter (NFKD)."""
OPENING = _signs(_TABLES["opening"])
"""What is taken for the beginning of a tag."""
CLOSING = _signs(_TABLES["closing"])
"""What is taken for its end."""
SEPARATORS = _signs(_TABLES["separators"])
"""What is taken for a colon or a slash."""
UNSEEN = _signs(_TABLES["unseen"])
"""What shows nothing by itself: fillers, selectors of variants, joiners, marks of direction, tags."""
