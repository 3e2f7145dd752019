"""The terms of a task's agents by role, as its workflow and whoever shows it look them up."""

from waystation.domain.leg import AgentTerms
from waystation.domain.plan import ROLES
from waystation.domain.value import Value


class RoleTerms(Value):
    """One entry for research, and one for each role that differs from it: most tasks work alike in all roles."""

    agent: AgentTerms
    """Of research, and of each role that is not in `by_role`."""
    by_role: dict[str, AgentTerms] = {}

    def agent_of(self, role: str) -> AgentTerms:
        """Those of the agents of a role."""
        return self.by_role.get(role, self.agent)

    @property
    def models(self) -> dict[str, str]:
        """The agents' models by role; empty where all work with the same."""
        named = {role: self.agent_of(role).model for role in ROLES}
        return named if len({*named.values()}) > 1 else {}
