"""Simulates the provider's prompt cache: which tokens of a request are read from it, written to it, and neither."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from waystation.context.tokens import estimate_message
from waystation.context.transcript import Message
from waystation.kernel.usage import Usage

CACHE_TTL = 5 * 60
"""Seconds that a prefix lives after it was written or last used."""
MIN_TOKENS = 1_024
"""A shorter prefix is never cached: published for models of the class that the runs are priced with."""
LOOK_BACK = 20
"""Blocks before a mark at which the provider looks for a prefix that it knows."""
MARKS = 2
"""Of a request's messages the last so many of the user's are marked, as the adapter does it."""


class _Prefix(NamedTuple):
    messages: tuple[Message, ...]
    """After system prompt and tools."""
    dies: float


@dataclass
class PromptCache:
    """What the provider remembers of one agent's requests.

    A prefix is system prompt and tools, alone or with the messages up to a marked one; only marked prefixes are
    written. A request reads the longest that lives and stands, unchanged, at one of its own marks or at most 20 blocks
    before it.
    """

    fixed: int
    """Tokens of system prompt and tools."""
    _known: list[_Prefix] = field(default_factory=list[_Prefix])

    def charge(self, messages: Sequence[Message], now: float) -> Usage:
        """The tokens of a request by kind, output 0. What it marks is known from then on. `now` is in seconds."""
        ends = [self.fixed]
        for message in messages:
            ends.append(ends[-1] + estimate_message(message))
        marks = [mark for mark in _marks(messages) if ends[mark] >= MIN_TOKENS]
        living = [prefix for prefix in self._known if prefix.dies > now]
        # Tuples compare by identity first: quick where nothing changed.
        standing = {
            len(prefix.messages) for prefix in living if prefix.messages == tuple(messages[: len(prefix.messages)])
        }
        read = max((ends[place] for place in standing & _in_reach(messages, marks)), default=0)
        written = max((ends[mark] for mark in marks), default=0)
        used = [tuple(messages[:mark]) for mark in marks]
        self._known = [prefix for prefix in living if prefix.messages not in used]
        self._known += (_Prefix(prefix, now + CACHE_TTL) for prefix in used)
        return Usage(input=ends[-1] - written, cache_write=written - read, cache_read=read)


def _marks(messages: Sequence[Message]) -> list[int]:
    """How many messages are in front of each mark."""
    users = [place for place, message in enumerate(messages, 1) if message.role == "user"]
    return [0, *users[-MARKS:]]


def _in_reach(messages: Sequence[Message], marks: Iterable[int]) -> set[int]:
    """The places, as numbers of messages, at which a known prefix is looked for."""
    reach: set[int] = set()
    for mark in marks:
        place, blocks = mark, 0
        while place >= 0 and blocks <= LOOK_BACK:
            reach.add(place)
            place -= 1
            blocks += len(messages[place].blocks) if place >= 0 else 0
    return reach
