"""Delegation: what an agent hands to subagents, within which bounds, and what it hears back of them.

All of it crosses workflow history: ids, roles, redacted titles and numbers. Goals and results stay in transcripts and
the store.

Who else works on a task, as an agent is told: ids and states, no text.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from waystation.agents.deliverables import WorkCounts
from waystation.budgets.budget import RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.roles import Role
from waystation.kernel.value import Value

SUBAGENT_ID_SEPARATOR = "."
"""Between the id of an agent and the number of its subagent: `research-1.2`. Ids of steps hold none."""


class DelegationConfig(Value):
    """Within which bounds agents delegate, fixed when their task was submitted."""

    depth: int = 2
    """Subagents of an agent of the plan are at depth 1."""
    width: int = 8
    """Most subagents of one agent that work at the same time."""
    share: int = 80
    """Percent of what an agent has left that those may hold together."""


class SubagentOrder(Value):
    """One subagent that an agent asked for."""

    id: str
    call_id: str
    """The call of `delegate` that asked for it, and that its result answers."""
    role: Role
    title: str
    """Redacted."""
    limit: Limit
    """Carved from what its parent has left."""


class SubagentResult(Value):
    """How a subagent ended. What it made is in the store."""

    id: str
    call_id: str
    partial: bool
    reason: str = ""


class SubagentProgress(Value):
    """How far a subagent is, told to its task after each leg."""

    id: str
    totals: RunUsage
    leg: int
    made: WorkCounts


def make_subagent_id(parent: str, number: int) -> str:
    """The id of an agent's subagent. Numbers are never used again, also where a conversation was taken back."""
    return f"{parent}{SUBAGENT_ID_SEPARATOR}{number}"


def get_parent_id(step_id: str) -> str | None:
    """The agent that started this one; None for an agent of the plan."""
    return step_id.rpartition(SUBAGENT_ID_SEPARATOR)[0] or None


def get_step_id(agent: str) -> str:
    """The step that an agent of the plan, or its subagent, works on."""
    return agent.partition(SUBAGENT_ID_SEPARATOR)[0]


def parse_subagent_number(step_id: str) -> int:
    """Which of its parent's subagents this is, from 1."""
    return int(step_id.rpartition(SUBAGENT_ID_SEPARATOR)[2])


def get_delegation_depth(step_id: str) -> int:
    """0 for an agent of the plan."""
    return step_id.count(SUBAGENT_ID_SEPARATOR)


def can_delegate(step_id: str, terms: DelegationConfig | None) -> bool:
    """Whether an agent at this depth may start others. Without terms for it none does."""
    return terms is not None and get_delegation_depth(step_id) < terms.depth


def sum_order_limits(orders: Sequence[SubagentOrder]) -> Amount:
    """What the orders hold together."""
    return sum((order.limit.amount for order in orders), Amount())


class TeammateState(Value):
    """An agent of the plan or a subagent, and how far it is."""

    id: str
    state: str


class StepView(Protocol):
    """A step as people see it."""

    @property
    def id(self) -> str:
        """Of the step, and of its agent."""
        ...

    @property
    def state(self) -> str:
        """How far it is."""
        ...


def list_teammates(steps: Iterable[StepView], step_id: str) -> tuple[TeammateState, ...]:
    """The plan, and the subagents of the same parent, among all steps of a task: the agent itself is one of them."""
    return tuple(
        TeammateState(id=step.id, state=step.state)
        for step in steps
        if get_parent_id(step.id) is None or get_parent_id(step.id) == get_parent_id(step_id)
    )
