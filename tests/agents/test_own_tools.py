"""Each role sees all of our own tools; of added ones, what has room."""

import logging
from dataclasses import replace

import pytest

from tests.support.agent_environment import DOCUMENTS, TASK_REQUEST, AgentEnvironment
from waystation.agents.delegation import DelegationConfig
from waystation.agents.leg import AgentConfig
from waystation.agents.roles import AgentDeps
from waystation.agents.tools.plugin_tool import PluginTool, PluginToolBase
from waystation.agents.tools.tool import ToolContext, ToolInput
from waystation.agents.tools.toolbox import Toolbox
from waystation.context.transcript import Transcript
from waystation.documents.documents import SourceDocument
from waystation.documents.procedures import ProcedureSource, SkillFile
from waystation.kernel.roles import get_role_spec, list_step_roles

TABLE = SourceDocument(name="q3.csv", text="town,net\nUlm,3\n")
SKILL = ProcedureSource(
    name="crossing",
    text="---\nname: crossing\ndescription: How bars are crossed.\n---\nAt slack.\n",
    skill=True,
    files=(SkillFile(name="tides.md", text="Slack is at noon."),),
)
MAX_OWN_TOKENS = 5_000


class NothingInput(ToolInput):
    """No arguments."""


class VerboseTool(PluginTool[NothingInput]):
    name = "verbose"
    description = "Says what it does in many words. " * 4_000
    input_model = NothingInput
    requires_approval = False

    async def run(self, arguments: NothingInput, ctx: ToolContext) -> str:
        return ""


async def open_toolbox(env: AgentEnvironment, deps: AgentDeps, terms: AgentConfig, role: str) -> Toolbox:
    run = env.run_ref("research-1").replace(role=role)
    return await deps.build_agent_toolbox(run, terms, Transcript(run_id=run.run_id))


async def find_toolbox(env: AgentEnvironment, task: str, role: str, *added: PluginToolBase) -> Toolbox:
    deps, terms = replace(env.agent_deps, tables=env.table_reader, plugins=added), env.terms
    if task == "documents alone":
        await env.open_task()
    else:
        await env.open_task([*DOCUMENTS, TABLE], asked=TASK_REQUEST.replace(procedures=(SKILL,)))
        terms = terms.replace(delegation=DelegationConfig())
    return await open_toolbox(env, deps, terms, role)


@pytest.mark.parametrize("role", list_step_roles())
@pytest.mark.parametrize("task", ["documents alone", "tables, a skill and subagents"])
async def test_a_role_sees_every_tool_of_its_own(bare_env: AgentEnvironment, task: str, role: str) -> None:
    toolbox = await find_toolbox(bare_env, task, role)
    delegates = task != "documents alone"
    own = {name for name in get_role_spec(role).tools if name != "web" and (delegates or name != "delegate")}
    assert own <= {spec.name for spec in toolbox.visible_specs}
    assert toolbox.visibility is not None
    assert toolbox.visibility.tokens < MAX_OWN_TOKENS, "definitions are sent with every request: shorten them"


async def test_before_its_first_call_an_agent_warns_which_added_tools_it_does_not_see(
    bare_env: AgentEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "waystation.agents.roles"):
        toolbox = await find_toolbox(bare_env, "tables, a skill and subagents", "research", VerboseTool())
    (warned,) = [record.getMessage() for record in caplog.records if record.name == "waystation.agents.roles"]
    assert toolbox.visibility is not None
    assert toolbox.visibility.crowded_out == ("verbose",)
    assert "does not see the tools verbose" in warned
    assert "--tools` shows all" in warned
