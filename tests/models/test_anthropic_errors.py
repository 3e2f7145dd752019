import httpx2
import pytest
from pydantic import JsonValue

from waystation.context.transcript import Text, ToolUse, build_user_message
from waystation.kernel.errors import (
    ContentFilterError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    SpendingLimitReached,
)
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.anthropic.sse import iter_message_events
from waystation.models.http_errors import parse_retry_after
from waystation.models.ports import ModelRequest, StopReason
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import (
    ScriptedAnswer,
    ScriptedServer,
    build_dropped_stream,
    build_error_response,
    build_failing_stream,
    build_html_response,
    build_message_body,
    build_stream_response,
    build_truncated_stream,
)

FILTERED = "Output blocked by content filtering policy"
SECRET = "the patient is called Ada"
REQUEST = ModelRequest(
    model="claude-haiku-5-5", system="Work.", messages=(build_user_message("m1", SECRET),), max_output=50
)
MESSAGE = build_message_body(
    make_scripted_response(Text(text="Fine."), ToolUse(id="t1", name="search", input={"query": "x"}))
)


async def error_of(answer: ScriptedAnswer) -> ModelError:
    model = create_anthropic_model("secret-key", "http://model.test", ScriptedServer([answer]).build_http_client())
    with pytest.raises(ModelError) as raised:
        await model.complete(REQUEST)
    return raised.value


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, "invalid_request_error", "the request was refused"),
        (401, "authentication_error", "the API key was not accepted"),
        (403, "permission_error", "the API key lacks permission for this request"),
        (404, "not_found_error", "there is no such model or endpoint"),
        (413, "request_too_large", "the request is too large"),
        (422, "invalid_request_error", "the request was refused"),
    ],
)
async def test_what_another_attempt_cannot_change_is_rejected(status: int, kind: str, words: str) -> None:
    error = await error_of(build_error_response(status, kind))
    assert isinstance(error, ModelRejected)
    assert str(error) == f"{words} (status {status}, {kind}, request req_scripted)"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            build_error_response(402, "billing_error"),
            "the account's spending limit at the provider is reached, or the account has no credit",
        ),
        (
            build_error_response(400, "invalid_request_error", "Your credit balance is too low"),
            "the provider's account has no credit",
        ),
    ],
)
async def test_a_provider_that_wants_money_first_is_neither_rejected_nor_worth_a_retry_now(
    answer: ScriptedAnswer, words: str
) -> None:
    error = await error_of(answer)
    assert isinstance(error, SpendingLimitReached)
    assert str(error).startswith(f"{words} (status ")


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (408, "timeout_error", "the provider timed out"),
        (409, "conflict_error", "the provider reports a conflict"),
        (429, "rate_limit_error", "the provider's rate limit is reached"),
        (500, "api_error", "the provider failed"),
        (503, "api_error", "the provider failed"),
        (504, "timeout_error", "the provider failed"),
        (529, "overloaded_error", "the provider is overloaded"),
    ],
)
async def test_what_may_pass_is_unavailable(status: int, kind: str, words: str) -> None:
    error = await error_of(build_error_response(status, kind))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after is None
    assert str(error) == f"{words} (status {status}, {kind}, request req_scripted)"


@pytest.mark.parametrize(
    "answer",
    [
        build_error_response(409, "conflict_error"),
        build_error_response(429, "rate_limit_error"),
        build_error_response(529, "overloaded_error"),
        httpx2.ConnectError("refused"),
        httpx2.ConnectTimeout("silence"),
        httpx2.PoolTimeout("busy"),
    ],
)
async def test_what_was_refused_before_the_model_saw_it_is_not_billed(answer: ScriptedAnswer) -> None:
    error = await error_of(answer)
    assert isinstance(error, ModelUnavailable)
    assert not error.possibly_billed


@pytest.mark.parametrize(
    "answer",
    [
        build_error_response(408, "timeout_error"),
        build_error_response(500, "api_error"),
        build_error_response(504, "timeout_error"),
        build_failing_stream(MESSAGE, "overloaded_error"),
        build_truncated_stream(MESSAGE),
        build_dropped_stream(MESSAGE),
        httpx2.ReadTimeout("silence"),
        httpx2.RemoteProtocolError("closed"),
    ],
)
async def test_what_broke_after_the_request_was_sent_may_have_been_billed(answer: ScriptedAnswer) -> None:
    error = await error_of(answer)
    assert isinstance(error, ModelUnavailable)
    assert error.possibly_billed


