"""Which passages stand behind a summary: one line of its ledger, written by code, that an agent can expand."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from waystation.domain.compaction.ledger import SOURCES, entries, is_stand_in
from waystation.domain.memory import Passage
from waystation.domain.messages import Message
from waystation.patterns import proven

MOST_SOURCES = 12
"""Some 120 tokens. More passages share an entry: it names the first of them."""
_SOURCE = proven(r"(p[0-9a-f]{8}) (\S+?)-(\S+)")


class Source(NamedTuple):
    """A stretch of the conversation, and the passage that it begins with."""

    passage: str
    """Short id."""
    first: str
    last: str

    def __str__(self) -> str:
        """As a ledger has it."""
        return f"{self.passage} {self.first}-{self.last}"


def sources(hidden: Sequence[Message], passages: Iterable[Passage]) -> str:
    """The line for a summary of these messages: what earlier summaries among them name, then the passages made now.

    Empty without any.
    """
    earlier = [line for message in hidden if is_stand_in(message) for line in entries(message, SOURCES)]
    found = [Source(*match) for line in earlier for match in _SOURCE.findall(line)]
    found += [Source(one.short_id, one.first_message, one.last_message) for one in passages]
    while len(found) > MOST_SOURCES:
        pairs = (found[place : place + 2] for place in range(0, len(found), 2))
        found = [Source(pair[0].passage, pair[0].first, pair[-1].last) for pair in pairs]
    return f"{SOURCES}{'; '.join(map(str, found))}" if found else ""
