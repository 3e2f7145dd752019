"""Scopes: whose content a read may see. Every read of the store takes one of these, and its query is restricted to it.

A content hash is not a capability. It appears in clear text in histories and conversations, so it only yields the text
if a task within the reader's scope has that text too. Content of others and unknown content look the same.
"""

from typing import Literal, TypeAlias

from waystation.kernel.value import Value


class TenantScope(Value):
    """A person or the client of a person: everything of all tasks of the tenant. `tenant` is a hash."""

    tenant: str


class SessionScope(TenantScope):
    """What the tasks of one session share: their memory, and the reports of finished tasks. `session` is a hash."""

    session: str


class TaskScope(SessionScope):
    """One task and the agents that work for it. New content belongs to one of these."""

    task_id: str

    def get_recall_scope(self, scope: Literal["session", "team"]) -> TenantScope:
        """Return the scope of what memory shows an agent of the task: its session, or its whole tenant."""
        if scope == "team":
            return TenantScope(tenant=self.tenant)
        return SessionScope(tenant=self.tenant, session=self.session)


class SystemScope(Value):
    """The installation's own maintenance across all tenants: retention, the outbox, rebuilding memory.

    Never for anything that works for a person or an agent.
    """


ReadScope: TypeAlias = TenantScope | SystemScope
"""Scope of a reader."""
