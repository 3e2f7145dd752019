"""What agents see of their tools, and what becomes of calls of those that they do not see."""

from dataclasses import replace

import pytest

from tests.support.agent_environment import DOCUMENTS, TASK_REQUEST, AgentEnvironment, make_tool_use, never_interrupted
from waystation.agents.delegation import DelegationConfig, SubagentResult
from waystation.agents.leg import AgentFinished, LegRequest
from waystation.agents.roles import AgentDeps
from waystation.agents.tool_visibility import SOON, ParameterLimit, ToolPolicy, make_urgency
from waystation.agents.tools.plugin_tool import PluginTool
from waystation.agents.tools.tool import ToolContext, ToolInput, TypedTool
from waystation.agents.tools.toolbox import Toolbox
from waystation.documents.documents import SourceDocument
from waystation.documents.procedures import ProcedureSource
from waystation.testing.doubles import ScriptedModel, make_scripted_response

SUBMIT = make_tool_use("submit_findings", "c9", findings=[], open_questions=["Why?"])
SKILL = ProcedureSource(
    name="crossing.md", text="---\nname: crossing\ndescription: How bars are crossed.\n---\nAt slack.\n"
)
TABLE = SourceDocument(name="q3.csv", text="town,net\nUlm,3\n")


class ShoutInput(ToolInput):
    words: str
    times: int = 8


class Shout(TypedTool[ShoutInput]):
    """Asks a person first."""

    name = "shout"
    description = "Says it aloud."
    permission = "web"
    urgency = make_urgency(SOON)
    input_model = ShoutInput

    def __init__(self) -> None:
        self.heard: list[int] = []

    def build_approval_question(self, arguments: object) -> str | None:
        return "May it be said aloud?"

    async def run(self, arguments: ShoutInput, ctx: ToolContext) -> str:
        self.heard.append(arguments.times)
        return arguments.words * arguments.times


async def box(env: AgentEnvironment, desk: AgentDeps, step_id: str = "research-1") -> Toolbox:
    return await desk.build_agent_toolbox(env.run_ref(step_id), env.terms, await env.load_transcript(step_id))


def names(toolbox: Toolbox) -> set[str]:
    return {spec.name for spec in toolbox.visible_specs}


class LongPluginTool(PluginTool[ShoutInput]):
    name = "megaphone"
    description = "Says it aloud, and again. " * 200
    input_model = ShoutInput
    requires_approval = False

    async def run(self, arguments: ShoutInput, ctx: ToolContext) -> str:
        return arguments.words


async def test_an_added_tool_without_room_is_hidden_and_our_own_never_are(env: AgentEnvironment) -> None:
    desk = replace(env.agent_deps, tables=env.table_reader, plugins=(LongPluginTool(),))
    roomy, none = [await box(env, replace(desk, policy=ToolPolicy(added_tool_tokens=tokens))) for tokens in (5_000, 0)]
    assert names(roomy) - names(none) == {"megaphone"}
    assert {"calculate", "pin_message", "query_table", "submit_findings"} < names(none)


