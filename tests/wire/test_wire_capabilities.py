"""What an endpoint was found not to do is not asked of it."""

import pytest
from pydantic import JsonValue

from waystation.context.transcript import Text, build_user_message
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.endpoints import (
    KNOWN_CAPABILITIES,
    PROVIDER_URL,
    UNKNOWN_CAPABILITIES,
    ModelCapabilities,
    ModelEndpoint,
    build_model_endpoint,
)
from waystation.models.ports import ModelRequest, ToolSpec
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import ScriptedServer, build_message_body, build_stream_response

URL, MODEL = "http://model.test", "claude-haiku-5-5"
NOTE = ToolSpec(name="note", description="Keep a note.", input_schema={"type": "object"})
REQUEST = ModelRequest(
    model=MODEL, system="You research.", messages=(build_user_message("m1", "What?"),), tools=(NOTE,), max_output=900
)
FORCED = REQUEST.replace(require_tool="note")


async def sent(request: ModelRequest, capable: ModelCapabilities) -> dict[str, JsonValue]:
    server = ScriptedServer([build_stream_response(build_message_body(make_scripted_response(Text(text="Fine."))))])
    endpoint = ModelEndpoint(url=URL, capabilities={MODEL: capable})
    await create_anthropic_model("key", URL, server.build_http_client(), endpoint=endpoint).complete(request)
    return server.request_bodies[0]


async def test_no_cache_marks_go_to_an_endpoint_that_refuses_them() -> None:
    assert "cache_control" in str(await sent(REQUEST, UNKNOWN_CAPABILITIES))
    assert "cache_control" not in str(await sent(REQUEST, ModelCapabilities(caches=False)))


async def test_a_tool_is_forced_or_asked_for_in_words_as_the_endpoint_takes_it() -> None:
    assert (await sent(FORCED, UNKNOWN_CAPABILITIES))["tool_choice"] == {
        "type": "tool",
        "name": "note",
        "disable_parallel_tool_use": True,
    }
    asked = await sent(FORCED, ModelCapabilities(forces_tools=False))
    assert asked["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "exactly one call of the tool `note`" in str(asked["system"])


async def test_outdated_thinking_is_not_bound_where_the_endpoint_does_not_take_that() -> None:
    assert "block_binding" in str(await sent(REQUEST, UNKNOWN_CAPABILITIES))
    assert "thinking" not in await sent(REQUEST, ModelCapabilities(binds_thinking=False))


async def test_an_endpoint_that_does_not_count_is_never_asked_to() -> None:
    server = ScriptedServer([])
    endpoint = ModelEndpoint(url=URL, capabilities={MODEL: ModelCapabilities(counts=False)})
    model = create_anthropic_model("key", URL, server.build_http_client(), endpoint=endpoint)
    assert await model.count_tokens(REQUEST) is None
    assert not server.requests
    assert await model.count_tokens(REQUEST.replace(model="another"))
    assert len(server.requests) == 1


@pytest.mark.parametrize("written", ["http://user:secret@Model.test/", "http://model.test"])
def test_a_row_is_found_by_the_address_without_who_uses_it(written: str) -> None:
    row = ModelCapabilities(tools=False)
    assert build_model_endpoint("http://model.test", {written: {MODEL: row}}).get_capabilities(MODEL) == row
    assert build_model_endpoint(written, {"http://model.test": {MODEL: row}}).get_capabilities(MODEL) == row
    assert (
        build_model_endpoint(written, {"http://other.test": {MODEL: row}}).get_capabilities(MODEL)
        == UNKNOWN_CAPABILITIES
    )
    assert "secret" not in build_model_endpoint(written, {}).url


def test_the_provider_is_known_and_a_written_row_beats_that() -> None:
    assert build_model_endpoint(None, {}).get_capabilities(MODEL) == KNOWN_CAPABILITIES[PROVIDER_URL]
    row = ModelCapabilities(counts=False)
    assert build_model_endpoint(None, {PROVIDER_URL: {MODEL: row}}).get_capabilities(MODEL) == row
    assert build_model_endpoint("http://anthropic.com.other.test", {}).get_capabilities(MODEL) == UNKNOWN_CAPABILITIES
