"""Strategy `replace`: everything into one summary, or everything but the last few messages.

What it took of the files that were read comes back with the summary: `domain.compaction.restored`.
"""

from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.strategies.keeping import Kept, room_beside
from waystation.domain.compaction.tokens import Measure
from waystation.domain.compaction.units import Layout, Unit


def middle(layout: Layout, policy: Policy, measure: Measure, summary_room: int) -> tuple[Unit, ...]:
    """The units that a summary is to stand for, in order; empty where there is nothing but earlier summaries.

    `keep_last` (none, unless the policy says so) is a maximum: whole units stay, as far as the target allows.
    """
    kept = Kept(layout, measure)
    last_first = range(len(layout.units) - 1, -1, -1)
    kept.take(last_first, room_beside(policy, measure, summary_room), policy.keep_last or 0)
    return kept.rest
