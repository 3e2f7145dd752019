"""Messages that people send to a task at work, and what an agent receives of them."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from waystation.context.transcript import Message, Text
from waystation.documents.documents import RecordedDocumentsUpdate
from waystation.kernel.identifiers import Identifier
from waystation.kernel.value import Value

MAX_MESSAGE_CHARACTERS = 4_000
"""Maximum characters of one message. The newest one is never compacted, so it must leave room for work in a small
window.
"""


class TaskMessage(Value):
    """A person's message to a running task: a reference, no text."""

    number: int
    """Number in the task, from 1. In a fork, messages of the original task come first."""
    text: str = ""
    """Content hash of the text in the store; empty while it is being stored."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    answer_id: Identifier = ""
    sent_at: datetime


class TaskNews(NamedTuple):
    """What has come to a task at work, each in the order of its numbers."""

    messages: tuple[TaskMessage, ...] = ()
    updates: tuple[RecordedDocumentsUpdate, ...] = ()
    """Of its documents."""


def build_transcript_message(message_id: str, number: int, words: str) -> Message:
    """Build the transcript message that an agent receives: nothing but the text."""
    return Message(id=message_id, role="user", blocks=(Text(text=words),), task_message=number)


def list_received_message_numbers(messages: Iterable[Message]) -> frozenset[int]:
    """Return the numbers of the messages that an agent has received, by its conversation."""
    return frozenset(message.task_message for message in messages if message.task_message)
