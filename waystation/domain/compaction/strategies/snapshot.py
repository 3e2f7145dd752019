"""Strategy `snapshot`: the older part becomes a snapshot of the state, the newer part stays as it is."""

from bisect import bisect_left
from itertools import accumulate

from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.strategies.keeping import Kept, room_beside
from waystation.domain.compaction.tokens import Measure
from waystation.domain.compaction.units import Layout, Unit

REACH = 20
"""Percent of the size: a turn of the user's no farther than this from the share is preferred to any other place."""


def middle(layout: Layout, policy: Policy, measure: Measure, summary_room: int) -> tuple[Unit, ...]:
    """The units that a snapshot is to stand for, in order; empty where there is nothing but earlier ones.

    The cut is at the turn of the user's that is nearest to `snapshot_share` of the size, or, where none is in reach,
    at the nearest turn of the assistant's: it starts a whole unit. What stays fits the target.
    """
    room = room_beside(policy, measure, summary_room)
    fits = [cut for cut, left in _cuts(layout, policy) if measure.part(left) <= room]
    distances = _distances(layout, policy.snapshot_share)
    turns = [cut for cut in fits if layout.units[cut].messages[0].role == "user" and distances[cut] <= REACH]
    cut = min(turns or fits, key=lambda cut: distances[cut], default=len(layout.units))
    kept = Kept(layout, measure)
    kept.indices.update(range(cut, len(layout.units)))
    return kept.rest


def _cuts(layout: Layout, policy: Policy) -> list[tuple[int, int]]:
    """Where the newer part may begin, and the tokens that would stay then: after every earlier summary, with something
    in it, and where there are too many messages with at most half of them.
    """
    units = layout.units
    first = max((index for index, unit in enumerate(units) if unit.stand_in), default=0) + 1
    if policy.crowded and units:
        counts = list(accumulate(len(unit.messages) for unit in units))
        first = max(first, bisect_left(counts, counts[-1] / 2) + 1)
    goes = accumulate(0 if index in layout.protected else unit.tokens for index, unit in enumerate(units))
    return [(cut, layout.tokens - gone) for cut, gone in enumerate(goes, 1) if first <= cut < len(units)]


def _distances(layout: Layout, share: int) -> list[float]:
    """How far from the share each unit begins, in percent of the size."""
    ends = accumulate(unit.tokens for unit in layout.units)
    return [
        abs(100 * (end - unit.tokens) / layout.tokens - share) for end, unit in zip(ends, layout.units, strict=True)
    ]
