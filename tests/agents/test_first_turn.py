"""What an agent begins with, against the numbers by which windows are refused at submit."""

from dataclasses import replace

import pytest

from tests.agents.office import Office
from waystation.agents.delegation import DelegationConfig
from waystation.agents.roles import prompt
from waystation.config.validation import PROMPT_TOKENS


@pytest.mark.parametrize("step_id", ["research-1", "analysis", "writing"])
async def test_no_agent_begins_with_a_larger_prompt_than_windows_are_measured_by(office: Office, step_id: str) -> None:
    run, terms = office.run_ref(step_id), office.terms.replace(delegation=DelegationConfig())
    toolbox = await replace(office.desk, tables=office.tables).build_agent_toolbox(
        run, terms, await office.transcript(step_id)
    )
    assert PROMPT_TOKENS - 500 <= toolbox.estimate_prompt_overhead(prompt(run.role)) <= PROMPT_TOKENS
