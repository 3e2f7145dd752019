"""Who else works on a task, as an agent is told: ids and states, no text."""

from collections.abc import Iterable
from typing import Protocol

from waystation.domain.delegation import parent_of
from waystation.domain.value import Value


class Teammate(Value):
    """An agent of the plan or a subagent, and how far it is."""

    id: str
    state: str


class Shown(Protocol):
    """A step as people see it."""

    @property
    def id(self) -> str:
        """Of the step, and of its agent."""
        ...

    @property
    def state(self) -> str:
        """How far it is."""
        ...


def team_of(steps: Iterable[Shown], step_id: str) -> tuple[Teammate, ...]:
    """The plan, and the subagents of the same parent, among all steps of a task: the agent itself is one of them."""
    return tuple(
        Teammate(id=step.id, state=step.state)
        for step in steps
        if parent_of(step.id) is None or parent_of(step.id) == parent_of(step_id)
    )
