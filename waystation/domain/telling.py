"""What a person tells a task at work, and who has heard it: each agent once, as a message of the user's own."""

from collections.abc import Iterable
from datetime import datetime

from waystation.domain.messages import Message, Text
from waystation.domain.value import Value

MAX_TELLING = 4_000
"""Characters of one. The newest is in no compaction: it must leave room for work in a small window, too."""


class Telling(Value):
    """One thing that was said: a reference, no text."""

    number: int
    """Counted in the task, from 1. In a task that was forked those of the first task come before its own."""
    text: str = ""
    """Content hash of the words in the store; empty while they are put there."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    answer_id: str = ""
    told_at: datetime


def as_message(message_id: str, number: int, words: str) -> Message:
    """How an agent hears it: nothing but the words."""
    return Message(id=message_id, role="user", blocks=(Text(text=words),), told=number)


def heard(said: Iterable[Message]) -> frozenset[int]:
    """Numbers of what an agent has been told, by the messages of its conversation that count."""
    return frozenset(message.told for message in said if message.told)
