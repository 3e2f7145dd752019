"""The strategies: what of a conversation a summary stands for. One function each, and one row of a table.

Strategies of rung 3, by name: what a summary is to stand for, and how it is asked for.

Strategy `_ends`: the first message, a summary of everything between, the last few messages.

Strategy `replace`: everything into one summary, or everything but the last few messages.

What it took of the files that were read comes back with the summary: `context.restoration`.

Strategy `window`: the first messages, a summary of the whole middle, the last messages.

Strategy `snapshot`: the older part becomes a snapshot of the state, the newer part stays as it is.

What stays beside a summary: chosen unit by unit, and never more than fits.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from waystation.context.policy import CompactionPolicy, StrategyName
from waystation.context.tokens import TokenEstimator
from waystation.context.units import MessageUnit, TranscriptLayout


def compute_retainable_tokens(policy: CompactionPolicy, measure: TokenEstimator, summary_room: int) -> int:
    """Tokens that may stay, so that with a summary of `summary_room` tokens the request is within the target."""
    return policy.target - measure.scale_estimate(measure.fixed) - summary_room


@dataclass
class _Kept:
    """The units that stay, as far as they are chosen. To begin with, those that no compaction covers."""

    layout: TranscriptLayout
    measure: TokenEstimator
    indices: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.indices = set(self.layout.protected_indices)

    def take(self, run: Iterable[int], room: int, messages: int | None = None) -> None:
        """Units in this order, as long as all that is kept fits the room (tokens) and the run has at most so many
        messages. It ends at an earlier summary: those are never kept, so that they do not pile up.
        """
        units = self.layout.units
        size = sum(units[index].tokens for index in self.indices)
        count = 0
        for index in run:
            unit = units[index]
            count += len(unit.messages)
            if messages is not None and count > messages:
                return
            if index in self.indices:
                continue
            size += unit.tokens
            if unit.stand_in or self.measure.scale_estimate(size) > room:
                return
            self.indices.add(index)

    @property
    def rest(self) -> tuple[MessageUnit, ...]:
        """The units to cover, in order; empty where there are none but earlier summaries and markers."""
        covered = tuple(unit for index, unit in enumerate(self.layout.units) if index not in self.indices)
        return covered if any(not unit.stand_in for unit in covered) else ()


LAST = 3
"""Messages that stay at the end, unless the policy says otherwise."""


def _ends(
    layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator, summary_room: int
) -> tuple[MessageUnit, ...]:
    """The units that a summary is to stand for, in order; empty where there is nothing but earlier summaries.

    `keep_last` is a maximum: whole units stay, as far as the target allows. The newest unit, which the model may not
    have answered yet, is the last to go, also where it has more messages.
    """
    room = compute_retainable_tokens(policy, measure, summary_room)
    last_first = range(len(layout.units) - 1, -1, -1)
    kept = _Kept(layout, measure)
    kept.take(last_first[:1], room)
    kept.take(range(len(layout.units))[:1], room)
    kept.take(last_first, room, LAST if policy.keep_last is None else policy.keep_last)
    return kept.rest


def select_replace_units(
    layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator, summary_room: int
) -> tuple[MessageUnit, ...]:
    """The units that a summary is to stand for, in order; empty where there is nothing but earlier summaries.

    `keep_last` (none, unless the policy says so) is a maximum: whole units stay, as far as the target allows.
    """
    kept = _Kept(layout, measure)
    last_first = range(len(layout.units) - 1, -1, -1)
    kept.take(last_first, compute_retainable_tokens(policy, measure, summary_room), policy.keep_last or 0)
    return kept.rest


REACH = 20
"""Percent of the size: a turn of the user's no farther than this from the share is preferred to any other place."""


def select_snapshot_units(
    layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator, summary_room: int
) -> tuple[MessageUnit, ...]:
    """The units that a snapshot is to stand for, in order; empty where there is nothing but earlier ones.

    The cut is at the turn of the user's that is nearest to `snapshot_share` of the size, or, where none is in reach,
    at the nearest turn of the assistant's: it starts a whole unit. What stays fits the target.
    """
    room = compute_retainable_tokens(policy, measure, summary_room)
    fits = [cut for cut, left in _cuts(layout, policy) if measure.scale_estimate(left) <= room]
    distances = _distances(layout, policy.snapshot_share)
    turns = [cut for cut in fits if layout.units[cut].messages[0].role == "user" and distances[cut] <= REACH]
    cut = min(turns or fits, key=lambda cut: distances[cut], default=len(layout.units))
    kept = _Kept(layout, measure)
    kept.indices.update(range(cut, len(layout.units)))
    return kept.rest


def _cuts(layout: TranscriptLayout, policy: CompactionPolicy) -> list[tuple[int, int]]:
    """Where the newer part may begin, and the tokens that would stay then: after every earlier summary, with something
    in it, and where there are too many messages with at most half of them.
    """
    units = layout.units
    first = max((index for index, unit in enumerate(units) if unit.stand_in), default=0) + 1
    if policy.crowded and units:
        counts = list(accumulate(len(unit.messages) for unit in units))
        first = max(first, bisect_left(counts, counts[-1] / 2) + 1)
    goes = accumulate(0 if index in layout.protected_indices else unit.tokens for index, unit in enumerate(units))
    return [(cut, layout.tokens - gone) for cut, gone in enumerate(goes, 1) if first <= cut < len(units)]


def _distances(layout: TranscriptLayout, share: int) -> list[float]:
    """How far from the share each unit begins, in percent of the size."""
    ends = accumulate(unit.tokens for unit in layout.units)
    return [
        abs(100 * (end - unit.tokens) / layout.tokens - share) for end, unit in zip(ends, layout.units, strict=True)
    ]


def select_window_units(
    layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator, summary_room: int
) -> tuple[MessageUnit, ...]:
    """The units that a summary is to stand for, in order; empty where there is nothing but earlier summaries.

    `primers` and `recents` are maxima: whole units go, recent ones before primers and from the inside out, until what
    stays fits half the target, and with a summary of `summary_room` tokens the target. The newest unit, which the
    model may not have answered yet, stays where the target allows.
    """
    most = compute_retainable_tokens(policy, measure, summary_room)
    room = min(most, policy.target // 2)
    last_first = range(len(layout.units) - 1, -1, -1)
    kept = _Kept(layout, measure)
    kept.take(last_first[:1], most)
    kept.take(range(len(layout.units)), room, policy.primers)
    kept.take(last_first, room, policy.recents)
    return kept.rest


class CompactionStrategy(NamedTuple):
    """A strategy."""

    middle: Callable[[TranscriptLayout, CompactionPolicy, TokenEstimator, int], tuple[MessageUnit, ...]]
    """The units to cover, in order, given the room that a summary needs; empty where there is nothing to cover."""
    prompt: str
    """Name of the prompt that the summary is asked for with."""
    restores_files: bool = False
    """Whether files that were read in the middle come back with the summary (`context.restoration`)."""


STRATEGIES: Mapping[StrategyName, CompactionStrategy] = {
    "window": CompactionStrategy(select_window_units, "condense"),
    "snapshot": CompactionStrategy(select_snapshot_units, "snapshot"),
    "replace": CompactionStrategy(select_replace_units, "condense", restores_files=True),
    "ends": CompactionStrategy(_ends, "condense"),
}
