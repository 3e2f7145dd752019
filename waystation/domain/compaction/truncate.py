"""Rung 4, truncate: the oldest half of what is visible is hidden behind a marker."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waystation.domain.compaction.behind import behind
from waystation.domain.compaction.constraints import user_constraints
from waystation.domain.compaction.history import current
from waystation.domain.compaction.identity import compaction_id
from waystation.domain.compaction.ledger import DEMANDED, MARKER_PREFIX, ledger, line_tokens
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import Measure, estimate_message
from waystation.domain.compaction.units import Layout, Unit
from waystation.domain.messages import Message, user_text
from waystation.domain.transcript import Transcript, Truncated

NAMED_IDS = 6
MARKER_TOKENS = 100
"""Room for a marker."""


def truncation(transcript: Transcript, layout: Layout, policy: Policy, measure: Measure) -> Truncated | None:
    """Hides the oldest half of the units that may be hidden, and more where that would leave the context full.

    What the user demanded in them stands in the marker, word for word; a unit whose demands would bring the marker's
    over a fifth of the window stays. None where the view would not get smaller.
    """
    may_go = list(_bearable(layout, policy.pin_cap))
    hidden = may_go[: (len(may_go) + 1) // 2]
    left = measure.fixed + MARKER_TOKENS + layout.tokens
    left -= sum(hiding.saved for hiding in hidden)
    for hiding in may_go[len(hidden) :]:
        if measure.part(left) < policy.trigger:
            break
        hidden.append(hiding)
        left -= hiding.saved
    record = _record(transcript, hidden, policy)
    return record if estimate_message(record.marker) < sum(hiding.unit.tokens for hiding in hidden) else None


class _Hiding(NamedTuple):
    unit: Unit
    demands: tuple[str, ...]
    """Those that the marker does not have yet."""
    saved: int
    """Plain estimate."""


def _bearable(layout: Layout, cap: int) -> Iterator[_Hiding]:
    """The units that may be hidden, oldest first."""
    carried: set[str] = set()
    for index, unit in enumerate(layout.units):
        if index in layout.protected:
            continue
        demands = tuple(demand for demand in user_constraints(unit.messages) if demand not in carried)
        size = sum(map(line_tokens, demands))
        if size <= cap:
            cap -= size
            carried.update(demands)
            yield _Hiding(unit, demands, unit.tokens - size)


def _record(transcript: Transcript, hidden: Sequence[_Hiding], policy: Policy) -> Truncated:
    covered = tuple(message_id for hiding in hidden for message_id in hiding.unit.ids)
    record_id = compaction_id(transcript, covered, policy)
    demands = [demand for hiding in hidden for demand in hiding.demands]
    marker = _marker(record_id, _said(transcript, covered), demands, recall=policy.recall)
    return Truncated(id=record_id, covered=covered, marker=marker)


def _marker(record_id: str, ids: Sequence[str], demands: Sequence[str], *, recall: bool) -> Message:
    half = NAMED_IDS // 2
    names = ", ".join(ids) if len(ids) <= NAMED_IDS else f"{', '.join(ids[:half])} … {', '.join(ids[-half:])}"
    there = " They stay in the record of this conversation; recall may find what they said." if recall else ""
    text = f"[{len(ids):,} earlier messages are hidden here to save space: {names}.{there}]"
    if demands:
        text += f"\nWhat the user demanded in them:\n{ledger(f'{DEMANDED}{demand}' for demand in demands)}"
    return user_text(f"{MARKER_PREFIX}{record_id}", text)


def _said(transcript: Transcript, covered: tuple[str, ...]) -> list[str]:
    """Ids of the messages that the covered ones are or stand for: what is hidden in truth."""
    now = current(transcript)
    hidden = behind(covered, now.compactions)
    return [message.id for message in now.messages if message.id in hidden]
