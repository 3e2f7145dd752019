"""Strategies of rung 3, by name: what a summary is to stand for, and how it is asked for."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from waystation.domain.compaction.policy import Policy, Strategy
from waystation.domain.compaction.strategies import ends, replace, snapshot, window
from waystation.domain.compaction.tokens import Measure
from waystation.domain.compaction.units import Layout, Unit


class Chooser(NamedTuple):
    """A strategy."""

    middle: Callable[[Layout, Policy, Measure, int], tuple[Unit, ...]]
    """The units to cover, in order, given the room that a summary needs; empty where there is nothing to cover."""
    prompt: str
    """Name of the prompt that the summary is asked for with."""
    restores_files: bool = False
    """Whether files that were read in the middle come back with the summary (`domain.compaction.restored`)."""


STRATEGIES: Mapping[Strategy, Chooser] = {
    "window": Chooser(window.middle, "condense"),
    "snapshot": Chooser(snapshot.middle, "snapshot"),
    "replace": Chooser(replace.middle, "condense", restores_files=True),
    "ends": Chooser(ends.middle, "condense"),
}
