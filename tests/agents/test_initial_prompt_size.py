"""What an agent begins with, against the numbers by which windows are refused at submit."""

from dataclasses import replace

from tests.support.agent_environment import AgentEnvironment
from waystation.agents.delegation import DelegationConfig
from waystation.agents.roles import load_prompt
from waystation.config.validation import PROMPT_TOKENS


async def test_no_agent_begins_with_a_larger_prompt_than_windows_are_measured_by(env: AgentEnvironment) -> None:
    sizes: list[int] = []
    for step_id in ("research-1", "analysis", "writing"):
        run, terms = env.run_ref(step_id), env.terms.replace(delegation=DelegationConfig())
        toolbox = await replace(env.agent_deps, tables=env.table_reader).build_agent_toolbox(
            run, terms, await env.load_transcript(step_id)
        )
        sizes.append(toolbox.estimate_prompt_overhead(load_prompt(run.role)))
    assert PROMPT_TOKENS - 500 <= max(sizes) <= PROMPT_TOKENS
