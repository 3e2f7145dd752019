"""Whole units of a view: what a compaction keeps or covers together, and what it never covers, such as pins."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from waystation.context.history import (
    build_model_view,
    get_effective_transcript,
    get_pinned_message_ids,
    get_pinned_unit_message_ids,
    get_replacement,
    validate_message_id,
    with_record,
)
from waystation.context.policy import CompactionPolicy
from waystation.context.repair import split_into_units
from waystation.context.tokens import TokenEstimator, estimate_messages
from waystation.context.transcript import (
    SYSTEM_MESSAGE_TYPE,
    MaskRecord,
    Message,
    OpaqueBlock,
    PinRecord,
    RestoreRecord,
    Transcript,
)
from waystation.kernel.errors import BadInput


# Not pydantic values: made by the thousand for every planned compaction, and never stored.
@dataclass(frozen=True)
class MessageUnit:
    """One message, or an assistant message with its calls' results, which may not be separated."""

    messages: tuple[Message, ...]
    is_replacement: bool = False
    """Whether it is a summary or marker of an earlier compaction."""

    @cached_property
    def tokens(self) -> int:
        """Plain estimate."""
        return estimate_messages(self.messages)

    @property
    def message_ids(self) -> tuple[str, ...]:
        """IDs of its messages."""
        return tuple(message.id for message in self.messages)

    @property
    def is_pending(self) -> bool:
        """Whether it waits for results."""
        asked = {call.id for call in self.messages[0].tool_uses}
        given = {result.tool_use_id for message in self.messages for result in message.tool_results}
        return not asked <= given


@dataclass(frozen=True)
class TranscriptLayout:
    """A transcript's view, cut into units. Indices are `None` if there is no such unit."""

    units: tuple[MessageUnit, ...]
    brief: int | None
    """Index of the unit with the first message that the user wrote: the task brief."""
    latest: int | None
    """Index of the unit with the last message that the user wrote."""
    pinned: frozenset[int] = frozenset()
    """Indices of the units with a pinned message."""

    @cached_property
    def tokens(self) -> int:
        """Plain estimate of all units."""
        return sum(unit.tokens for unit in self.units)

    @property
    def pending_index(self) -> int | None:
        """Index of the unit that waits for results."""
        return len(self.units) - 1 if self.units and self.units[-1].is_pending else None

    @cached_property
    def protected_indices(self) -> frozenset[int]:
        """Indices of the units that no compaction covers: task brief, latest user text, pending calls, pins."""
        named = frozenset(index for index in (self.brief, self.latest, self.pending_index) if index is not None)
        return named | self.pinned


def build_layout(transcript: Transcript) -> TranscriptLayout:
    """Split the transcript's view into units."""
    now = get_effective_transcript(transcript)
    stand_ins = get_replacement_ids(now)
    units = tuple(
        MessageUnit(messages=unit, is_replacement=unit[0].id in stand_ins)
        for unit in split_into_units(build_model_view(now))
    )
    places = {message.id: index for index, unit in enumerate(units) for message in unit.messages}
    return TranscriptLayout(
        units=units,
        brief=places.get(_first_said(now.messages)),
        latest=places.get(_first_said(reversed(now.messages))),
        pinned=frozenset(places[name] for name in get_pinned_message_ids(now) if name in places),
    )


def _first_said(messages: Iterable[Message]) -> str:
    """Return the ID of the first of these messages that the user wrote. Summaries and markers exist in records only."""
    return next((message.id for message in messages if _is_said(message)), "")


def _is_said(message: Message) -> bool:
    """Return whether the user wrote or attached something. Attachments next to results come from a tool."""
    if message.role != "user":
        return False
    if message.text.strip():
        return not message.is_platform_message
    shown = (block for block in message.blocks if isinstance(block, OpaqueBlock) and block.kind != SYSTEM_MESSAGE_TYPE)
    return not message.tool_results and any(block.is_user_block for block in shown)


def get_replacement_ids(transcript: Transcript) -> frozenset[str]:
    """Return the IDs of the summaries and markers that the transcript's records put into its view."""
    return frozenset(
        get_replacement(record).id for record in transcript.compactions if not isinstance(record, MaskRecord)
    )


class PinLimitError(BadInput):
    """Pins would exceed their maximum."""

    def __init__(self, message: str, size: int, maximum: int) -> None:
        """Take the message for a person, the size of the message to pin, and the maximum of all pins, in tokens."""
        super().__init__(message)
        self.size, self.maximum = size, maximum


def build_pin_record(
    transcript: Transcript, message_id: str, policy: CompactionPolicy, measure: TokenEstimator, record_id: str
) -> PinRecord:
    """Build the record that pins a message; a call stays with its results. A hidden message becomes visible again.

    Raises:
        BadInput: The message is unknown, already pinned or never sent, or pins would exceed their maximum.
    """
    now = get_effective_transcript(transcript)
    validate_message_id(message_id, now)
    if any(isinstance(record, PinRecord) and record.message_id == message_id for record in now.records):
        raise BadInput(f"message {message_id} is pinned already")
    record = PinRecord(id=record_id, message_id=message_id)
    # Measured with the pin in force: a hidden message counts with its full size, not with that of its replacement.
    shown = build_layout(with_record(now, record))
    places = {name: place for place, unit in enumerate(shown.units) for name in unit.message_ids}
    if message_id not in places:
        raise BadInput(f"message {message_id} is never sent to the model, so it cannot be pinned")
    sizes = {place: measure.scale_estimate(shown.units[place].tokens) for place in shown.pinned}
    if sum(sizes.values()) > policy.max_pinned_tokens:
        before = [place for place in sorted(shown.pinned) if place != places[message_id]]
        names = ", ".join(f"{shown.units[place].message_ids[0]} ({sizes[place]:,} tokens)" for place in before)
        size = sizes[places[message_id]]
        raise PinLimitError(
            f"message {message_id} has {size:,} tokens. All pinned messages together may have "
            f"{policy.max_pinned_tokens:,} tokens, a fifth of the context window. Pinned now: {names or 'none'}. "
            "Remove a pin, or use a larger window." + _instead(now, message_id),
            size,
            policy.max_pinned_tokens,
        )
    return record


def build_unpin_record(transcript: Transcript, message_id: str, record_id: str) -> RestoreRecord:
    """Build the record that removes a pin. Raises BadInput if there is none."""
    for record in get_effective_transcript(transcript).records:
        if isinstance(record, PinRecord) and record.message_id == message_id:
            return RestoreRecord(id=record_id, record_id=record.id)
    raise BadInput(f"message {message_id} is not pinned")


def _instead(now: Transcript, message_id: str) -> str:
    """Explain how to show a hidden message without a pin: restore what hides it, the outermost first."""
    if message_id in get_pinned_unit_message_ids(now):
        return ""
    hiding: list[str] = []
    hidden = message_id
    for record in now.compactions:
        if not isinstance(record, MaskRecord) and hidden in record.covered:
            hiding.insert(0, record.id)
            hidden = get_replacement(record).id
    if not hiding:
        return ""
    commands = ", then with ".join(f"`--compaction {name}`" for name in hiding)
    return f" The message is hidden. To show it again without a pin, use `waystation restore` with {commands}."
