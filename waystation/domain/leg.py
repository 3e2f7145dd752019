"""A leg: the stretch of an agent run that one activity carries out. What it is given, and how it can end.

Both cross the workflow's history, so they hold references and numbers, never a conversation.
"""

from typing import Annotated, Literal

from pydantic import Field

from waystation.domain.budget import RunTotals
from waystation.domain.plan import AgentRole
from waystation.domain.value import Value


class RunRef(Value):
    """Which agent run this is. `tenant` and `session` are hashes; their names live in the store."""

    store_id: str
    tenant: str
    session: str
    task_id: str
    step_id: str
    role: AgentRole

    @property
    def run_id(self) -> str:
        """Unique over all tasks."""
        return f"{self.task_id}/{self.step_id}"


class AgentTerms(Value):
    """The settings of an agent run, fixed when its task was submitted."""

    model: str
    condense_model: str
    window: int
    """Working window in tokens: the largest request that this agent sends on purpose."""
    trigger: int
    """Tokens of the whole request at which the context counts as full (75 % of the window)."""
    target: int
    """Tokens that a compaction aims for (37.5 % of the window)."""
    max_output: int = 4_000
    """Most tokens of one reply."""
    output_floor: int = 256
    """Under this a reply is not worth a call: the leg ends instead."""
    turn_limit: int = 12
    """Turns of one leg."""
    hard: bool = False
    """Nobody will be asked for more: the agent is told what it has left, so that it hands in before that is spent."""


class LegRequest(Value):
    """One leg to carry out. Running it again after its outcome was committed returns that outcome."""

    run: RunRef
    leg: int
    limit: int
    """Tokens that the whole agent run may have spent when this leg ends: cumulative, so a retry computes the same."""
    terms: AgentTerms
    scale: float = 1.0
    """What the provider counted for the run's last request, over what was estimated."""


class Standing(Value):
    """Where the agent run stands when a leg ends."""

    totals: RunTotals
    scale: float = 1.0
    notes: tuple[str, ...] = ()
    """What a person should know of this leg ("memory did not answer"), without content."""


class _Ended(Value):
    standing: Standing


class Finished(_Ended):
    """The agent handed in its result."""

    type: Literal["finished"] = "finished"
    partial: bool = False
    """The model refused, or stopped without a result: what there is was delivered."""
    reason: str = ""


class ContextFull(_Ended):
    """The next request would be over the trigger: compact, then go on."""

    type: Literal["context_full"] = "context_full"
    request_tokens: int


class AllowanceSpent(_Ended):
    """The next call's worst case no longer fits under the limit."""

    type: Literal["allowance_spent"] = "allowance_spent"
    needed: int
    """Tokens that the next call needs at least, over what is left."""


class TurnLimit(_Ended):
    """The leg's turn or time limit was reached; the next leg goes on."""

    type: Literal["turn_limit"] = "turn_limit"


class Yielded(_Ended):
    """The worker is shutting down; another one goes on."""

    type: Literal["yielded"] = "yielded"


LegOutcome = Annotated[
    Finished | ContextFull | AllowanceSpent | TurnLimit | Yielded,
    Field(discriminator="type"),
]
