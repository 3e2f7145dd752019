"""Finds people by the address beside their name, and by the lines in which authors sign."""

from collections.abc import Iterator

from waystation.adapters.presidio.found import Found
from waystation.patterns import proven

_SCORE = 0.5
_WORD = r"[^\W\d_a-z][^\W\d_]{1,40}(?:['’-][^\W\d_]{1,40}){0,3}"
_SIGNED = proven(
    rf"\b(?:Author|Committer|(?:Signed-off|Co-authored|Reported|Reviewed|Acked|Tested)-by):[ \t]+"
    rf"(?P<name>{_WORD}(?: {_WORD}){{1,3}})"
)
_BESIDE_AN_ADDRESS = proven(
    rf"(?P<name>(?<![\w'’-]){_WORD} {_WORD})(?: at)? "
    rf"(?:(?<=at )[\w.+-]{{1,64}}@\w|<(?:EMAIL_[0-9a-f]{{12}}>|[\w.+-]{{1,64}}@\w))"
)


def signed(text: str, start: int, end: int) -> Iterator[Found]:
    """The names in this stretch of the text."""
    for pattern in (_SIGNED, _BESIDE_AN_ADDRESS):
        for match in pattern.finditer(text, start, end):
            yield Found("PERSON", *match.span("name"), _SCORE)
