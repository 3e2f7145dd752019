"""The layers of a request to the model: their order, their shares of the window, and what of each gives way first.

The allocator decides about what is put into a request on purpose; how a conversation is made smaller is decided by the
ladder (`domain.compaction.ladder`), so its parts are firm here: measured, never dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from waystation.domain.value import Value

LIMIT_PERCENT = 90
"""Of the window: what an estimate may be wrong by is kept free."""


class Layer(StrEnum):
    """In the order of a request: what never changes first, so that the prompt cache holds."""

    SYSTEM = "system and policy"
    """System prompt and tools."""
    CONTRACT = "task contract"
    """Question, instructions, criteria, output form, deadline, the step and what it builds on."""
    RUNTIME = "runtime state"
    """The reminder at the end of each request."""
    SHORT_TERM = "short-term memory"
    """What agent and user have said, and the agent's calls."""
    EPISODIC = "episodic memory"
    """Summaries and markers of what is hidden."""
    SEMANTIC = "semantic memory"
    """Notes and findings that were read."""
    PROCEDURAL = "procedural memory"
    """The user's procedures."""
    OBSERVATIONS = "observations"
    """Results of tools."""
    RETRIEVED = "retrieved evidence"
    """Recalled passages, and the names of documents."""
    WORK = "work buffer"
    """Room for the reply."""


SHARES: Mapping[Layer, int] = {
    Layer.SYSTEM: 5,
    Layer.CONTRACT: 5,
    Layer.RUNTIME: 3,
    Layer.SHORT_TERM: 18,
    Layer.EPISODIC: 13,
    Layer.SEMANTIC: 9,
    Layer.PROCEDURAL: 7,
    Layer.OBSERVATIONS: 22,
    Layer.RETRIEVED: 9,
    Layer.WORK: 9,
}
"""Percent of the limit."""


class Part(Value):
    """Something that wants to be in a request. Within a layer parts stand in the order in which they are shown."""

    name: str
    tokens: int
    firm: bool = False
    """It cannot be left out."""
    divisible: bool = False
    """Some of it is of use, too."""
    relevance: float = 0.0
    """From 0 to 1."""
    repeatable: bool = False
    """It can be had again by asking for it."""


class Rule(NamedTuple):
    """What of a layer gives way first."""

    words: str
    order: Callable[[int, Part], tuple[float, ...]]
    """Parts by what this says of their place and of them: the greatest gives way first."""


def _by_place(place: int, _: Part) -> tuple[float, ...]:
    return (place,)


def _by_age(place: int, _: Part) -> tuple[float, ...]:
    return (-place,)


def _by_relevance(place: int, part: Part) -> tuple[float, ...]:
    return (-part.relevance, place)


def _by_repetition(place: int, part: Part) -> tuple[float, ...]:
    return (part.repeatable, -place)


RULES: Mapping[Layer, Rule] = {
    Layer.SYSTEM: Rule("the last named", _by_place),
    Layer.CONTRACT: Rule("the last named", _by_place),
    Layer.RUNTIME: Rule("the last named", _by_place),
    Layer.SHORT_TERM: Rule("the oldest", _by_age),
    Layer.EPISODIC: Rule("the oldest", _by_age),
    Layer.SEMANTIC: Rule("what can be read again, the oldest first", _by_repetition),
    Layer.PROCEDURAL: Rule("the least relevant", _by_relevance),
    Layer.OBSERVATIONS: Rule("what can be read again, the oldest first", _by_repetition),
    Layer.RETRIEVED: Rule("the least relevant", _by_relevance),
    Layer.WORK: Rule("the last named", _by_place),
}

Demands = Mapping[Layer, Sequence[Part]]
"""What wants to be in a request, by layer; a layer that is not there wants nothing."""


class Row(Value):
    """What one layer asked for, and what it got. All in tokens."""

    layer: Layer
    share: int
    asked: int
    got: int
    kept: tuple[str, ...] = ()
    """The parts that are in, in their order; divisible ones also where they are not whole."""
    gave_way: tuple[str, ...] = ()
    """The parts that are not, or not whole: the first to give way first."""


class Allocation(Value):
    """Who gets what of a request. Rows stand in the order of the layers, one for each."""

    limit: int
    rows: tuple[Row, ...]

    @property
    def got(self) -> int:
        """Tokens of all layers: never over the limit."""
        return sum(row.got for row in self.rows)

    def row(self, layer: Layer) -> Row:
        """Of this layer."""
        return next(row for row in self.rows if row.layer is layer)


def limit_of(window: int) -> int:
    """What a request may have, in tokens."""
    return window * LIMIT_PERCENT // 100


def share_of(layer: Layer, window: int) -> int:
    """A layer's share of a window, in tokens."""
    return limit_of(window) * SHARES[layer] // 100


def allocate(window: int, demands: Demands) -> Allocation:
    """Share a window out. The same demands always get the same.

    A layer whose firm parts are over its share takes what they need, and the others share the rest as their shares are
    to each other. What a layer leaves of its room flows down to the next one.
    """
    limit = limit_of(window)
    firm = {layer: sum(part.tokens for part in demands.get(layer, ()) if part.firm) for layer in Layer}
    rooms = _rooms(limit, firm)
    rows: list[Row] = []
    left, flowing = limit, 0
    for layer in Layer:
        room = min(left, rooms[layer] + flowing)
        row = _row(layer, share_of(layer, window), room, demands.get(layer, ()))
        left, flowing = left - row.got, room - row.got
        rows.append(row)
    return Allocation(limit=limit, rows=tuple(rows))


def _rooms(limit: int, firm: Mapping[Layer, int]) -> Mapping[Layer, int]:
    """What each layer may have before anything flows down."""
    over: set[Layer] = set()
    while True:
        rest = max(0, limit - sum(firm[layer] for layer in over))
        percent = sum(share for layer, share in SHARES.items() if layer not in over)
        rooms = {layer: firm[layer] if layer in over else rest * share // percent for layer, share in SHARES.items()}
        more = {layer for layer in SHARES if layer not in over and firm[layer] > rooms[layer]}
        if not more:
            return rooms
        over |= more


def _row(layer: Layer, share: int, room: int, parts: Sequence[Part]) -> Row:
    """Firm parts first, then the others: what gives way last is served first."""
    places = {part.name: place for place, part in enumerate(parts)}
    served = sorted(parts, key=lambda part: (not part.firm, *RULES[layer].order(places[part.name], part)))
    got: dict[str, int] = {}
    for part in served:
        left = room - sum(got.values())
        if part.tokens <= left:
            got[part.name] = part.tokens
        elif part.firm or (part.divisible and left):
            got[part.name] = left
    return Row(
        layer=layer,
        share=share,
        asked=sum(part.tokens for part in parts),
        got=sum(got.values()),
        kept=tuple(part.name for part in parts if part.name in got),
        gave_way=tuple(part.name for part in reversed(served) if got.get(part.name) != part.tokens),
    )
