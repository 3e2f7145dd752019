"""Which of our own tools each role does not see in a task that has use for all of them."""

import logging
from dataclasses import replace

import pytest

from tests.support.agent_environment import DOCUMENTS, TASK_REQUEST, AgentEnvironment
from waystation.agents.delegation import DelegationConfig
from waystation.agents.leg import AgentConfig
from waystation.agents.roles import AgentDeps
from waystation.agents.tool_visibility import ToolVisibility
from waystation.agents.tools.toolbox import Toolbox
from waystation.context.transcript import Transcript
from waystation.documents.documents import SourceDocument
from waystation.documents.procedures import ProcedureSource, SkillFile
from waystation.kernel.roles import list_step_roles

TABLE = SourceDocument(name="q3.csv", text="town,net\nUlm,3\n")
SKILL = ProcedureSource(
    name="crossing",
    text="---\nname: crossing\ndescription: How bars are crossed.\n---\nAt slack.\n",
    skill=True,
    files=(SkillFile(name="tides.md", text="Slack is at noon."),),
)
CROWDED_OUT = {
    ("tables, a skill and subagents", "research"): {"pin_message", "calculate"},
    ("tables, a skill and subagents", "analysis"): {"expand", "pin_message", "calculate"},
}
"""Our tools for which there is no room, by task and role. It only gets shorter."""


async def open_toolbox(env: AgentEnvironment, deps: AgentDeps, terms: AgentConfig, role: str) -> Toolbox:
    run = env.run_ref("research-1").replace(role=role)
    return await deps.build_agent_toolbox(run, terms, Transcript(run_id=run.run_id))


async def find_crowded_out(env: AgentEnvironment, task: str, role: str) -> set[str]:
    deps, terms = replace(env.agent_deps, tables=env.table_reader), env.terms
    if task == "documents alone":
        await env.open_task()
    else:
        await env.open_task([*DOCUMENTS, TABLE], asked=TASK_REQUEST.replace(procedures=(SKILL,)))
        terms = terms.replace(delegation=DelegationConfig())
    seen = (await open_toolbox(env, deps, terms, role)).visibility
    assert isinstance(seen, ToolVisibility)
    return {*seen.crowded_out}


@pytest.mark.parametrize("role", list_step_roles())
@pytest.mark.parametrize("task", ["documents alone", "tables, a skill and subagents"])
async def test_a_new_tool_of_ours_pushes_no_other_one_out_of_sight(
    bare_env: AgentEnvironment, task: str, role: str
) -> None:
    hidden = await find_crowded_out(bare_env, task, role)
    known = CROWDED_OUT.get((task, role), set())
    assert hidden == known, (
        f"{role} no longer sees {sorted(hidden - known) or 'the same tools'}: shorten the definition of the new tool, "
        "give it to fewer roles, give it another urgency, or raise TOOL_TOKENS (waystation/agents/tool_visibility.py); "
        f"it sees {sorted(known - hidden)} again: take them out of CROWDED_OUT"
    )


async def test_before_its_first_call_an_agent_warns_which_tools_it_does_not_see(
    bare_env: AgentEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "waystation.agents.roles"):
        hidden = await find_crowded_out(bare_env, "tables, a skill and subagents", "research")
    (warned,) = [record.getMessage() for record in caplog.records if record.name == "waystation.agents.roles"]
    assert hidden
    assert all(name in warned for name in hidden)
    assert "--tools` shows all" in warned
