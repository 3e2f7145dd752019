"""Plans: the first of a task, and those that revisions made of it. None of them is changed or removed."""

from sqlalchemy import func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_once
from waystation.adapters.store.part import StorePart, owned, reading, writing
from waystation.adapters.store.schema import plan_revisions, tasks
from waystation.adapters.store.sealed import bound
from waystation.adapters.store.tasks import require_task, unknown_task
from waystation.domain.ownership import Reader
from waystation.domain.plan import PLANNING_ID, Plan
from waystation.domain.plan_change import PlanVersion


class SqlPlans(StorePart):
    """The plans of the port `TaskStore`."""

    @writing
    async def save_plan(self, connection: AsyncConnection, task_id: str, plan: Plan) -> None:
        """Keep the plan with its goals. The first one stays. Raises UnknownTask."""
        body = func.coalesce(tasks.c.plan, literal(bound(plan.model_dump_json(), task_id), tasks.c.plan.type))
        changed = await connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(plan=body))
        if changed.rowcount != 1:
            raise unknown_task(task_id)

    @writing
    async def save_revision(self, connection: AsyncConnection, task_id: str, version: PlanVersion) -> None:
        """Keep a plan that takes the place of the one before. Of each number the first stays. Raises UnknownTask."""
        await require_task(connection, task_id)
        body = bound(version.model_dump_json(), task_id, version.number)
        row = {"task_id": task_id, "number": version.number, "body": body}
        await add_once(connection, plan_revisions, {**row, "made_at": self._clock()})

    async def plan(self, task_id: str, reader: Reader) -> Plan | None:
        """The newest plan, goals included."""
        versions = await self.plan_versions(task_id, reader)
        return versions[-1].plan if versions else None

    @reading
    async def plan_versions(self, connection: AsyncConnection, task_id: str, reader: Reader) -> tuple[PlanVersion, ...]:
        """All plans of the task, oldest first, each with its goals and why it was made."""
        own = (tasks.c.task_id == task_id, owned(tasks, reader))
        found = await connection.execute(select(tasks.c.plan).where(*own))
        body: str | None = found.scalar_one_or_none()
        if body is None:
            return ()
        first = PlanVersion(number=1, plan=Plan.model_validate_json(body), made_by=PLANNING_ID)
        bodies = select(plan_revisions.c.body).where(plan_revisions.c.task_id == task_id)
        later = await connection.execute(bodies.order_by(plan_revisions.c.number))
        return first, *(PlanVersion.model_validate_json(text) for text in later.scalars())
