"""The reminder: what changes from turn to turn, said at the end of each request, outside the transcript."""

from collections.abc import Iterator, Sequence

from waystation.domain.amount import Limit, limit_text
from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.delegation import parent_of
from waystation.domain.foreign_text import Tagged, one_line, tagged_line
from waystation.domain.layers import Layer, Part, allocate, share_of
from waystation.domain.messages import Message
from waystation.domain.team import Teammate
from waystation.domain.value import Value

MORE_IS_ASKED_FOR = "more is asked for when it is spent"
"""Said where that is so: the agent then need not hand in early."""
MOST_TOKENS, MOST_MICRO_USD = 999_999_999_999, 999_999_999_999
RECENT_RESULTS, SHOWN_FAILURES = 12, 3
"""Failures among so many results at the end of the conversation are recent; so many of them are shown."""
WHY_CHARACTERS = 160


class Failure(Value):
    """A call that failed."""

    tool: str
    why: str
    """The beginning of its result."""


class Reminder(Value):
    """What an agent is told at the end of one request."""

    step_id: str
    turn: int
    left: Limit
    final: bool
    """Nobody will be asked for more when that is spent."""
    team: tuple[Teammate, ...] = ()
    failures: tuple[Failure, ...] = ()
    """The newest first."""

    def text(self, window: int) -> str:
        """Within the runtime share of this window: the last named lines are left out first, turn and budget never."""
        parts = [self._head, *self._lines]
        above = {layer: [Part(name="held", tokens=share_of(layer, window))] for layer in (Layer.SYSTEM, Layer.CONTRACT)}
        row = allocate(window, {**above, Layer.RUNTIME: parts}).row(Layer.RUNTIME)
        return _status("\n".join(part.name for part in parts if part.name in row.kept))

    @property
    def least(self) -> str:
        """Turn and budget alone."""
        return _status(self._head.name)

    @property
    def widest(self) -> "Reminder":
        """With as much left as has room on the line: what fits with this fits whatever is left."""
        most = Limit(
            tokens=None if self.left.tokens is None else MOST_TOKENS,
            micro_usd=None if self.left.micro_usd is None else MOST_MICRO_USD,
        )
        return self.model_copy(update={"left": most})

    @property
    def _head(self) -> Part:
        more = "" if self.final or self.left.unlimited else f" ({MORE_IS_ASKED_FOR})"
        said = f"turn {self.turn}; budget left {limit_text(self.left)}{more}"
        return Part(name=said, tokens=estimate_text(_status(said)), firm=True)

    @property
    def _lines(self) -> Iterator[Part]:
        """The most important first."""
        plan = [mate for mate in self.team if parent_of(mate.id) is None]
        siblings = [mate for mate in self.team if parent_of(mate.id) is not None and mate.id != self.step_id]
        failed = " | ".join(f"{failure.tool}: {failure.why}" for failure in self.failures)
        tagged = {"plan": self._states(plan), "siblings": self._states(siblings), "failed": failed}
        for tag, said in tagged.items():
            if said:
                line = tagged_line(tag, said)
                yield Part(name=line, tokens=estimate_text(f"{line}\n"))

    def _states(self, team: Sequence[Teammate]) -> str:
        return ", ".join(f"{mate.id} {'(you)' if mate.id == self.step_id else mate.state}" for mate in team)


def recent_failures(messages: Sequence[Message]) -> tuple[Failure, ...]:
    """Of the tools, the newest first, each message once."""
    names = {call.id: call.name for message in messages for call in message.tool_uses}
    results = [result for message in messages for result in message.tool_results][-RECENT_RESULTS:]
    failed = [
        Failure(tool=names.get(result.tool_use_id, "a tool"), why=_beginning(result.content))
        for result in reversed(results)
        if result.is_error
    ]
    return tuple(dict.fromkeys(failed))[:SHOWN_FAILURES]


def _beginning(text: str) -> str:
    """In one line, and nothing that looks like a tag."""
    return one_line(" ".join(text.split()).translate(_NO_TAGS), WHY_CHARACTERS)


def _status(lines: str) -> str:
    """Each line is our own, or in a tag of its own."""
    return tagged_line("status", Tagged(lines))


_NO_TAGS = str.maketrans("<>", "()")