@pytest.mark.parametrize("kind", ["overloaded_error", "api_error", "rate_limit_error", "timeout_error", "a_new_error"])
async def test_an_error_inside_a_stream_has_details_in_its_kind(kind: str) -> None:
    error = await error_of(build_failing_stream(MESSAGE, kind))
    assert isinstance(error, ModelUnavailable)
    assert f"(status 200, {kind}, request req_scripted)" in str(error)


@pytest.mark.parametrize("kind", ["invalid_request_error", "authentication_error", "billing_error"])
async def test_no_error_inside_a_stream_is_final_because_the_stream_may_have_been_billed(kind: str) -> None:
    error = await error_of(build_failing_stream(MESSAGE, kind))
    assert isinstance(error, ModelUnavailable)
    assert error.possibly_billed
    assert f"(status 200, {kind}, request req_scripted)" in str(error)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (build_error_response(400, "invalid_request_error", FILTERED), 400),
        (build_failing_stream(MESSAGE, "invalid_request_error", FILTERED), 200),
    ],
    ids=["before the stream", "in the stream"],
)
async def test_a_reply_that_a_filter_blocked_is_not_asked_for_again_wherever_that_is_said(
    answer: ScriptedAnswer, status: int
) -> None:
    error = await error_of(answer)
    assert isinstance(error, ContentFilterError)
    said = f"(status {status}, invalid_request_error, request req_scripted)"
    assert str(error) == f"the provider's content filter blocked the reply {said}"


@pytest.mark.parametrize("after", [0, 1, 2, 4, 8])
async def test_a_stream_that_ends_early_never_becomes_a_reply(after: int) -> None:
    error = await error_of(build_truncated_stream(MESSAGE, after))
    assert isinstance(error, ModelUnavailable)
    assert str(error) == "the model's reply ended before it was complete"


async def test_a_stream_without_a_stop_reason_never_becomes_a_reply() -> None:
    error = await error_of(build_stream_response({**MESSAGE, "stop_reason": None}))
    assert isinstance(error, ModelUnavailable)
    assert str(error) == "the model's reply ended before it was complete"


async def test_a_connection_that_breaks_inside_a_stream_is_unavailable() -> None:
    error = await error_of(build_dropped_stream(MESSAGE))
    assert isinstance(error, ModelUnavailable)
    assert str(error) == "the connection to the provider failed: the connection broke while the answer was read"


async def test_no_connection_at_all_is_unavailable() -> None:
    error = await error_of(httpx2.ConnectError("refused"))
    assert isinstance(error, ModelUnavailable)
    assert str(error) == "the connection to the provider failed: no connection is possible"


async def test_a_time_out_is_unavailable() -> None:
    error = await error_of(httpx2.ReadTimeout("silence"))
    assert isinstance(error, ModelUnavailable)
    assert str(error) == (
        "the provider accepted the call and sent nothing for 600 s: WAYSTATION_MODEL_PATIENCE and "
        "WAYSTATION_MODEL_PATIENCE_THINKING set how long to wait"
    )


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (httpx2.ConnectTimeout("silence"), "no connection in time"),
        (httpx2.PoolTimeout("busy"), "too many calls of this process are under way"),
        (httpx2.WriteTimeout("stuck"), "the request could not be sent in time"),
    ],
)
async def test_another_time_out_says_what_took_too_long(cause: httpx2.TimeoutException, reason: str) -> None:
    assert str(await error_of(cause)) == f"the connection to the provider failed: {reason}"


async def test_an_endpoint_that_streams_no_events_is_named_as_such() -> None:
    error = await error_of(build_html_response("application/json", "{}"))
    assert isinstance(error, ModelUnavailable)
    assert str(error) == "the endpoint answered with something other than an event stream; check the endpoint's URL"


@pytest.mark.parametrize(
    "stream",
    [
        "event: message_start\ndata: {broken\n\n",
        'event: message_start\ndata: {"type": "message_start", "message": null}\n\n',
        'event: content_block_delta\ndata: {"type": "content_block_delta"}\n\n',
    ],
)
async def test_a_malformed_stream_is_unavailable(stream: str) -> None:
    assert isinstance(await error_of(build_html_response("text/event-stream", stream)), ModelUnavailable)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the SDK's, about what it received
