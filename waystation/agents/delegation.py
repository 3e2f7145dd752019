"""Delegation to subagents: its limits, the orders, and the results that come back.

All of it crosses workflow history, so it holds IDs, roles, redacted titles and numbers. Goals and results stay in
transcripts and the store.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from waystation.agents.deliverables import WorkCounts
from waystation.budgets.budget import RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.identifiers import Identifier
from waystation.kernel.roles import Role
from waystation.kernel.value import Value

SUBAGENT_ID_SEPARATOR = "."
"""Separates an agent's ID from the number of its subagent: `research-1.2`. IDs of steps do not contain it."""


class DelegationConfig(Value):
    """Limits of delegation, fixed when the task was submitted."""

    max_depth: int = 2
    """Maximum depth. Subagents of an agent of the plan are at depth 1."""
    max_concurrent: int = 8
    """Maximum number of concurrent subagents of one agent."""
    budget_percent: int = 80
    """Percentage of an agent's remaining budget that its subagents may hold together."""


class SubagentOrder(Value):
    """A subagent that an agent requested."""

    id: Identifier
    call_id: Identifier
    """ID of the `delegate` call that requested it, which its result answers."""
    role: Role
    title: str
    """Redacted."""
    limit: Limit
    """Transferred from the parent's remaining budget."""


class SubagentResult(Value):
    """How a subagent ended. Its work is in the store."""

    id: str
    call_id: str
    partial: bool
    reason: str = ""


class SubagentProgress(Value):
    """A subagent's progress, reported to its task after each leg."""

    id: str
    totals: RunUsage
    leg: int
    work_counts: WorkCounts


def make_subagent_id(parent: str, number: int) -> str:
    """Return the ID of an agent's subagent. Numbers are never reused, even if the conversation was rewound."""
    return f"{parent}{SUBAGENT_ID_SEPARATOR}{number}"


def get_parent_id(step_id: str) -> str | None:
    """Return the agent that started this one; None for an agent of the plan."""
    return step_id.rpartition(SUBAGENT_ID_SEPARATOR)[0] or None


def get_step_id(agent: str) -> str:
    """Return the step that an agent of the plan, or its subagent, works on."""
    return agent.partition(SUBAGENT_ID_SEPARATOR)[0]


def parse_subagent_number(step_id: str) -> int:
    """Return the number of a subagent among its parent's, from 1."""
    return int(step_id.rpartition(SUBAGENT_ID_SEPARATOR)[2])


def get_delegation_depth(step_id: str) -> int:
    """Return the depth of an agent: 0 for an agent of the plan."""
    return step_id.count(SUBAGENT_ID_SEPARATOR)


def can_delegate(step_id: str, config: DelegationConfig | None) -> bool:
    """Return whether an agent at this depth may start subagents. Without a delegation config none may."""
    return config is not None and get_delegation_depth(step_id) < config.max_depth


def sum_order_limits(orders: Sequence[SubagentOrder]) -> Amount:
    """Return the total of the orders' limits."""
    return sum((order.limit.amount for order in orders), Amount())


class TeammateState(Value):
    """An agent of the plan or a subagent, and its state."""

    id: str
    state: str


class StepStatus(Protocol):
    """ID and state of a step, or of a subagent, which is listed among the steps."""

    @property
    def id(self) -> str:
        """ID of the step and of its agent."""
        ...

    @property
    def state(self) -> str:
        """State of the step."""
        ...


def list_teammates(steps: Iterable[StepStatus], step_id: str) -> tuple[TeammateState, ...]:
    """Return the agents of the plan and the subagents of the same parent, including the agent itself."""
    return tuple(
        TeammateState(id=step.id, state=step.state)
        for step in steps
        if get_parent_id(step.id) is None or get_parent_id(step.id) == get_parent_id(step_id)
    )
