"""Whatever our values hold survives the wire, and the SDK's own types accept it."""

import asyncio
from collections.abc import Sequence

from anthropic.types import MessageParam
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter

from waystation.context.transcript import Block, Message, RedactedThinking, Text, Thinking, ToolResult, ToolUse
from waystation.kernel.usage import Usage
from waystation.models.anthropic import wire
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.ports import ModelRequest, ModelResponse, StopReason
from waystation.testing.messages_server import ScriptedServer, build_message_body, build_stream_response

texts = st.text(max_size=300)
names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[JsonValue] = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
tool_uses = st.builds(ToolUse, id=names, name=names, input=st.dictionaries(texts, values, max_size=4))
assistant_blocks = st.lists(
    st.builds(Text, text=texts)
    | st.builds(Thinking, thinking=texts, signature=texts)
    | st.builds(RedactedThinking, data=texts)
    | tool_uses,
    max_size=5,
)
user_blocks = st.lists(
    st.builds(Text, text=texts) | st.builds(ToolResult, tool_use_id=names, content=texts, is_error=st.booleans()),
    max_size=5,
)
messages = st.lists(
    st.builds(Message, id=names, role=st.just("assistant"), blocks=assistant_blocks.map(tuple))
    | st.builds(Message, id=names, role=st.just("user"), blocks=user_blocks.map(tuple)),
    max_size=8,
)
usages = st.builds(Usage, **dict.fromkeys(("input", "cache_write", "cache_read", "output"), st.integers(0, 10**9)))

untimed = settings(suppress_health_check=[HealthCheck.too_slow])

SDK_MESSAGES: TypeAdapter[list[MessageParam]] = TypeAdapter(list[MessageParam])
OUR_BLOCKS: TypeAdapter[tuple[Block, ...]] = TypeAdapter(tuple[Block, ...])


def has_own_ids(blocks: Sequence[Block]) -> bool:
    """Whether each call of a tool has its own, as the API gives them."""
    ids = [block.id for block in blocks if isinstance(block, ToolUse)]
    return len(set(ids)) == len(ids)


def request_of(sent: Sequence[Message]) -> ModelRequest:
    return ModelRequest(model="claude-sonnet-5-5", system="Work.", messages=tuple(sent), max_output=100)


@untimed
@given(messages)
def test_the_sdk_accepts_every_message_and_ours_can_be_read_back(sent: list[Message]) -> None:
    on_wire = wire.build_request_parameters(request_of(sent))["messages"]
    for accepted in SDK_MESSAGES.validate_python(on_wire):
        list(accepted["content"])  # the SDK's iterables are checked only as they are read
    assert [message["role"] for message in on_wire] == [message.role for message in sent]
    read_back = [OUR_BLOCKS.validate_python(message["content"], extra="ignore") for message in on_wire]
    assert read_back == [message.blocks for message in sent]


@untimed
@given(messages)
def test_at_most_four_marks_are_set_and_the_end_of_the_request_has_one(sent: list[Message]) -> None:
    prompt = wire.build_request_parameters(request_of(sent))
    marked = [index for index, message in enumerate(prompt["messages"]) if "cache_control" in str(message)]
    assert len(marked) <= 2
    if sent and sent[-1].role == "user" and sent[-1].blocks:
        assert marked[-1] == len(sent) - 1


@settings(untimed, max_examples=60)
@given(assistant_blocks.filter(has_own_ids), usages, st.sampled_from(StopReason))
def test_every_reply_comes_out_of_a_stream_as_it_went_in(blocks: list[Block], usage: Usage, stop: StopReason) -> None:
    said = ModelResponse(blocks=tuple(blocks), stop=stop, usage=usage, model="claude-sonnet-5-5")
    server = ScriptedServer([build_stream_response(build_message_body(said))])
    model = create_anthropic_model("key", "http://model.test", server.build_http_client())
    assert asyncio.run(model.complete(request_of([]))) == said
