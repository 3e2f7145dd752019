"""Where a forked task comes from, and what of that it reuses."""

from waystation.domain.value import Value


class ForkedFrom(Value):
    """The beginning of a task that reuses finished steps of another one."""

    task_id: str
    """Of the other one."""
    step: str
    """Id of the step that begins anew, with all that builds on it."""


class Reused(Value):
    """Agents of another task whose work counts as done in this one, and costs nothing here."""

    task_id: str
    agents: tuple[str, ...]
    """Ids of steps, and of their subagents."""
