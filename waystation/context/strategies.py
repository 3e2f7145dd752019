"""Strategies of the summary stage: which messages a summary replaces. One function and one table row each.

- `window`: the first messages, a summary of the whole middle, the last messages.
- `snapshot`: the older part becomes a snapshot of the state, the newer part stays.
- `replace`: everything becomes one summary, or everything except the last few messages. Recently read files come back
  with it (`context.restoration`).
- `ends`: the first message, a summary of everything between, the last few messages.
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
    """Return the tokens that may stay.

    With a summary of `summary_room` tokens, the request is then within the target.
    """
    return policy.target - measure.scale_estimate(measure.fixed_tokens) - summary_room


@dataclass
class _Kept:
    """The units chosen to stay. Initially those that no compaction covers."""

    layout: TranscriptLayout
    token_estimator: TokenEstimator
    indices: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.indices = set(self.layout.protected_indices)

    def take(self, run: Iterable[int], room: int, messages: int | None = None) -> None:
        """Add units in this order while everything kept fits the room (tokens).

        `messages`: maximum number of messages of the run. Stops at an earlier summary: those are never kept, so that
        they do not pile up.
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
            if unit.is_replacement or self.token_estimator.scale_estimate(size) > room:
                return
            self.indices.add(index)

    @property
    def rest(self) -> tuple[MessageUnit, ...]:
        """The units to cover, in order; empty if there are only earlier summaries and markers."""
        covered = tuple(unit for index, unit in enumerate(self.layout.units) if index not in self.indices)
        return covered if any(not unit.is_replacement for unit in covered) else ()


LAST = 3
"""Default number of messages that stay at the end."""


def _ends(
    layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator, summary_room: int
) -> tuple[MessageUnit, ...]:
    """Return the units to summarise, in order; empty if there are only earlier summaries.

    `keep_last` is a maximum: whole units stay, as far as the target allows. The newest unit, which the model may not
    have answered yet, is the last to go, even if it has more messages.
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
    """Return the units to summarise, in order; empty if there are only earlier summaries.

    `keep_last` (0 by default) is a maximum: whole units stay, as far as the target allows.
    """
    kept = _Kept(layout, measure)
    last_first = range(len(layout.units) - 1, -1, -1)
    kept.take(last_first, compute_retainable_tokens(policy, measure, summary_room), policy.keep_last or 0)
    return kept.rest


USER_TURN_REACH_PERCENT = 20
"""In percent of the size: a user turn within this distance from the share is preferred to any other place."""


def select_snapshot_units(
    layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator, summary_room: int
) -> tuple[MessageUnit, ...]:
    """Return the units to summarise, in order; empty if there are only earlier summaries.

    The cut is at the user turn nearest to `snapshot_share` of the size, or, if none is in reach, at the nearest
    assistant turn, which starts a whole unit. What stays fits the target.
    """
    room = compute_retainable_tokens(policy, measure, summary_room)
    fits = [cut for cut, left in _cuts(layout, policy) if measure.scale_estimate(left) <= room]
    distances = _distances(layout, policy.snapshot_share)
    turns = [
        cut
        for cut in fits
        if layout.units[cut].messages[0].role == "user" and distances[cut] <= USER_TURN_REACH_PERCENT
    ]
    cut = min(turns or fits, key=lambda cut: distances[cut], default=len(layout.units))
    kept = _Kept(layout, measure)
    kept.indices.update(range(cut, len(layout.units)))
    return kept.rest


def _cuts(layout: TranscriptLayout, policy: CompactionPolicy) -> list[tuple[int, int]]:
    """Return where the newer part may begin, with the tokens that would then stay.

    It must begin after every earlier summary and not be empty; with too many messages, it has at most half of them.
    """
    units = layout.units
    first = max((index for index, unit in enumerate(units) if unit.is_replacement), default=0) + 1
    if policy.too_many_messages and units:
        counts = list(accumulate(len(unit.messages) for unit in units))
        first = max(first, bisect_left(counts, counts[-1] / 2) + 1)
    goes = accumulate(0 if index in layout.protected_indices else unit.tokens for index, unit in enumerate(units))
    return [(cut, layout.tokens - gone) for cut, gone in enumerate(goes, 1) if first <= cut < len(units)]


def _distances(layout: TranscriptLayout, share: int) -> list[float]:
    """Return the distance of each unit's start from the share, in percent of the size."""
    ends = accumulate(unit.tokens for unit in layout.units)
    return [
        abs(100 * (end - unit.tokens) / layout.tokens - share) for end, unit in zip(ends, layout.units, strict=True)
    ]


def select_window_units(
    layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator, summary_room: int
) -> tuple[MessageUnit, ...]:
    """Return the units to summarise, in order; empty if there are only earlier summaries.

    `primers` and `recents` are maxima: whole units go, recent ones before primers and from the inside out, until what
    stays fits half the target, and, with a summary of `summary_room` tokens, the target. The newest unit, which the
    model may not have answered yet, stays if the target allows.
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
    """A compaction strategy."""

    select_units: Callable[[TranscriptLayout, CompactionPolicy, TokenEstimator, int], tuple[MessageUnit, ...]]
    """Returns the units to cover, in order, given the tokens of a summary; empty if there is nothing to cover."""
    prompt: str
    """Name of the summary's prompt."""
    restores_files: bool = False
    """Whether files that were read in the middle come back with the summary (`context.restoration`)."""


STRATEGIES: Mapping[StrategyName, CompactionStrategy] = {
    "window": CompactionStrategy(select_window_units, "condense"),
    "snapshot": CompactionStrategy(select_snapshot_units, "snapshot"),
    "replace": CompactionStrategy(select_replace_units, "condense", restores_files=True),
    "ends": CompactionStrategy(_ends, "condense"),
}
