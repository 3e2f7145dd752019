"""Scopes for tests that are not about access."""

from waystation.kernel.scopes import SystemScope, TaskScope
from waystation.tasks.task import tenant_hash

SYSTEM_SCOPE = SystemScope()


def make_task_scope(task_id: str) -> TaskScope:
    """Make the scope of a task in a store without others."""
    return TaskScope(tenant=tenant_hash("local"), session="session", task_id=task_id)


TASK_1_SCOPE = make_task_scope("task-1")
