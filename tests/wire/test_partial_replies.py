"""What a reply that breaks off may have cost, from what its stream reported until then."""

from collections.abc import Callable, Mapping

import httpx2
import pytest
from anthropic.types import RawMessageStreamEvent
from pydantic import JsonValue, TypeAdapter

from waystation.context.transcript import Text, Thinking, ToolUse, build_user_message
from waystation.kernel.errors import ModelError
from waystation.kernel.usage import Usage
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.anthropic.sse import StreamEvent, iter_message_events
from waystation.models.anthropic.stream_usage import NOTICE_SECONDS, TOKENS_PER_SECOND, StreamUsageEstimator
from waystation.models.ports import ModelRequest
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import (
    ScriptedAnswer,
    ScriptedServer,
    build_dropped_stream,
    build_failing_stream,
    build_message_body,
    build_truncated_stream,
)

USAGE = Usage(input=900, cache_write=300, cache_read=5_000, output=150)
SAID = "It silted up. " * 100
MESSAGE = build_message_body(
    make_scripted_response(
        Thinking(thinking="Why did it?", signature="s"),
        Text(text=SAID),
        ToolUse(id="c1", name="search_documents", input={"query": "harbour"}),
        usage=USAGE,
        model="claude-sonnet-5-5",
    )
)
EVENTS = len([*iter_message_events(MESSAGE)])
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
Breaks = Callable[[Mapping[str, JsonValue], int], httpx2.Response]
MOST = 1_000_000
"""Far more than any model produces while a test runs."""


def failed_at_provider(message: Mapping[str, JsonValue], after: int) -> httpx2.Response:
    return build_failing_stream(message, "api_error", after=after)


async def error_of(answer: ScriptedAnswer, model: str = "claude-sonnet-5-5") -> ModelError:
    server = ScriptedServer([answer])
    client = create_anthropic_model("key", http_client=server.build_http_client())
    request = ModelRequest(model=model, system="", messages=(build_user_message("m1", "Why?"),), max_output=MOST)
    with pytest.raises(ModelError) as raised:
        await client.complete(request)
    await client.aclose()
    return raised.value


@pytest.mark.parametrize("breaks", [build_dropped_stream, build_truncated_stream, failed_at_provider])
@pytest.mark.parametrize("after", [1, 2, EVENTS // 2, EVENTS - 3])
async def test_a_stream_that_breaks_after_its_start_tells_its_input_exactly_and_bounds_its_output(
    breaks: Breaks, after: int
) -> None:
    reported = (await error_of(breaks(MESSAGE, after))).reported_usage
    assert reported is not None
    assert (reported.input, reported.cache_write, reported.cache_read) == (900, 300, 5_000)
    assert USAGE.output <= reported.output < MOST


async def test_a_stream_that_breaks_behind_its_last_count_tells_all_of_it() -> None:
    assert (await error_of(build_dropped_stream(MESSAGE, EVENTS - 1))).reported_usage == USAGE


async def test_where_nothing_came_nothing_is_reported() -> None:
    assert (await error_of(build_dropped_stream(MESSAGE, 0))).reported_usage is None


async def test_an_endpoint_that_counts_no_input_reports_nothing() -> None:
    none: JsonValue = {"input_tokens": 0, "output_tokens": 0}
    silent: StreamEvent = {**MESSAGE, "usage": none}
    assert (await error_of(build_dropped_stream(silent, 3))).reported_usage is None


async def test_of_a_model_of_unknown_speed_the_output_may_be_all_that_was_asked_for() -> None:
    reported = (await error_of(build_dropped_stream(MESSAGE, 3), "somebodys-model")).reported_usage
    assert reported is not None
    assert (reported.prompt_tokens, reported.output) == (USAGE.prompt_tokens, MOST)


def partial_reply(*times: float) -> StreamUsageEstimator:
    """The first events of the message, each at its time."""
    partial = StreamUsageEstimator()
    for event, at in zip(iter_message_events(MESSAGE), times, strict=False):
        partial.add_event(EVENT.validate_json(event.partition(b"\ndata: ")[2]), at)
    return partial


def output_of(partial: StreamUsageEstimator, now: float, most: int = MOST) -> int:
    used = partial.estimate_max_usage(now, most)
    assert used is not None
    return used.output


def test_thinking_counts_by_its_time_since_only_a_part_of_it_is_shown() -> None:
    short, long = partial_reply(0.0, 0.0, 1.0), partial_reply(0.0, 0.0, 31.0)
    assert output_of(long, 31.0) - output_of(short, 1.0) == 30 * TOKENS_PER_SECOND
    over = partial_reply(0.0, 0.0, 1.0, 1.0, 31.0, 31.0, 91.0)  # its end, and then text for a minute
    assert output_of(over, 91.0) - output_of(partial_reply(0.0, 0.0, 1.0, 1.0, 31.0, 31.0, 31.0), 31.0) == 0


def test_silence_counts_by_its_time_since_what_is_on_its_way_was_produced() -> None:
    begun = partial_reply(0.0)
    assert output_of(begun, 0.0) == NOTICE_SECONDS * TOKENS_PER_SECOND
    assert output_of(begun, 90.0) == (90 + NOTICE_SECONDS) * TOKENS_PER_SECOND
    assert output_of(begun, 90.0, most=8_000) == 8_000


def test_what_arrived_counts_by_its_bytes() -> None:
    everything = partial_reply(*[0.0] * (EVENTS - 2))
    assert output_of(everything, 0.0) > len(SAID) + NOTICE_SECONDS * TOKENS_PER_SECOND
