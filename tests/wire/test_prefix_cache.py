"""The double of the provider's prompt cache follows the provider's rules, and says why a prefix was not read."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue

from waystation.context.transcript import Message, Text, build_user_message
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.ports import ModelRequest, ToolSpec
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import CACHE_LIFETIME, CacheMissEvent, CachingServer, PrefixCache

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MARK: dict[str, JsonValue] = {"type": "ephemeral"}


def text(words: str, *, marked: bool = False) -> dict[str, JsonValue]:
    return {"type": "text", "text": words, **({"cache_control": MARK} if marked else {})}


def body(*blocks: JsonValue, system: str = "s" * 8_000, tool: str = "read") -> dict[str, JsonValue]:
    return {
        "model": "m",
        "tools": [{"name": tool, "input_schema": {}, "cache_control": MARK}],
        "system": [text(system, marked=True)],
        "messages": [{"role": "user", "content": [*blocks]}],
    }


FIRST = body(text("a" * 4_000, marked=True), text("reminder 1"))
SECOND = body(text("a" * 4_000), text("b" * 4_000, marked=True), text("reminder 2"))


def test_the_next_request_reads_what_the_last_one_marked_and_not_its_reminder() -> None:
    cache = PrefixCache()
    first = cache.record_request(FIRST, NOON)
    assert (first.cache_read, 0 < first.input < 20) == (0, True)
    second = cache.record_request(SECOND, NOON)
    assert second.cache_read == first.cache_write
    assert second.cache_write > 1_000
    assert cache.breaks == []


@pytest.mark.parametrize(
    ("second", "cause"),
    [
        (body(text("a" * 4_000), text("b", marked=True), tool="write"), "tools changed"),
        (body(text("a" * 4_000), text("b", marked=True), system="t" * 8_000), "system changed"),
        (body(text("summary"), text("b", marked=True)), "messages changed"),
    ],
)
def test_what_changed_is_named(second: dict[str, JsonValue], cause: str) -> None:
    cache = PrefixCache()
    written = cache.record_request(FIRST, NOON).cache_write
    usage = cache.record_request(second, NOON)
    assert [(found.request, found.cause) for found in cache.breaks] == [(2, cause)]
    assert cache.breaks[0].lost == written - usage.cache_read
    assert (usage.cache_read > 1_900) == (cause == "messages changed")


def test_a_tool_that_is_added_changes_the_tools() -> None:
    cache = PrefixCache()
    cache.record_request(FIRST, NOON)
    tools: list[JsonValue] = [{"name": "read", "input_schema": {}}, {"name": "write", "cache_control": MARK}]
    cache.record_request({**FIRST, "tools": tools}, NOON)
    assert [broken.cause for broken in cache.breaks] == ["tools changed"]


def test_a_prefix_lives_five_minutes_from_its_last_use() -> None:
    cache = PrefixCache()
    written = cache.record_request(FIRST, NOON).cache_write
    assert cache.record_request(FIRST, NOON + CACHE_LIFETIME - timedelta(seconds=1)).cache_read == written
    assert cache.record_request(FIRST, NOON + CACHE_LIFETIME + timedelta(minutes=4)).cache_read == written
    assert cache.record_request(FIRST, NOON + 4 * CACHE_LIFETIME).cache_read == 0
    assert cache.breaks == [CacheMissEvent(model="m", request=4, cause="expired", lost=written)]


def test_a_short_prefix_is_neither_written_nor_missed() -> None:
    cache = PrefixCache()
    short = body(text("a", marked=True), system="short")
    assert [cache.record_request(short, NOON).cache_write, cache.record_request(short, NOON).cache_read] == [0, 0]
    assert cache.breaks == []


@pytest.mark.parametrize(("blocks", "found"), [(20, True), (21, False)])
def test_a_prefix_is_found_at_most_twenty_blocks_before_a_mark(blocks: int, *, found: bool) -> None:
    cache = PrefixCache()
    written = cache.record_request(FIRST, NOON).cache_write
    many = [text(f"b{number}", marked=number == blocks - 1) for number in range(blocks)]
    usage = cache.record_request(body(text("a" * 4_000), *many), NOON)
    assert (usage.cache_read == written) is found
    assert [broken.cause for broken in cache.breaks] == ([] if found else ["too far back"])


async def test_the_adapter_marks_so_that_each_request_reads_all_of_the_one_before() -> None:
    server = CachingServer(lambda _: make_scripted_response(Text(text="Go on.")), lambda: NOON)
    model = create_anthropic_model("key", http_client=server.build_http_client())
    said = [build_user_message("m1", "word " * 2_000)]
    for turn in range(5):
        request = ModelRequest(
            model="claude-opus-5",
            system="Be brief. " * 200,
            messages=tuple(said),
            tools=(ToolSpec(name="read", description="Reads.", input_schema={"type": "object"}),),
            max_output=100,
        )
        reply = await model.complete(request)
        assert reply.usage == server.usages[-1]
        said += [
            Message(id=f"a{turn}", role="assistant", blocks=reply.blocks),
            build_user_message(f"u{turn}", "word " * 300),
        ]
    await model.aclose()
    assert server.cache.breaks == []
    for earlier, later in zip(server.usages, server.usages[1:], strict=False):
        assert later.cache_read == earlier.cache_read + earlier.cache_write
