"""Whole units of a view: what a compaction keeps or covers together, and what it never covers."""

from collections.abc import Sequence
from functools import cached_property

from waystation.domain.compaction.tokens import estimate_messages
from waystation.domain.compaction.view import view
from waystation.domain.messages import Message
from waystation.domain.transcript import Masked, Summarised, Transcript
from waystation.domain.value import Value


class Unit(Value):
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


class Layout(Value):
    """A transcript's view, cut into units. `None` where there is no such unit."""

    units: tuple[Unit, ...]
    contract: int | None
    """Index of the unit with the first message that the user wrote."""
    latest: int | None
    """Index of the unit with the last message that the user wrote."""

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
        """Indices of the units that no compaction covers: contract, latest user text, pending calls."""
        return frozenset(index for index in (self.contract, self.latest, self.pending) if index is not None)


def layout(transcript: Transcript) -> Layout:
    """The transcript's view as units."""
    stand_ins = stand_in_ids(transcript)
    units = tuple(Unit(messages=unit, stand_in=unit[0].id in stand_ins) for unit in units_of(view(transcript)))
    # Summaries and markers have the user's role, but they are in the records: these are the user's own messages.
    said = [message.id for message in transcript.messages if message.role == "user" and message.text.strip()]
    places = {message_id: index for index, unit in enumerate(units) for message_id in unit.ids}
    return Layout(
        units=units,
        contract=places.get(said[0]) if said else None,
        latest=places.get(said[-1]) if said else None,
    )


def units_of(messages: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    """A legal sequence of messages, cut between units."""
    units: list[list[Message]] = []
    for message in messages:
        if message.tool_results and units:
            units[-1].append(message)
        else:
            units.append([message])
    return tuple(tuple(unit) for unit in units)


def stand_in_ids(transcript: Transcript) -> frozenset[str]:
    """Ids of the summaries and markers that the transcript's records put into its view."""
    return frozenset(
        (record.summary if isinstance(record, Summarised) else record.marker).id
        for record in transcript.records
        if not isinstance(record, Masked)
    )