async def test_tables_among_the_documents_make_their_tool_urgent(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task([*DOCUMENTS, TABLE])
    assert "query_table" in names(await box(bare_env, replace(bare_env.agent_deps, tables=bare_env.table_reader)))


async def test_who_may_delegate_can_where_other_tools_fill_their_room(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task([*DOCUMENTS, TABLE], asked=TASK_REQUEST.replace(procedures=(SKILL,)))
    desk = replace(bare_env.agent_deps, tables=bare_env.table_reader, plugins=(LongPluginTool(),))
    terms = bare_env.terms.replace(delegation=DelegationConfig(), window=5_000)
    toolbox = await desk.build_agent_toolbox(bare_env.run_ref("research-1"), terms, await bare_env.load_transcript())
    assert {"delegate", "read_skill"} < names(toolbox)
    assert toolbox.visibility is not None
    assert toolbox.visibility.crowded_out == ("megaphone",)


async def test_a_call_of_a_hidden_tool_is_an_error_that_says_why(env: AgentEnvironment) -> None:
    delegating = make_tool_use("delegate", "c2", role="research", title="x", goal="y")
    env.model = ScriptedModel(
        [make_scripted_response(make_tool_use("list_documents"), delegating), make_scripted_response(SUBMIT)]
    )
    desk = replace(env.agent_deps, policy=ToolPolicy(denied=("list_*", "delegate")))
    terms = env.terms.replace(delegation=DelegationConfig())
    request = LegRequest(run=env.run_ref(), leg=1, limit=env.limit, config=terms)
    assert isinstance(await replace(env.agent_loop, deps=desk).run(request, never_interrupted), AgentFinished)
    listed, delegated = (await env.load_messages())[2].tool_results
    assert listed.is_error
    assert delegated.is_error
    assert listed.content.startswith("The tool list_documents is hidden: the settings deny list_*. Your tools are: ")
    assert delegated.content.startswith("The tool delegate is hidden: the settings deny delegate.")
    assert "list_documents" not in {spec.name for spec in env.model.requests[0].tools}


async def test_what_a_subagent_has_done_is_shown_also_where_delegating_is_denied_meanwhile(
    env: AgentEnvironment,
) -> None:
    toolbox = await box(env, replace(env.agent_deps, policy=ToolPolicy(denied=("delegate",))))
    back = SubagentResult(id="research-1.1", call_id="c1", partial=False)
    site = replace(await env.make_tool_context(), subagent_results=(back,))
    result = await toolbox.run(make_tool_use("delegate", "c1", role="research", title="x", goal="y"), site)
    assert not result.is_error


@pytest.fixture
def shout() -> Shout:
    return Shout()


async def limited(env: AgentEnvironment, shout: Shout, **limits: ParameterLimit) -> Toolbox:
    return await box(env, replace(env.agent_deps, web=(shout,), policy=ToolPolicy(limits={"shout": limits})))


async def test_values_over_a_limit_are_refused_before_anybody_is_asked(env: AgentEnvironment, shout: Shout) -> None:
    toolbox = await limited(env, shout, times=ParameterLimit(max=3))
    loud = make_tool_use("shout", words="secret", times=9)
    assert toolbox.build_approval_question(loud) is None
    result = await toolbox.run(loud, await env.make_tool_context())
    assert (result.is_error, result.content) == (
        True,
        "These arguments are not allowed: times has to be at most 3.",
    )
    assert toolbox.build_approval_question(make_tool_use("shout", words="x", times=2)) == "May it be said aloud?"
    assert shout.heard == []


async def test_what_is_left_out_gets_the_default_of_the_limited_schema(env: AgentEnvironment, shout: Shout) -> None:
    toolbox = await limited(env, shout, times=ParameterLimit(max=3))
    (spec,) = [spec for spec in toolbox.visible_specs if spec.name == "shout"]
    assert spec.input_schema["properties"] == {
        "words": {"type": "string"},
        "times": {"type": "integer", "default": 3, "maximum": 3},
    }
    assert not (await toolbox.run(make_tool_use("shout", words="x"), await env.make_tool_context())).is_error
    assert shout.heard == [3]


async def test_a_tool_whose_limits_name_no_parameter_of_it_is_hidden(env: AgentEnvironment, shout: Shout) -> None:
    toolbox = await limited(env, shout, tiems=ParameterLimit(max=3))
    assert "shout" not in names(toolbox)
    refusal = toolbox.find_refusal_reason(make_tool_use("shout", words="x"))
    assert refusal is not None
    assert "limits are set for parameters that the tool does not have: tiems" in refusal


async def test_the_same_run_sees_the_same_tools_in_the_same_order(env: AgentEnvironment) -> None:
    desk = replace(env.agent_deps, tables=env.table_reader)
    assert (await box(env, desk)).visible_specs == (await box(env, desk)).visible_specs
