"""What the user demanded, word for word: sentences that a summary must not soften."""

from collections.abc import Iterator, Sequence

from waystation.domain.compaction.demands import is_demand
from waystation.domain.compaction.ledger import ASKED, DEMANDED, entries, is_stand_in
from waystation.domain.compaction.summary import unframed
from waystation.domain.messages import Message
from waystation.patterns import proven

MOST_CHARACTERS = 1_000
"""A longer sentence is pasted material and no demand."""
# Not before a small letter: "e.g. this" goes on.
_SENTENCE_END = proven(r"[.!?。！？](?:(?<=[。！？])|(?=\s+[^a-z\s]))")


def user_constraints(middle: Sequence[Message]) -> tuple[str, ...]:
    """The sentences of the user's messages that demand or forbid something, in order, each once.

    Those that an earlier compaction took into its ledger stay. What tools and assistant said never counts.
    """
    return tuple(dict.fromkeys(sentence for message in middle for sentence in _demands(message)))


def user_words(messages: Sequence[Message]) -> tuple[str, ...]:
    """What the user said in these messages, and before them as far as ledgers have it word for word."""
    heard = (_heard(message) for message in messages if _is_the_users(message))
    return tuple(words for said in heard for words in said)


def _heard(message: Message) -> tuple[str, ...]:
    return entries(message, DEMANDED) + entries(message, ASKED) if is_stand_in(message) else (message.text,)


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """The sentences of a text, word for word, and whether each is a demand."""
    for line in _SENTENCE_END.sub("\\g<0>\n", unframed(text)).splitlines():
        if sentence := line.strip():
            yield sentence, len(sentence) <= MOST_CHARACTERS and is_demand(sentence)


def _is_the_users(message: Message) -> bool:
    """Also where a stand-in says it for the user."""
    return message.role == "user" and not message.of_the_platform


def _demands(message: Message) -> Iterator[str]:
    if not _is_the_users(message):
        return
    if is_stand_in(message):
        yield from entries(message, DEMANDED)
        return
    # What people tell a task at work is meant for all that is to come, in whatever words.
    heeded = message.told > 0
    yield from (
        sentence
        for sentence, demands in sentences(message.text)
        if demands or (heeded and len(sentence) <= MOST_CHARACTERS)
    )
