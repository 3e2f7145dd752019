import re
from collections.abc import AsyncIterator

import httpx2
import pytest
from anthropic import AsyncAnthropic, BadRequestError, NotFoundError
from anthropic.types import Message as WireMessage
from pydantic import JsonValue

from waystation.context.transcript import build_user_message
from waystation.kernel.errors import ModelRejected
from waystation.models.anthropic.model import AnthropicModel, create_anthropic_model
from waystation.models.ports import ModelRequest, ToolSpec
from waystation.models.profiles import OFFLINE_MODEL
from waystation.plugins.offline.transport import WINDOW, WITHOUT_WORK, create_offline_transport

TEXT = "The bridge opened in 1932. It carries eight lanes. When did the bridge open?"
USE: dict[str, JsonValue] = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "sea"}}
CALL: dict[str, JsonValue] = {"role": "assistant", "content": [USE]}


def result(tool_use_id: str) -> dict[str, JsonValue]:
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": "calm"}


def user(*content: JsonValue) -> dict[str, JsonValue]:
    return {"role": "user", "content": [*content]}


def text(words: str) -> dict[str, JsonValue]:
    return {"type": "text", "text": words}


LOOK: dict[str, JsonValue] = {"name": "look", "input_schema": {}}
REFUSED: list[tuple[dict[str, JsonValue], str]] = [
    ({"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
    ({"messages": []}, "messages: Tuple should have at least 1 item"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages.0.role: Input should be 'user' or 'assistant'"),
    (
        {"messages": [user(text(""))]},
        "messages.0.content.0.text.text: Value error, text content blocks must contain non-whitespace text",
    ),
    ({"messages": [user({"type": "image"})]}, "messages.0.content.0: Input tag 'image'"),
    ({"messages": [{"role": "assistant", "content": "x"}, user(text("y"))]}, "first message must use the user"),
    ({"messages": [user(text("x")), {"role": "assistant", "content": "y"}]}, "must end with a user message"),
    ({"messages": [user(text("x")), CALL, user(text("y"))]}, "without `tool_result` blocks immediately after: t1"),
    ({"messages": [user(text("x")), CALL, user(result("t2"))]}, "without `tool_result` blocks"),
    ({"messages": [user(text("x")), user(result("t2"))]}, "unexpected `tool_use_id` found .*: t2"),
    ({"messages": [user(text("x")), CALL, user(result("t1"), result("t1"))]}, "unexpected `tool_use_id`"),
    ({"messages": [user(text("x")), CALL, user(text("y"), result("t1"))]}, "must come before other content"),
    ({"messages": [user(text("x")), CALL, user(result("t1")), CALL, user(result("t1"))]}, "must be unique"),
    ({"messages": [user(text("x"), USE)]}, "can only be in assistant messages"),
    ({"tool_choice": {"type": "tool", "name": "look"}}, "tool_choice.name: there is no tool 'look'"),
    ({"tools": [LOOK, LOOK]}, "tools: tool names must be unique"),
    ({"messages": [user(text("word " * WINDOW))]}, "prompt is too long"),
]


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=create_offline_transport(), base_url="http://offline.invalid") as client:
        yield client


@pytest.fixture
def client(http: httpx2.AsyncClient) -> AsyncAnthropic:
    return AsyncAnthropic(
        api_key="offline",
        base_url="http://offline.invalid",
        http_client=http,
        max_retries=0,
        _strict_response_validation=True,
    )


@pytest.fixture
def model(http: httpx2.AsyncClient) -> AnthropicModel:
    return create_anthropic_model("offline", "http://offline.invalid", http)


async def asked(client: AsyncAnthropic, **changes: JsonValue) -> WireMessage:
    body: dict[str, JsonValue] = {
        "model": OFFLINE_MODEL,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": TEXT}],
        **changes,
    }
    return await client.post("/v1/messages", body=body, cast_to=WireMessage)


async def test_without_tools_there_is_nothing_to_do(client: AsyncAnthropic) -> None:
    message = await asked(client)
    assert message.content[0].type == "text"
    assert message.content[0].text == WITHOUT_WORK
    assert message.stop_reason == "end_turn"


async def test_a_stream_ends_in_the_same_message_as_a_plain_reply(client: AsyncAnthropic) -> None:
    plain = await asked(client)
    async with client.messages.stream(
        model=OFFLINE_MODEL, max_tokens=100, messages=[{"role": "user", "content": TEXT}]
    ) as stream:
        streamed = await stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in plain.content]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (plain.stop_reason, plain.usage.output_tokens)


async def test_the_same_request_gets_the_same_reply(client: AsyncAnthropic) -> None:
    assert await asked(client) == await asked(client)


async def test_counting_gives_what_the_reply_is_charged_for(client: AsyncAnthropic) -> None:
    counted = await client.messages.count_tokens(model=OFFLINE_MODEL, messages=[{"role": "user", "content": TEXT}])
    assert counted.input_tokens == -(-len(TEXT) // 4) == (await asked(client)).usage.input_tokens


async def test_the_one_model_is_listed(client: AsyncAnthropic) -> None:
    assert [listed.id async for listed in client.models.list()] == [OFFLINE_MODEL]
    assert (await client.models.retrieve(OFFLINE_MODEL)).max_input_tokens == WINDOW


async def test_a_marked_prefix_is_written_once_and_read_after(client: AsyncAnthropic) -> None:
    marked: JsonValue = {**text("One fact is here. " * 100), "cache_control": {"type": "ephemeral"}}
    first = await asked(client, messages=[user(marked, text("Where is it?"))])
    second = await asked(client, messages=[user(marked, text("Which fact is it?"))])
    assert (first.usage.cache_creation_input_tokens, first.usage.cache_read_input_tokens) == (450, 0)
    assert (second.usage.cache_creation_input_tokens, second.usage.cache_read_input_tokens) == (0, 450)
    assert second.usage.input_tokens == 5


async def test_a_short_prefix_is_not_cached(client: AsyncAnthropic) -> None:
    usage = (await asked(client, cache_control={"type": "ephemeral"})).usage
    assert (usage.cache_creation_input_tokens, usage.input_tokens) == (0, 19)


@pytest.mark.parametrize(("changes", "complaint"), REFUSED)
async def test_a_request_that_the_protocol_does_not_allow_is_refused(
    client: AsyncAnthropic, changes: dict[str, JsonValue], complaint: str
) -> None:
    with pytest.raises(BadRequestError) as raised:
        await asked(client, **changes)
    assert raised.value.type == "invalid_request_error"
    assert raised.value.request_id
    assert re.search(complaint, raised.value.message)


async def test_other_models_and_paths_are_not_found(client: AsyncAnthropic) -> None:
    with pytest.raises(NotFoundError, match="claude-opus-5"):
        await asked(client, model="claude-opus-5")
    with pytest.raises(NotFoundError, match="the offline model does not serve GET /v1/messages/batches"):
        await client.messages.batches.list()


async def test_results_and_status_in_messages_of_their_own_are_one_turn(client: AsyncAnthropic) -> None:
    assert await asked(client, messages=[user(text("x")), CALL, user(result("t1")), user(text("What is it?"))])


async def test_what_is_refused_reaches_the_core_as_rejected(model: AnthropicModel) -> None:
    request = ModelRequest(
        model=OFFLINE_MODEL,
        system="",
        messages=(build_user_message("m1", TEXT),),
        tools=(
            ToolSpec(name="look", description="", input_schema={}),
            ToolSpec(name="look", description="", input_schema={}),
        ),
        max_output=100,
    )
    with pytest.raises(ModelRejected):
        await model.complete(request)
