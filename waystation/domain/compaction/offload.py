"""Rung 1, offload: a tool result that is too large goes to the store whole; the conversation keeps its ends."""

from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.redaction import whole_until

MOST_TOKENS = 40_000
WINDOW_SHARE = 4
"""One result may have at most this part of the working window: a quarter."""
END_CHARACTERS = 2_000


def is_too_large(text: str, window: int) -> bool:
    """Whether a result has more than 40,000 tokens, or more than a quarter of the working window."""
    return estimate_text(text) > min(MOST_TOKENS, window // WINDOW_SHARE)


def preview(text: str, blob: str) -> str:
    """Head and tail of the text, and between them where the rest is.

    `blob` is the whole id under which the store keeps the text: the pointer must work as it is written.
    """
    return ends(text, f"All its {len(text):,} characters are stored; read_stored with id {blob} reads on")


def ends(text: str, pointer: str) -> str:
    """Head and tail of 2,000 characters each (of a short text, a quarter each), and between them where the rest is."""
    end = whole_until(text, min(END_CHARACTERS, len(text) // 4))
    gap = f"[The middle of this result is not shown. {pointer}, the middle begins at character {end}.]"
    return f"{text[:end]}\n{gap}\n{text[len(text) - end :]}"