async def test_a_reply_with_malformed_fields_is_unavailable_and_names_them() -> None:
    error = await error_of(
        build_stream_response({**MESSAGE, "content": [{"type": "tool_use", "id": None, "name": 1, "input": {}}]})
    )
    assert isinstance(error, ModelUnavailable)
    assert str(error) == "the model's reply has missing or malformed fields (id, name)"


async def test_two_calls_of_one_id_are_refused_since_their_results_could_not_be_told_apart() -> None:
    call: dict[str, JsonValue] = {"type": "tool_use", "id": "call_0", "name": "search", "input": {}}
    error = await error_of(build_stream_response({**MESSAGE, "content": [call, call]}))
    assert isinstance(error, ModelUnavailable)
    assert error.possibly_billed
    assert str(error) == "the model's reply has two tool calls with the same id"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (rb"query: x", "query: x"),
        (rb"[1, 2]", "[1, 2]"),
        (rb"{\"query\": \"x", '{"query": "x'),
        (rb"{\"query\": \"he said \"x\"\"}", '{"query": "he said "x""}'),
    ],
    ids=["no JSON", "no object", "cut", "quotation marks"],
)
async def test_arguments_that_are_not_a_json_object_are_part_of_the_reply_as_they_were_written(
    sent: bytes, kept: str
) -> None:
    calls: list[JsonValue] = [
        {"type": "tool_use", "id": "call_0", "name": "search", "input": {"query": "x"}},
        {"type": "tool_use", "id": "call_1", "name": "search", "input": {"query": "y"}},
    ]
    written = rb"{\"query\": \"x\"}"
    stream = b"".join(iter_message_events({**MESSAGE, "content": calls}))
    assert stream.count(written) == 1
    server = ScriptedServer([build_html_response("text/event-stream", stream.replace(written, sent).decode())])
    client = create_anthropic_model("key", http_client=server.build_http_client())
    reply = await client.complete(REQUEST)
    await client.aclose()
    first, second = reply.blocks
    assert isinstance(first, ToolUse)
    assert first.has_unparsed_arguments
    assert [*first.input.values()] == [kept]
    assert second == ToolUse(id="call_1", name="search", input={"query": "y"})


async def test_a_block_of_an_unknown_kind_is_refused_not_left_out_and_counts_as_billed() -> None:
    error = await error_of(build_stream_response({**MESSAGE, "content": [{"type": "hologram", "shape": "cube"}]}))
    assert isinstance(error, ModelUnavailable)
    assert error.possibly_billed
    assert str(error) == "the model's reply has a block of the unknown type hologram"


@pytest.mark.parametrize(
    ("details", "category"),
    [
        ({"type": "refusal", "category": "cyber", "explanation": "It could."}, "cyber"),
        ({"type": "refusal", "category": None}, ""),
        ({"type": "refusal", "category": f"{SECRET}!"}, ""),
        (None, ""),
    ],
    ids=["named", "none", "no name", "no details"],
)
async def test_a_refusal_has_the_category_that_the_provider_gives(details: JsonValue, category: str) -> None:
    refused: JsonValue = {**MESSAGE, "content": [], "stop_reason": "refusal", "stop_details": details}
    server = ScriptedServer([build_stream_response(refused)])
    client = create_anthropic_model("key", http_client=server.build_http_client())
    reply = await client.complete(REQUEST)
    await client.aclose()
    assert (reply.stop, reply.stop_detail, reply.blocks) == (StopReason.REFUSAL, category, ())


