"""What of a conversation must not be lost, and how much of it a view still shows."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.context.conversations import Conversation
from waystation.context.constraints import extract_user_constraints
from waystation.context.transcript import Message


class RetentionShares(NamedTuple):
    """Shares from 0 to 1."""

    pins: float
    """Of the pinned messages, those that are there byte for byte."""
    constraints: float
    """Of the sentences in which the user demands something, those that are there word for word."""
    open_work: float
    """Of the calls that wait for results, those that are there byte for byte, and last; of the plan's open items,
    those that are there."""
    latest: float
    """1 where the latest message of the user's is there, byte for byte."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing was lost."""
        return min(self) == 1


def measure_retention(
    conversation: Conversation, shown: Sequence[Message], open_work: Iterable[str] = ()
) -> RetentionShares:
    """What the view shows of what must not be lost."""
    said = conversation.messages
    there = all_text(shown)
    waiting = said[-1:] if said[-1].tool_uses else []
    latest = [message for message in said if message.role == "user" and message.text][-1]
    return RetentionShares(
        pins=compute_share(message in shown for message in said if message.id in conversation.pinned),
        constraints=compute_share(demand in there for demand in extract_user_constraints(said)),
        open_work=compute_share(
            [*(message in shown[-1:] for message in waiting), *(item in there for item in open_work)]
        ),
        latest=float(latest in shown),
    )


def compute_visible_share(identifiers: Iterable[str], shown: Sequence[Message]) -> float:
    """The share of identifiers that the view shows."""
    there = all_text(shown)
    return compute_share(identifier in there for identifier in identifiers)


def compute_share(found: Iterable[bool]) -> float:
    """Of all, those that are true; of none, all."""
    answers = list(found)
    return sum(answers) / len(answers) if answers else 1.0


def all_text(messages: Sequence[Message]) -> str:
    """All that can be read in messages, the arguments of calls aside."""
    results = (result.content for message in messages for result in message.tool_results)
    return "\n".join([*(message.text for message in messages), *results])
