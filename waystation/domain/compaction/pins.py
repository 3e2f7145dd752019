"""Pinned messages: what no compaction covers because somebody said so, up to a fifth of the window."""

from waystation.domain.compaction.apply import with_record
from waystation.domain.compaction.history import current, known, stand_in
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import Measure
from waystation.domain.compaction.units import layout
from waystation.domain.compaction.view import kept_whole
from waystation.domain.errors import BadInput
from waystation.domain.transcript import Masked, Pinned, Restored, Transcript


def pin(transcript: Transcript, message_id: str, policy: Policy, measure: Measure, record_id: str) -> Pinned:
    """The record of this id that pins a message; a call stays with its results. What a compaction hides comes back.

    Raises BadInput for a message that is unknown, pinned or never sent, and where pins would pass their cap.
    """
    now = current(transcript)
    known(message_id, now)
    if any(isinstance(record, Pinned) and record.message_id == message_id for record in now.records):
        raise BadInput(f"{message_id} is pinned already")
    record = Pinned(id=record_id, message_id=message_id)
    # With the pin in force: what is hidden now counts with what it will have, not with what stands for it.
    shown = layout(with_record(now, record))
    places = {name: place for place, unit in enumerate(shown.units) for name in unit.ids}
    if message_id not in places:
        raise BadInput(f"{message_id} is never sent to the model, which takes no such message: it cannot be pinned")
    sizes = {place: measure.part(shown.units[place].tokens) for place in shown.pinned}
    if sum(sizes.values()) > policy.pin_cap:
        before = [place for place in sorted(shown.pinned) if place != places[message_id]]
        names = ", ".join(f"{shown.units[place].ids[0]} ({sizes[place]:,})" for place in before)
        raise BadInput(
            f"{message_id} has {sizes[places[message_id]]:,} tokens, and pins may have {policy.pin_cap:,} together, a "
            f"fifth of the window; pinned are: {names or 'none'}. Take one of them back, or raise the window."
            + _instead(now, message_id)
        )
    return record


def unpin(transcript: Transcript, message_id: str, record_id: str) -> Restored:
    """The record of this id that takes a pin back. Raises BadInput where there is none."""
    for record in current(transcript).records:
        if isinstance(record, Pinned) and record.message_id == message_id:
            return Restored(id=record_id, record_id=record.id)
    raise BadInput(f"{message_id} is not pinned")


def _instead(now: Transcript, message_id: str) -> str:
    """How a hidden message is seen again without a pin: by restoring what hides it, the outermost first."""
    if message_id in kept_whole(now):
        return ""
    hiding: list[str] = []
    hidden = message_id
    for record in now.compactions:
        if not isinstance(record, Masked) and hidden in record.covered:
            hiding.insert(0, record.id)
            hidden = stand_in(record).id
    if not hiding:
        return ""
    commands = ", then ".join(f"`--compaction {name}`" for name in hiding)
    return f" It is hidden: `waystation restore` with {commands} shows it again without a pin."
