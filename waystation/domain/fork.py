"""Where a forked task comes from, and what of that it reuses."""

from collections.abc import Iterable, Mapping

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
    payers: Mapping[str, str] = {}
    """By agent: the task that paid for it, where that task reused it, too."""

    def payer(self, agent: str) -> str:
        """The task that paid for this agent."""
        return self.payers.get(agent, self.task_id)

    def sentences(self, agents: Iterable[str]) -> tuple[str, ...]:
        """Where these agents come from and who paid for them, by payer."""
        paid: dict[str, list[str]] = {}
        for agent in agents:
            paid.setdefault(self.payer(agent), []).append(agent)
        return tuple(
            f"reused from {self.task_id}, {'where it was paid' if payer == self.task_id else f'paid in {payer}'}: "
            f"{', '.join(names)}"
            for payer, names in paid.items()
        ) or (f"reused from {self.task_id}: nothing",)
