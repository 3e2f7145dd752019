"""Strategy `ends`: the first message, a summary of everything between, the last few messages."""

from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.strategies.keeping import Kept, room_beside
from waystation.domain.compaction.tokens import Measure
from waystation.domain.compaction.units import Layout, Unit

LAST = 3
"""Messages that stay at the end, unless the policy says otherwise."""


def middle(layout: Layout, policy: Policy, measure: Measure, summary_room: int) -> tuple[Unit, ...]:
    """The units that a summary is to stand for, in order; empty where there is nothing but earlier summaries.

    `keep_last` is a maximum: whole units stay, as far as the target allows. The newest unit, which the model may not
    have answered yet, is the last to go, also where it has more messages.
    """
    room = room_beside(policy, measure, summary_room)
    last_first = range(len(layout.units) - 1, -1, -1)
    kept = Kept(layout, measure)
    kept.take(last_first[:1], room)
    kept.take(range(len(layout.units))[:1], room)
    kept.take(last_first, room, LAST if policy.keep_last is None else policy.keep_last)
    return kept.rest
