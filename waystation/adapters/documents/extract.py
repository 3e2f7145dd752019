"""What a file gives: its text in parts, each with its place in the original, and what of it was not taken."""

from collections.abc import Sequence
from typing import NamedTuple

from waystation.domain.documents import LeftOut, with_places
from waystation.domain.value import Value
from waystation.patterns import proven

MOST_CHARACTERS = 20_000_000
"""Of one document, as text."""
_CONTROLS = proven(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff\ufffe\uffff]")
"""Characters that no text has, and lone halves of pairs, which no file can hold."""


LARGEST_TEXT = 20_000_000
"""Bytes of a file. A text of that size has over a hundred thousand lines; more is a data set, not a document."""
LARGEST_FILE = 200_000_000
"""Bytes of a file of any other kind: most of a large PDF is pictures."""
MEMORY = 2_000_000_000
"""Bytes of address space that reading one file may take."""
BREAKS = "breaks its parser"


class Unreadable(Exception):
    """A file that gives no text. The message is the reason, as words that follow the file's name."""


class Part(NamedTuple):
    """A stretch of text and where it stands, such as `page 3`; without a place it is simply in the document."""

    place: str
    text: str


class Extract(NamedTuple):
    """The parts in the order of the document; the names in `left_out` are parts of it, such as `sheet Old`."""

    parts: Sequence[Part]
    left_out: Sequence[LeftOut] = ()


class FileGiven(Value):
    """How an open file is to be read."""

    name: str
    """Its last part, which helps where the bytes do not say what it is."""
    charset: str | None = None
    """The one that it is said to be in."""
    attachments: bool = True
    """Whether an e-mail's are read. False is for what broke its parser before: nothing else is read then."""


class Extracted(Value):
    r"""The text of one file with every line end as `\n`, and what of the file is not in it."""

    text: str
    left_out: tuple[LeftOut, ...] = ()


class Refused(Value):
    """Why a file gives no text."""

    reason: str


def laid_out(extract: Extract) -> Extracted:
    """The parts as one text under the markers of their places. Raises Unreadable: nothing is left, or too much."""
    text = _CONTROLS.sub(" ", with_places(extract.parts))
    if not text.strip():
        first = next((f"nothing in it can be read ({item.name}: {item.reason})" for item in extract.left_out), "empty")
        raise Unreadable(first)
    if len(text) > MOST_CHARACTERS:
        limit = MOST_CHARACTERS // 1_000_000
        raise Unreadable(
            f"has {len(text) / 1e6:.1f} million characters of text, and {limit} million is the most; split it"
        )
    return Extracted(text=text, left_out=tuple(extract.left_out))
