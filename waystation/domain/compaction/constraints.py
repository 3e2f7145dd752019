"""What the user demanded, word for word: sentences that a summary must not soften.

English only; in other languages the summariser's prompt has to do.
"""

import re
from collections.abc import Iterator, Sequence

from waystation.domain.compaction.summary import inner_text, is_summary, unframed
from waystation.domain.messages import Message

LINE = "user: "
"""How a ledger marks a sentence of the user's."""
LEDGER_OPEN, LEDGER_CLOSE = "<ledger>", "</ledger>"
MOST_CHARACTERS = 500
"""A longer sentence is pasted material and no demand."""
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_DEMAND = re.compile(
    r"\b(?:never|always|must(?:n['’]t)?|shall|do not|don['’]t|should(?:n['’]t)?|may not|not yet|just yet|only|avoid"
    r"|unless|until|at most|at least|no (?:more|later|less|fewer) than|except|required?|deadline)\b",
    re.IGNORECASE,
)


def user_constraints(middle: Sequence[Message]) -> tuple[str, ...]:
    """The sentences of the user's messages that demand or forbid something, in order, each once.

    Those that an earlier compaction took into its ledger stay. What tools and assistant said never counts.
    """
    return tuple(dict.fromkeys(sentence for message in middle for sentence in _demands(message)))


def _demands(message: Message) -> Iterator[str]:
    if message.role != "user":
        return
    if is_summary(message):
        _, ledger, lines = inner_text(message).rpartition(f"{LEDGER_OPEN}\n")
        if ledger:
            yield from (line.removeprefix(LINE) for line in lines.splitlines() if line.startswith(LINE))
        return
    for sentence in _SENTENCE_END.split(unframed(message.text)):
        if len(sentence) <= MOST_CHARACTERS and _DEMAND.search(sentence):
            yield sentence.strip()
