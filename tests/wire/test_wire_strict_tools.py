"""Submitting tools are strict where the endpoint and the model take that, with schemas that the API accepts."""

from typing import cast

import pytest
from pydantic import JsonValue

from tests.support.agent_environment import AgentEnvironment
from tests.support.strict_server import Body, StrictServer, find_refusal
from waystation.agents.planner import SUBMIT_PLAN
from waystation.context.transcript import Text, build_user_message
from waystation.kernel.roles import list_step_roles
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.anthropic.wire import build_request_parameters, select_strict_tools
from waystation.models.endpoints import PROVIDER_URL, ModelCapabilities, ModelEndpoint
from waystation.models.ports import ModelRequest, ToolSpec
from waystation.reports.reviewers import REVIEW_REPORT, REVISE_PLAN
from waystation.testing.doubles import make_scripted_response

NOTE: JsonValue = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 200, "description": "What to keep."},
        "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}, "default": []},
    },
    "required": ["text"],
    "additionalProperties": False,
}
TAKES_STRICT = ModelCapabilities(strict_tools=True)


def request(*tools: ToolSpec, model: str = "claude-sonnet-5-5") -> ModelRequest:
    said = (build_user_message("m1", "Go."),)
    return ModelRequest(model=model, system="Work.", messages=said, tools=tools, max_output=4_096)


def note(*, strict: bool = True) -> ToolSpec:
    return ToolSpec(
        name="note", description="Keeps it.", input_schema=cast("dict[str, JsonValue]", NOTE), strict=strict
    )


def sent_tool(asked: ModelRequest, capable: ModelCapabilities) -> dict[str, object]:
    (tool,) = [*build_request_parameters(asked, capable).get("tools", ())]
    return {name: part for name, part in tool.items() if name != "cache_control"}


@pytest.mark.parametrize(
    ("spec", "model", "capable"),
    [
        (note(), "claude-sonnet-5-5", ModelCapabilities()),
        (note(), "claude-sonnet-5-5", ModelCapabilities(strict_tools=False)),
        (note(), "somebody-elses-model", TAKES_STRICT),
        (note(strict=False), "claude-sonnet-5-5", TAKES_STRICT),
    ],
)
def test_a_tool_is_not_strict_unless_it_asks_for_it_and_endpoint_and_model_are_known_to_take_it(
    spec: ToolSpec, model: str, capable: ModelCapabilities
) -> None:
    assert sent_tool(request(spec, model=model), capable) == {
        "name": "note",
        "description": "Keeps it.",
        "input_schema": NOTE,
    }


def test_a_strict_schema_says_in_words_what_its_keywords_cannot() -> None:
    tool = sent_tool(request(note()), TAKES_STRICT)
    assert tool["strict"] is True
    assert tool["input_schema"] == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to keep.\n\n{minLength: 1, maxLength: 200}"},
            "lines": {
                "type": "array",
                "items": {"type": "integer", "description": "{minimum: 1}"},
                "description": "{default: []}",
            },
        },
        "required": ["text"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("role", list_step_roles())
async def test_the_api_accepts_the_tools_of_every_role_of_which_those_that_submit_are_strict(
    env: AgentEnvironment, role: str
) -> None:
    toolbox = env.agent_deps.build_role_toolbox(role, delegates=True)
    server = StrictServer(lambda _: make_scripted_response(Text(text="Fine.")))
    model = create_anthropic_model("key", PROVIDER_URL, server.http_client(), endpoint=ModelEndpoint(url=PROVIDER_URL))
    await model.complete(request(*toolbox.visible_specs))
    (body,) = server.bodies
    tools = cast("list[dict[str, JsonValue]]", body["tools"])
    strict = {str(tool["name"]) for tool in tools if tool.get("strict")}
    assert strict == {tool.name for tool in toolbox.tools if tool.permission == "submit"}
    assert strict


def refused(schema: JsonValue, tools: int = 1) -> str:
    body: Body = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 4_096,
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [{"name": f"t{number}", "input_schema": schema, "strict": True} for number in range(tools)],
    }
    return find_refusal(body)


@pytest.mark.parametrize(
    ("schema", "tools", "fault"),
    [
        ({"type": "object", "properties": {}}, 1, "additionalProperties must be false"),
        (NOTE, 1, "not supported in strict tools: maxLength, minLength"),
        ({"type": "object", "additionalProperties": False}, 21, "a maximum of 20 strict tools"),
        (
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {"a": {"type": "array", "items": {"type": "object"}}},
            },
            1,
            "additionalProperties must be false",
        ),
        (
            {"type": "object", "additionalProperties": False, "properties": {"a": {"type": "array", "minItems": 2}}},
            1,
            "minItems must be 0 or 1",
        ),
        (
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {f"p{number}": {"type": "string"} for number in range(9)},
            },
            3,
            "27 optional parameters",
        ),
        ({"type": "object", "additionalProperties": False, "$defs": {"x": {"type": "object"}}}, 1, "additionalProp"),
    ],
)
def test_what_a_strict_schema_cannot_say_is_refused(schema: JsonValue, tools: int, fault: str) -> None:
    assert fault in refused(schema, tools)


def tool(name: str, optional: int = 0, unions: int = 0) -> ToolSpec:
    """A strict tool with so many optional parameters, and required ones with a union."""
    either: JsonValue = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    plain: dict[str, JsonValue] = {f"o{number}": {"type": "string"} for number in range(optional)}
    united: dict[str, JsonValue] = {f"u{number}": either for number in range(unions)}
    schema: JsonValue = {
        "type": "object",
        "properties": {**plain, **united},
        "required": [*united],
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description="It.", input_schema=cast("dict[str, JsonValue]", schema), strict=True)


@pytest.mark.parametrize(
    ("specs", "loose"),
    [
        ([tool(f"t{number}") for number in range(22)], {"t20", "t21"}),
        ([tool("a", optional=20), tool("b", optional=5), tool("c", optional=4)], {"b"}),
        ([tool("a", unions=16), tool("b", unions=1), tool("c")], {"b"}),
        ([tool("a", optional=24, unions=16), tool("b")], set[str]()),
    ],
)
async def test_what_exceeds_the_limits_of_strict_tools_is_sent_without_strict_the_last_first(
    specs: list[ToolSpec], loose: set[str]
) -> None:
    assert {spec.name for spec in specs} - select_strict_tools(specs) == loose
    server = StrictServer(lambda _: make_scripted_response(Text(text="Fine.")))
    model = create_anthropic_model("key", PROVIDER_URL, server.http_client(), endpoint=ModelEndpoint(url=PROVIDER_URL))
    await model.complete(request(*specs))
    (body,) = server.bodies
    tools = cast("list[dict[str, JsonValue]]", body["tools"])
    assert {str(one["name"]) for one in tools if not one.get("strict")} == loose


@pytest.mark.parametrize("spec", [SUBMIT_PLAN, REVISE_PLAN, REVIEW_REPORT], ids=lambda spec: spec.name)
async def test_the_one_answer_of_a_plan_a_revision_or_a_review_is_strict(spec: ToolSpec) -> None:
    server = StrictServer(lambda _: make_scripted_response(Text(text="Fine.")))
    model = create_anthropic_model("key", PROVIDER_URL, server.http_client(), endpoint=ModelEndpoint(url=PROVIDER_URL))
    await model.complete(request(spec))
    (body,) = server.bodies
    assert [one["strict"] for one in cast("list[dict[str, JsonValue]]", body["tools"])] == [True]
    assert server.refusals == []
