"""Rung 4, truncate: the oldest half of what is visible is hidden behind a marker."""

from waystation.domain.compaction.identity import compaction_id
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import Measure, estimate_message
from waystation.domain.compaction.units import Layout, Unit
from waystation.domain.messages import Message, user_text
from waystation.domain.transcript import Masked, Transcript, Truncated

NAMED_IDS = 6
MARKER_TOKENS = 100
"""Room for a marker."""


def truncation(transcript: Transcript, layout: Layout, policy: Policy, measure: Measure) -> Truncated | None:
    """Hides the oldest half of the units that may be hidden, and more where that would leave the context full.

    None where the view would not get smaller.
    """
    may_go = [unit for index, unit in enumerate(layout.units) if index not in layout.protected]
    hidden = may_go[: (len(may_go) + 1) // 2]
    left = measure.fixed + MARKER_TOKENS + layout.tokens
    left -= sum(unit.tokens for unit in hidden)
    for unit in may_go[len(hidden) :]:
        if measure.part(left) < policy.trigger:
            break
        hidden.append(unit)
        left -= unit.tokens
    record = _record(transcript, hidden, policy)
    return record if estimate_message(record.marker) < sum(unit.tokens for unit in hidden) else None


def _record(transcript: Transcript, hidden: list[Unit], policy: Policy) -> Truncated:
    covered = tuple(message_id for unit in hidden for message_id in unit.ids)
    record_id = compaction_id(transcript.run_id, covered, policy)
    return Truncated(id=record_id, covered=covered, marker=_marker(record_id, _said(transcript, covered)))


def _marker(record_id: str, ids: list[str]) -> Message:
    half = NAMED_IDS // 2
    names = ", ".join(ids) if len(ids) <= NAMED_IDS else f"{', '.join(ids[:half])} … {', '.join(ids[-half:])}"
    return user_text(
        f"t-{record_id}",
        f"[{len(ids):,} earlier messages are hidden here to save space: {names}. "
        "They stay in the record of this conversation; recall may find what they said.]",
    )


def _said(transcript: Transcript, covered: tuple[str, ...]) -> list[str]:
    """Ids of the messages that the covered ones are or stand for: what is hidden in truth."""
    behind = {
        (record.marker if isinstance(record, Truncated) else record.summary).id: record.covered
        for record in transcript.records
        if not isinstance(record, Masked)
    }
    hidden: set[str] = set()
    waiting = list(covered)
    while waiting:
        message_id = waiting.pop()
        hidden.add(message_id)
        waiting += behind.get(message_id, ())
    return [message.id for message in transcript.messages if message.id in hidden]
