"""Who asks, in tests that are not about who may."""

from waystation.kernel.scopes import SystemScope, TaskScope
from waystation.tasks.task import tenant_hash

ANYONE = SystemScope()


def of_task(task_id: str) -> TaskScope:
    """A task of a store that has no others."""
    return TaskScope(tenant=tenant_hash("local"), session="session", task_id=task_id)


TASK_1 = of_task("task-1")
