"""Whole units of a view: what a compaction keeps or covers together, and what it never covers."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from waystation.domain.compaction.history import current, pinned_ids, stand_in
from waystation.domain.compaction.repair import units_of
from waystation.domain.compaction.tokens import estimate_messages
from waystation.domain.compaction.view import view
from waystation.domain.messages import OPERATORS, Message, Opaque
from waystation.domain.transcript import Masked, Transcript


# Not values of pydantic: they are made anew for every plan, by the thousand, and never stored.
@dataclass(frozen=True)
class Unit:
    """One message, or an assistant message with its calls' results: parting them would be illegal."""

    messages: tuple[Message, ...]
    stand_in: bool = False
    """A summary or a marker of an earlier compaction."""

    @cached_property
    def tokens(self) -> int:
        """Plain estimate."""
        return estimate_messages(self.messages)

    @property
    def ids(self) -> tuple[str, ...]:
        """Of its messages."""
        return tuple(message.id for message in self.messages)

    @property
    def pending(self) -> bool:
        """Whether it waits for results."""
        asked = {call.id for call in self.messages[0].tool_uses}
        given = {result.tool_use_id for message in self.messages for result in message.tool_results}
        return not asked <= given


@dataclass(frozen=True)
class Layout:
    """A transcript's view, cut into units. `None` where there is no such unit."""

    units: tuple[Unit, ...]
    contract: int | None
    """Index of the unit with the first message that the user wrote."""
    latest: int | None
    """Index of the unit with the last message that the user wrote."""
    pinned: frozenset[int] = frozenset()
    """Indices of the units with a pinned message."""

    @cached_property
    def tokens(self) -> int:
        """Plain estimate of all units."""
        return sum(unit.tokens for unit in self.units)

    @property
    def pending(self) -> int | None:
        """Index of the unit that waits for results."""
        return len(self.units) - 1 if self.units and self.units[-1].pending else None

    @cached_property
    def protected(self) -> frozenset[int]:
        """Indices of the units that no compaction covers: contract, latest user text, pending calls, pins."""
        named = frozenset(index for index in (self.contract, self.latest, self.pending) if index is not None)
        return named | self.pinned


def layout(transcript: Transcript) -> Layout:
    """The transcript's view as units."""
    now = current(transcript)
    stand_ins = stand_in_ids(now)
    units = tuple(Unit(messages=unit, stand_in=unit[0].id in stand_ins) for unit in units_of(view(now)))
    places = {message.id: index for index, unit in enumerate(units) for message in unit.messages}
    return Layout(
        units=units,
        contract=places.get(_first_said(now.messages)),
        latest=places.get(_first_said(reversed(now.messages))),
        pinned=frozenset(places[name] for name in pinned_ids(now) if name in places),
    )


def _first_said(messages: Iterable[Message]) -> str:
    """Id of the first of these messages that the user wrote: summaries and markers are only in the records."""
    return next((message.id for message in messages if _is_said(message)), "")


def _is_said(message: Message) -> bool:
    """Whether the user wrote or attached something. What is attached beside results comes from a tool."""
    if message.role != "user":
        return False
    if message.text.strip():
        return not message.of_the_platform
    shown = (block for block in message.blocks if isinstance(block, Opaque) and block.kind != OPERATORS)
    return not message.tool_results and any(block.of_the_user for block in shown)


def stand_in_ids(transcript: Transcript) -> frozenset[str]:
    """Ids of the summaries and markers that the transcript's records put into its view."""
    return frozenset(stand_in(record).id for record in transcript.compactions if not isinstance(record, Masked))
