"""References to a task and to an agent run: hashes and ids, no names."""

from waystation.kernel.roles import AgentRole
from waystation.kernel.scopes import TaskScope
from waystation.kernel.value import Value


class TaskRef(Value):
    """Reference to a task: hashes and ids, no names."""

    store_id: str
    tenant: str
    session: str
    task_id: str

    @property
    def scope(self) -> TaskScope:
        """Scope of everything that is read and stored for the task."""
        return TaskScope(tenant=self.tenant, session=self.session, task_id=self.task_id)


class RunRef(Value):
    """Reference to an agent run. `tenant` and `session` are hashes; their names live in the store."""

    store_id: str
    tenant: str
    session: str
    task_id: str
    step_id: str
    role: AgentRole

    @property
    def run_id(self) -> str:
        """Id that is unique across all tasks."""
        return f"{self.task_id}/{self.step_id}"

    @property
    def task_ref(self) -> TaskRef:
        """Reference to the run's task."""
        return TaskRef(store_id=self.store_id, tenant=self.tenant, session=self.session, task_id=self.task_id)

    @property
    def scope(self) -> TaskScope:
        """Scope of everything that the agent reads from the store: its task's."""
        return TaskScope(tenant=self.tenant, session=self.session, task_id=self.task_id)
