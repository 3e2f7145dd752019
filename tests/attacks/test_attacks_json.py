"""Values that parsers of JSON take and writers refuse: in the schemas of tool servers, and in what a model calls a tool
with. What cannot be sent costs nothing.
"""

import json
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from mcp.types import Tool
from pydantic import JsonValue

from tests.mcp.test_mcp_tool_listing import make_server, make_tool
from tests.support.agent_environment import NOON, TASK, AgentEnvironment
from tests.support.agent_fixtures import open_agent_environment as opened_office
from tests.support.prices import PRICES
from waystation.agents.call_ledger import CallKey, PreparedCall
from waystation.context.transcript import ToolUse, build_user_message
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import ModelRejected
from waystation.kernel.value import MAX_JSON_DEPTH, find_json_fault, sanitize_json
from waystation.mcp.servers import filter_server_tools
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.openai.wire import ChatChunk, ChatStreamAccumulator
from waystation.models.ports import ModelRequest, StopReason, ToolSpec
from waystation.testing.doubles import ScriptedModel, make_scripted_response
from waystation.testing.messages_server import ScriptedServer, build_message_body, build_stream_response


def nested(levels: int) -> JsonValue:
    found: JsonValue = 1
    for _ in range(levels):
        found = [found]
    return found


UNSENDABLE: list[JsonValue] = [
    float("nan"),
    float("inf"),
    float("-inf"),
    10**5_000,
    -(10**400),
    "half \ud83d of a pair",
    {"\udc00": 1},
    nested(MAX_JSON_DEPTH + 1),
    [1, {"a": [float("nan")]}],
]


def test_a_tool_whose_schema_no_request_can_carry_is_left_out_and_said_so() -> None:
    places = ("default", "minimum", "properties", "enum", "x-unknown")
    said = dict[str, tuple[list[str], dict[str, str]]]()
    for place, (number, value) in product(places, enumerate(UNSENDABLE)):
        listed = [value] if place == "enum" else value
        schema: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "string", place: listed}}}
        specs, hidden = filter_server_tools(make_server(), [make_tool("bad", schema=schema), make_tool("good")])
        said[f"{place}, value {number}"] = ([spec.tool for spec in specs], {one.tool: one.reason for one in hidden})
    assert {place: taken for place, (taken, _) in said.items()} == {place: ["good"] for place in said}
    assert {
        place: hidden
        for place, (_, hidden) in said.items()
        if [*hidden] != ["bad"] or "JSON parsers reject" not in hidden["bad"]
    } == {}


def test_what_a_server_wrote_as_a_number_without_end_is_found() -> None:
    written = '{"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"maximum": 1e999}}}}'
    specs, hidden = filter_server_tools(make_server(), [Tool.model_validate_json(written, by_name=False)])
    assert (len(specs), len(hidden)) == (0, 1)


def test_large_numbers_that_json_has_are_taken() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"maximum": 2**64 - 1, "minimum": -1e308}}}
    specs, _ = filter_server_tools(make_server(), [make_tool("good", schema=schema)])
    assert len(specs) == 1


def reads(value: JsonValue) -> None:
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(some.characters(codec=None)),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(some.characters(codec=None)), inner),
)


@given(values)
def test_whatever_a_model_says_can_be_sent_back_and_what_could_be_sent_stays(value: JsonValue) -> None:
    sendable = sanitize_json(value)
    reads(sendable)
    assert find_json_fault(sendable) == ""
    assert find_json_fault(value) or sendable == value


WRITTEN = '{"a": NaN, "b": [1e999, -Infinity], "c": "\\ud83d", "d": 7}'


def check(given: dict[str, JsonValue]) -> None:
    json.dumps(given, allow_nan=False, ensure_ascii=False).encode()
    assert given["d"] == 7
    assert not isinstance(given["a"], float)
    assert given["c"] == "\ufffd"


async def test_arguments_that_are_no_json_become_words_that_the_tool_refuses() -> None:
    call = ToolUse(id="t1", name="search", input={"d": 7})
    body = json.loads(json.dumps(build_message_body(make_scripted_response(call, stop=StopReason.TOOL_USE))))
    body["content"][0]["input"] = json.loads(WRITTEN.replace("\\ud83d", "\\ufffd"))
    model = create_anthropic_model(
        "key", "http://model.test", ScriptedServer([build_stream_response(body)]).build_http_client()
    )
    request = ModelRequest(
        model="claude-haiku-5-5", system="", messages=(build_user_message("m1", "Why?"),), max_output=50
    )
    reply = await model.complete(request)
    assert isinstance(reply.blocks[0], ToolUse)
    check(reply.blocks[0].input)


def test_so_do_those_of_models_behind_the_other_protocol() -> None:
    call = {"index": 0, "id": "t1", "function": {"name": "a", "arguments": WRITTEN}}
    reply = ChatStreamAccumulator()
    reply.add_chunk(ChatChunk.model_validate({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]}))
    (taken,) = reply.build_response().blocks
    assert isinstance(taken, ToolUse)
    check(taken.input)


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[AgentEnvironment]:
    async with opened_office(tmp_path / "waystation.db") as one:
        await one.open_task()
        yield one


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud83d", 10**5_000], ids=["nan", "inf", "half", "digits"]
)
async def test_a_request_that_cannot_be_written_leaves_no_intent_and_costs_nothing(
    env: AgentEnvironment, value: JsonValue
) -> None:
    env.model = ScriptedModel([make_scripted_response()])
    fence = (await env.make_tool_context()).fence
    spec = ToolSpec(name="bad", description="", input_schema={"type": "object", "maximum": value})
    request = ModelRequest(
        model="claude-opus-5-5",
        system="",
        messages=(build_user_message("m1", "Why?"),),
        max_output=1_000,
        tools=(spec,),
    )
    with pytest.raises(ModelRejected, match=r"cannot be written as JSON .* costs nothing"):
        await env.metered_model.prepare_call(request, Limit(tokens=100_000), floor=10, prices=PRICES)
    with pytest.raises(ModelRejected, match=r"cannot be written as JSON .* costs nothing"):
        await env.metered_model.run_call(
            fence,
            CallKey("turn", "1"),
            PreparedCall(request, Amount(tokens=100, micro_usd=100), PRICES, NOON.date()),
        )
    assert env.model.requests == []
    assert (await env.store.get_run_usage(f"{TASK}/research-1")).possibly_billed == 0
