"""Whose content is, and who asks for it: every read of the store names one of these, and its query holds to it.

A content hash is no capability. It stands in clear in histories and in conversations, so whoever has one gets the text
only where a task within their reach has it, too; what is foreign and what is unknown look the same.
"""

from typing import Literal, TypeAlias

from waystation.kernel.value import Value


class TenantScope(Value):
    """A person, or the client that a person uses: everything of all tasks of the tenant, which is a hash."""

    tenant: str


class SessionScope(TenantScope):
    """What the tasks of one session share, which is a hash: their memory, and the reports of those that are over."""

    session: str


class TaskScope(SessionScope):
    """One task and the agents that work for it. New content belongs to one of these."""

    task_id: str

    def get_recall_scope(self, scope: Literal["session", "team"]) -> TenantScope:
        """What memory shows an agent of the task under its terms: that of its session, or of its whole tenant."""
        if scope == "team":
            return TenantScope(tenant=self.tenant)
        return SessionScope(tenant=self.tenant, session=self.session)


class SystemScope(Value):
    """The upkeep of the installation itself, over all tenants: retention, the outbox, memory made anew.

    Never what works for a person or an agent.
    """


ReadScope: TypeAlias = TenantScope | SystemScope
"""Who asks."""