@pytest.mark.parametrize(
    ("sent", "stop", "detail"),
    [
        ("pause_turn", StopReason.PAUSE_TURN, ""),
        ("stop_sequence", StopReason.STOP_SEQUENCE, ""),
        ("coffee_break", StopReason.UNKNOWN, "coffee_break"),
        (f"{SECRET}!", StopReason.UNKNOWN, "(not shown: not a valid name)"),
    ],
)
async def test_a_reply_that_stopped_for_a_rare_or_new_reason_is_a_reply(
    sent: str, stop: StopReason, detail: str
) -> None:
    server = ScriptedServer([build_stream_response({**MESSAGE, "stop_reason": sent})])
    client = create_anthropic_model("key", http_client=server.build_http_client())
    reply = await client.complete(REQUEST)
    await client.aclose()
    assert (reply.stop, reply.stop_detail, len(reply.blocks)) == (stop, detail, 2)


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", "the request is longer than the model's window"),
        ("Your credit balance is too low to access the API", "the provider's account has no credit"),
        (
            "The compiled grammar is too large, which would cause performance issues. Simplify your tool schemas.",
            "the schemas of the strict tools are too complex together: set strict_tools = false for this model",
        ),
    ],
)
async def test_a_known_cause_behind_a_refused_request_is_told_in_our_words(words: str, meaning: str) -> None:
    error = await error_of(build_error_response(400, "invalid_request_error", words))
    assert str(error) == f"{meaning} (status 400, invalid_request_error, request req_scripted)"


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens.",
        "the request exceeds the available context size, try increasing it",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "Input is too long for requested model.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ],
)
async def test_a_request_beyond_the_window_is_told_in_the_words_of_any_server(words: str) -> None:
    error = await error_of(build_error_response(400, "invalid_request_error", words))
    assert str(error).startswith("the request is longer than the model's window (")


@pytest.mark.parametrize(
    "answer",
    [
        build_error_response(400, "invalid_request_error", f"messages.0: {SECRET}"),
        build_error_response(400, SECRET, SECRET, {"request-id": SECRET}),
        build_error_response(500, "api_error", SECRET),
        build_html_response("application/json", SECRET),
        build_html_response("text/event-stream", f"event: message_start\ndata: {SECRET}\n\n"),
        httpx2.ConnectError(f"secret-key {SECRET}"),
    ],
)
async def test_no_error_repeats_the_request_or_the_key(answer: ScriptedAnswer) -> None:
    error = await error_of(answer)
    assert "Ada" not in str(error)
    assert "secret-key" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


async def test_no_error_inside_a_stream_repeats_the_request() -> None:
    error = await error_of(build_failing_stream(MESSAGE, "api_error", SECRET))
    assert "Ada" not in str(error)


async def test_errors_while_counting_tokens_are_ours_too() -> None:
    http_client = httpx2.AsyncClient(
        transport=httpx2.MockTransport(lambda _: build_error_response(529, "overloaded_error"))
    )
    with pytest.raises(ModelUnavailable, match="overloaded"):
        await create_anthropic_model("key", "http://model.test", http_client).count_tokens(REQUEST)


@pytest.mark.parametrize(
    "answer",
    [
        build_error_response(404, "not_found_error"),
        build_error_response(405, "api_error"),
        build_error_response(501, "api_error"),
        build_error_response(400, "invalid_request_error", "count_tokens is not supported for this model"),
        build_html_response("text/html", "<p>Welcome</p>"),
        build_html_response("application/json", "{}"),
        build_html_response("application/json", '{"input_tokens": 0}'),
        build_html_response("application/json", '{"input_tokens": "many"}'),
    ],
)
async def test_an_endpoint_that_counts_no_tokens_is_asked_once_for_each_model(answer: httpx2.Response) -> None:
    asked: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)

    model = create_anthropic_model(
        "key", "http://model.test", httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
    )
    assert [await model.count_tokens(REQUEST) for _ in range(3)] == [None] * 3
    assert len(asked) == 1
    assert await model.count_tokens(REQUEST.replace(model="another-model")) is None
    assert len(asked) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 413])
async def test_a_count_that_was_refused_for_another_reason_is_an_error(status: int) -> None:
    refusing = httpx2.MockTransport(
        lambda _: build_error_response(status, "invalid_request_error", "prompt is too long")
    )
    with pytest.raises(ModelRejected):
        await create_anthropic_model("key", "http://model.test", httpx2.AsyncClient(transport=refusing)).count_tokens(
            REQUEST
        )


async def test_the_delay_that_the_provider_names_is_kept() -> None:
    error = await error_of(build_error_response(429, "rate_limit_error", headers={"retry-after": "12"}))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == 12.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "86400"}, 86_400.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT", "date": "Sat, 21 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"retry-after": "Sat, 21 Nov 2026 09:00:00 GMT", "date": "Sat, 21 Nov 2026 10:00:00 GMT"}, 0.0),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 -0000", "date": "Sat, 21 Nov 2026 10:00:00 GMT"}, 30.0),
    ],
)
def test_the_delay_is_read_in_every_form_that_it_comes_in(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(httpx2.Headers(headers)) == seconds
