"""Pinned messages: what no compaction covers because somebody said so, up to a fifth of the window."""

from waystation.domain.compaction.history import current, known
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import Measure
from waystation.domain.compaction.units import layout
from waystation.domain.errors import BadInput
from waystation.domain.transcript import Pinned, Restored, Transcript


def pin(transcript: Transcript, message_id: str, policy: Policy, measure: Measure, record_id: str) -> Pinned:
    """The record of this id that pins a message; a call stays with its results.

    Raises BadInput for a message that is unknown, hidden or pinned, and where pins would pass their cap.
    """
    now = current(transcript)
    known(message_id, now)
    shown = layout(now)
    places = {name: place for place, unit in enumerate(shown.units) for name in unit.ids}
    if message_id not in places:
        raise BadInput(f"{message_id} is hidden by a compaction: restore that one first (`waystation restore`)")
    if any(isinstance(record, Pinned) and record.message_id == message_id for record in now.records):
        raise BadInput(f"{message_id} is pinned already")
    sizes = {place: measure.part(shown.units[place].tokens) for place in {*shown.pinned, places[message_id]}}
    if sum(sizes.values()) > policy.pin_cap:
        names = ", ".join(f"{shown.units[place].ids[0]} ({sizes[place]:,})" for place in sorted(shown.pinned))
        raise BadInput(
            f"{message_id} has {sizes[places[message_id]]:,} tokens, and pins may have {policy.pin_cap:,} together, a "
            f"fifth of the window; pinned are: {names or 'none'}. Take one of them back, or raise the window."
        )
    return Pinned(id=record_id, message_id=message_id)


def unpin(transcript: Transcript, message_id: str, record_id: str) -> Restored:
    """The record of this id that takes a pin back. Raises BadInput where there is none."""
    for record in current(transcript).records:
        if isinstance(record, Pinned) and record.message_id == message_id:
            return Restored(id=record_id, record_id=record.id)
    raise BadInput(f"{message_id} is not pinned")
