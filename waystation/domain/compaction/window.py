"""Strategy `window`: the first messages, a summary of the whole middle, the last messages."""

from collections.abc import Iterable
from dataclasses import dataclass

from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import Measure
from waystation.domain.compaction.units import Layout, Unit


def middle(layout: Layout, policy: Policy, measure: Measure, summary_room: int) -> tuple[Unit, ...]:
    """The units that a summary is to stand for, in order; empty where there is nothing but earlier summaries.

    `primers` and `recents` are maxima: whole units go, recent ones before primers and from the inside out, until what
    stays fits half the target, and with a summary of `summary_room` tokens the target. Earlier summaries are never
    kept, so that they do not pile up. The newest unit, which the model may not have answered yet, stays where the
    target allows.
    """
    most = policy.target - measure.part(measure.fixed) - summary_room
    room = min(most, policy.target // 2)
    last_first = range(len(layout.units) - 1, -1, -1)
    kept = _Kept(layout.units, measure, set(layout.protected))
    kept.take(last_first[:1], room=most)
    kept.take(range(len(layout.units)), room, policy.primers)
    kept.take(last_first, room, policy.recents)
    covered = tuple(unit for index, unit in enumerate(layout.units) if index not in kept.indices)
    return covered if any(not unit.stand_in for unit in covered) else ()


@dataclass
class _Kept:
    """The units that stay, as far as they are chosen."""

    units: tuple[Unit, ...]
    measure: Measure
    indices: set[int]

    def take(self, run: Iterable[int], room: int, messages: int | None = None) -> None:
        """Units in this order, as long as all that is kept fits the room and the run has at most so many messages."""
        size = sum(self.units[index].tokens for index in self.indices)
        count = 0
        for index in run:
            unit = self.units[index]
            count += len(unit.messages)
            if messages is not None and count > messages:
                return
            if index in self.indices:
                continue
            size += unit.tokens
            if unit.stand_in or self.measure.part(size) > room:
                return
            self.indices.add(index)
