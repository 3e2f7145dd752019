"""Strategy `window`: the first messages, a summary of the whole middle, the last messages."""

from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.strategies.keeping import Kept, room_beside
from waystation.domain.compaction.tokens import Measure
from waystation.domain.compaction.units import Layout, Unit


def middle(layout: Layout, policy: Policy, measure: Measure, summary_room: int) -> tuple[Unit, ...]:
    """The units that a summary is to stand for, in order; empty where there is nothing but earlier summaries.

    `primers` and `recents` are maxima: whole units go, recent ones before primers and from the inside out, until what
    stays fits half the target, and with a summary of `summary_room` tokens the target. The newest unit, which the
    model may not have answered yet, stays where the target allows.
    """
    most = room_beside(policy, measure, summary_room)
    room = min(most, policy.target // 2)
    last_first = range(len(layout.units) - 1, -1, -1)
    kept = Kept(layout, measure)
    kept.take(last_first[:1], most)
    kept.take(range(len(layout.units)), room, policy.primers)
    kept.take(last_first, room, policy.recents)
    return kept.rest
