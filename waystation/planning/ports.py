"""Ports to the plans of a task in the store."""

from typing import Protocol

from waystation.kernel.scopes import ReadScope
from waystation.planning.plan import Plan, PlanVersion


class PlanReader(Protocol):
    """Plans of a task."""

    async def get_newest_plan(self, task_id: str, reader: ReadScope) -> Plan | None:
        """Return the newest plan, including its goals."""
        ...

    async def list_plan_versions(self, task_id: str, reader: ReadScope) -> tuple[PlanVersion, ...]:
        """Return all plans of the task, oldest first, each with its goals and reason."""
        ...


class PlanRepository(PlanReader, Protocol):
    """Plans of a task, and those that replace them."""

    async def save_plan(self, task_id: str, plan: Plan) -> None:
        """Store the first plan with its goals. If there is one, it stays."""
        ...

    async def save_plan_version(self, task_id: str, version: PlanVersion) -> None:
        """Store a plan that replaces the previous one. The first plan of each number stays."""
        ...
