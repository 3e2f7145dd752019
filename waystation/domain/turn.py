"""One turn's two commits, and the keys that make each of them count once."""

from datetime import datetime
from typing import Literal

from waystation.domain.amount import Amount
from waystation.domain.budget import Usage
from waystation.domain.value import Value


class Fence(Value):
    """The right to write to one agent run. Every attempt takes a new one; only the newest holds."""

    run_id: str
    number: int


class Intent(Value):
    """Recorded before a model call: without a charge of the same key it is shown as possibly billed.

    The key is of the agent run and the turn (`turn-12`), the compaction (`summary-…`), the plan (`plan-1`) or the
    call of the tool (`search-…`); it has no attempt number.
    """

    key: str
    model: str
    worst_case: Amount
    """A certain upper bound of the input, and the reply's maximum."""
    at: datetime


class Charge(Value):
    """What a committed reply cost. Counts once for its key."""

    key: str
    kind: Literal["turn", "summary", "plan", "review", "search"]
    model: str
    usage: Usage
    cost_micro_usd: int | None
    """Millionths of a dollar; None where the model has no known price."""
    at: datetime
