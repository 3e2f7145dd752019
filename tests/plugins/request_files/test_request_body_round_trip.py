"""What a request body is after it was read and written again, whatever it holds."""

import json
import struct
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.context_command import assert_legal
from waystation.cli.context.arguments import build_token_estimator
from waystation.cli.context.compact import make_fixed_summariser
from waystation.context.history import build_model_view
from waystation.context.policy import CompactionPolicy, StrategyName
from waystation.plugins.request_files.conversation import Conversation
from waystation.plugins.request_files.request_body import (
    RequestBody,
    read_image_size,
    read_request_body,
    serialize_messages,
)

Json = dict[str, Any]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)

texts = st.sampled_from(
    ["Go on.", "Never delete a file.", "四月の報告書", "word " * 300, '{"a": [1, 2]}', "E4711 in /a/b.py"]
)
extras = st.sampled_from([{}, {}, {"cache_control": {"type": "ephemeral"}}, {"citations": None}])
IMAGE: Json = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
FOUND: Json = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}
SERVED: Json = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}}


def text_block(text: str, extra: Json) -> Json:
    return {"type": "text", "text": text, **extra}


def text_blocks() -> st.SearchStrategy[Json]:
    return st.builds(text_block, texts, extras)


contents = st.one_of(texts, st.lists(st.one_of(text_blocks(), st.just(IMAGE)), max_size=3))


@st.composite
def conversations(draw: st.DrawFn) -> list[Json]:
    """Legal ones: remarks, replies and turns of parallel calls; the calls at the end may be pending."""
    said = st.one_of(texts, st.lists(st.one_of(text_blocks(), st.sampled_from([IMAGE, FOUND])), min_size=1, max_size=3))
    messages: list[Json] = [{"role": "user", "content": draw(said)}]
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["turn", "turn", "turn", "user", "assistant"]))
        if kind == "turn":
            messages += draw(_turn(number))
        elif kind == "user":
            messages.append({"role": "user", "content": draw(said)})
        else:
            content = draw(st.one_of(texts, st.lists(text_blocks(), min_size=1, max_size=2)))
            messages.append({"role": "assistant", "content": content})
    if draw(st.booleans()):
        messages.append({"role": "assistant", "content": [{"type": "tool_use", "id": "end", "name": "f", "input": {}}]})
    return messages


@st.composite
def _turn(draw: st.DrawFn, number: int) -> list[Json]:
    ids = [f"c{number}-{place}" for place in range(draw(st.integers(1, 3)))]
    thought = draw(st.sampled_from([[], [{"type": "thinking", "thinking": "…", "signature": "c2ln"}], [SERVED]]))
    uses = [{"type": "tool_use", "id": name, "name": "read_file", "input": {"path": name}} for name in ids]
    answers = [{"type": "tool_result", "tool_use_id": name, "content": draw(contents), **draw(extras)} for name in ids]
    beside = draw(st.lists(text_blocks(), max_size=1))
    return [{"role": "assistant", "content": [*thought, *uses]}, {"role": "user", "content": [*answers, *beside]}]


def users_part(message: Json) -> list[Json]:
    """What of a message the user said, or attached without a tool."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    own = [block for block in blocks if block["type"] != "tool_result"]
    said = " ".join(block.get("text", "") for block in own)
    by_code = said.startswith("<earlier_conversation>") or "earlier messages are hidden here" in said
    is_words = message["role"] == "user" and not by_code and (said or own == blocks)
    return own if is_words else []


def read(messages: list[Json]) -> RequestBody:
    return read_request_body(json.dumps({"model": "claude-sonnet-5-5", "messages": messages}).encode())


@given(conversations())
def test_a_legal_request_with_nothing_to_do_comes_back_equal(messages: list[Json]) -> None:
    body = read(messages)
    assert serialize_messages(body, build_model_view(body.transcript)) == messages
    assert body.body["messages"] == messages


@settings(max_examples=60)
@given(
    conversations(),
    st.sampled_from(STRATEGIES),
    st.sampled_from(["It was read.", "", "word " * 4_000]),
    st.booleans(),
    st.sampled_from([1_200, 4_000, 9_000]),
)
async def test_every_view_is_legal_for_the_checker_and_the_sdk_never_grows_and_repeats(
    messages: list[Json], strategy: StrategyName, summary: str, force: bool, window: int
) -> None:
    def conversation(of: RequestBody) -> Conversation:
        policy = CompactionPolicy(strategy=strategy, window=window, trigger=window * 3 // 4, target=window * 3 // 8)
        return Conversation(
            of.transcript, build_token_estimator(of), policy, frozenset({"read_file"}), {"read_file": "path"}
        )

    for _ in range(3):
        body = read(messages)
        done = conversation(body)
        before, ask = done.tokens, make_fixed_summariser(summary, done.policy)
        if not (force and await done.force_summary(ask)):
            await done.make_room(ask, lambda transcript: transcript)
        written = serialize_messages(body, build_model_view(done.transcript))
        assert_legal(written)
        assert done.tokens <= before
        assert len(done.attempts) <= 8
        assert written[0] == messages[0]
        latest = [message for message in messages if users_part(message)][-1]
        assert users_part(latest) in [users_part(message) for message in written]
        messages = written


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480), (640, 480)),
        (b"GIF89a" + struct.pack("<HH", 640, 480), (640, 480)),
        (b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", 480, 640) + b"\x03", (640, 480)),
        (b"RIFF\x00\x00\x00\x00WEBPVP8X" + bytes(8) + b"\x7f\x02\x00\xdf\x01\x00", (640, 480)),
        (
            b"RIFF\x00\x00\x00\x00WEBPVP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 639 | 479 << 14) + bytes(5),
            (640, 480),
        ),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 " + bytes(10) + struct.pack("<HH", 640, 480), (640, 480)),
        (b"\xff\xd8\xff\xe0\xff\xff", None),
        (b"\x89PNG\r\n\x1a\n", None),
        (b"RIFF\x00\x00\x00\x00WEBPxxxx" + bytes(20), None),
        (b"<svg/>", None),
        (b"", None),
    ],
)
def test_the_size_of_an_image_is_read_from_its_first_bytes(head: bytes, size: tuple[int, int] | None) -> None:
    assert read_image_size(head) == size


@given(
    st.sampled_from([b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF0000WEBPVP8 ", b""]), st.binary(max_size=80)
)
def test_no_bytes_break_the_reading_of_sizes(start: bytes, rest: bytes) -> None:
    size = read_image_size(start + rest)
    assert size is None or min(size) >= 0
