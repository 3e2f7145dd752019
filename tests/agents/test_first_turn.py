"""What an agent begins with, against the numbers by which windows are refused at submit."""

import json

from tests.agents.office import Office
from waystation.agents.roles import prompt
from waystation.domain.compaction.tokens import fixed_tokens
from waystation.domain.plan import AgentRole
from waystation.impossible_terms import PROMPT_TOKENS


async def test_no_agent_begins_with_a_larger_prompt_than_windows_are_measured_by(office: Office) -> None:
    def size(role: AgentRole) -> int:
        specs = office.desk.toolbox(role).specs
        return fixed_tokens(prompt(role), json.dumps([spec.model_dump(mode="json") for spec in specs]))

    roles: tuple[AgentRole, ...] = ("research", "analysis", "writing")
    assert PROMPT_TOKENS - 50 <= max(map(size, roles)) <= PROMPT_TOKENS
