"""The ledger at the end of a summary or a marker: one line each for what code, and no model, wrote down."""

from collections.abc import Iterable, Iterator
from typing import Final

from waystation.domain.compaction.summary import inner_text, is_summary, unframed
from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.foreign_text import tagged
from waystation.domain.messages import Message

MARKER_PREFIX = "t-"
OPEN, CLOSE = "<ledger>", "</ledger>"
DEMANDED: Final = "user: "
"""A sentence of the user's that demands or forbids something, word for word."""
ASKED: Final = "asked: "
"""What else a message of the user's said, shortened."""
DECIDED: Final = "decided: "
"""A decision that an earlier summary recorded."""
UNDONE: Final = "open: "
"""Work that is not done."""
SOURCES: Final = "passages: "
"""Passages of what the summary stands for, with their messages: short ids that can be expanded."""
CUT = " […]"
"""Where something was left out."""
LEAST_PIECE = 20
"""Characters: less of a text says nothing."""


def ledger(lines: Iterable[str]) -> str:
    """The lines as a ledger; empty without any."""
    body = "\n".join(lines)
    return tagged("ledger", unframed(body)) if body else ""


def entries(message: Message, kind: str) -> tuple[str, ...]:
    """What the message's own ledger has of a kind; all its lines where the kind is empty."""
    _, mark, rest = inner_text(message).rpartition(f"{OPEN}\n")
    lines = rest.partition(f"\n{CLOSE}")[0].split("\n") if mark else []
    return tuple(line.removeprefix(kind) for line in lines if line.startswith(kind))


def without_ledger(text: str) -> str:
    """The text before the ledger that it ends with, if it does."""
    before, mark, after = text.rpartition(f"{OPEN}\n")
    return before if mark and after.rstrip().endswith(CLOSE) else text


def is_stand_in(message: Message) -> bool:
    """Whether the message is the summary or the marker of a compaction, and so has a ledger that counts."""
    return is_summary(message) or message.id.startswith(MARKER_PREFIX)


def one_line(text: str) -> str:
    """The text as it may stand in a ledger."""
    return " ".join(unframed(text).split())


def shortened(text: str, characters: int) -> str:
    """The text, or its beginning with a mark where it was cut; at most so many characters."""
    return text if len(text) <= characters else text[: characters - len(CUT)].rstrip() + CUT


def newest_fitting(texts: Iterable[str], room: int) -> list[str]:
    """The last texts that fit the room (tokens), in their order; the one at the boundary is cut, with a mark."""
    return list(_fitting(reversed(list(texts)), room))[::-1]


def _fitting(newest_first: Iterable[str], room: int) -> Iterator[str]:
    for text in newest_first:
        size = line_tokens(text)
        if size > room:
            characters = len(text) * max(room, 0) // size
            if characters >= LEAST_PIECE:
                yield shortened(text, characters)
            return
        room -= size
        yield text


def line_tokens(text: str) -> int:
    """What a text takes as a line of a ledger."""
    return estimate_text(text) + 2
