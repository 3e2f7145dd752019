"""What stays beside a summary: chosen unit by unit, and never more than fits."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import Measure
from waystation.domain.compaction.units import Layout, Unit


def room_beside(policy: Policy, measure: Measure, summary_room: int) -> int:
    """Tokens that may stay, so that with a summary of `summary_room` tokens the request is within the target."""
    return policy.target - measure.part(measure.fixed) - summary_room


@dataclass
class Kept:
    """The units that stay, as far as they are chosen. To begin with, those that no compaction covers."""

    layout: Layout
    measure: Measure
    indices: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.indices = set(self.layout.protected)

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
            if unit.stand_in or self.measure.part(size) > room:
                return
            self.indices.add(index)

    @property
    def rest(self) -> tuple[Unit, ...]:
        """The units to cover, in order; empty where there are none but earlier summaries and markers."""
        covered = tuple(unit for index, unit in enumerate(self.layout.units) if index not in self.indices)
        return covered if any(not unit.stand_in for unit in covered) else ()
