"""The estimate against counts of real tokenisers, and the upper bound against any request at all."""

from math import sqrt
from pathlib import Path
from unicodedata import normalize

from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue

from tests.support.conversations import arbitrary_messages
from waystation.context.tokens import (
    compute_request_upper_bound,
    estimate_fixed_tokens,
    estimate_request_tokens,
    estimate_text,
)
from waystation.context.transcript import Block, Message, RedactedThinking, Text, Thinking, ToolResult, ToolUse


class Counted(BaseModel):
    """A real text and what two tokenisers make of it."""

    kind: str
    name: str
    claude: int
    """Tokens by the tokeniser of Claude 2, the last of Claude's that was published."""
    o200k: int
    text: str


class Table(BaseModel):
    source: str
    """Where the texts and the counts come from."""
    texts: list[Counted]


TABLE = Table.model_validate_json((Path(__file__).parent / "token_counts.json").read_text())
FACTORS = {
    "prose": 1.35,
    "CJK": 1.45,
    "other scripts": 1.3,
    "emoji": 1.25,
    "code": 1.25,
    "JSON": 1.25,
    "log": 1.25,
    "table": 1.25,
    "base64": 1.25,
    "hexadecimal": 1.3,
}
"""By how much the estimate may miss the middle of both counts, upwards or downwards."""


def test_the_estimate_of_a_real_text_is_within_the_factor_of_its_kind() -> None:
    def is_near(counted: Counted) -> bool:
        middle, factor = sqrt(counted.claude * counted.o200k), FACTORS[counted.kind]
        return middle / factor <= estimate_text(counted.text) <= middle * factor

    assert {
        counted.name: (estimate_text(counted.text), counted.claude, counted.o200k)
        for counted in TABLE.texts
        if not is_near(counted)
    } == {}


def test_every_kind_of_content_is_in_the_table() -> None:
    assert {counted.kind for counted in TABLE.texts} == FACTORS.keys()


def test_the_upper_bound_is_over_what_any_tokeniser_counts() -> None:
    def bound(text: str) -> int:
        message = Message(id="m1", role="user", blocks=(Text(text=text),))
        return compute_request_upper_bound("", "", (message,)) - compute_request_upper_bound("", "", ())

    assert {
        counted.name: (bound(counted.text), counted.claude, counted.o200k)
        for counted in TABLE.texts
        if bound(counted.text) <= max(counted.claude, counted.o200k)
    } == {}


def test_a_picture_in_a_document_is_estimated_also_where_it_is_a_small_part_of_it() -> None:
    texts = {counted.name: counted for counted in TABLE.texts}
    picture, around = texts["base64 in one line"], texts["JSON, indented"]
    mixed = around.text * 6 + picture.text
    counted = around.claude * 6 + picture.claude
    assert counted / 1.25 <= estimate_text(mixed) <= counted * 1.25


# ------------------------------------------------------------------------------------------------------ any request

TEXTS = st.text() | st.text('\ufdfa\u00e4\u0301ﬁ😀四\u200d\x00"\\\n<', max_size=40)
JSON: st.SearchStrategy[dict[str, JsonValue]] = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=3,
)
BLOCKS: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, text=TEXTS),
    st.builds(Thinking, thinking=TEXTS, signature=TEXTS),
    st.builds(RedactedThinking, data=TEXTS),
    st.builds(ToolUse, id=TEXTS, name=TEXTS, input=JSON),
    st.builds(ToolResult, tool_use_id=TEXTS, content=TEXTS, is_error=st.booleans()),
)
MESSAGES = st.builds(
    Message,
    id=TEXTS,
    role=st.sampled_from(["user", "assistant"]),
    blocks=st.lists(BLOCKS, min_size=1, max_size=4).map(tuple),
)
REQUESTS = arbitrary_messages() | st.lists(MESSAGES, max_size=5).map(tuple)


def said(value: JsonValue) -> list[str]:
    """Every text of a JSON value, keys included."""
    match value:
        case str():
            return [value]
        case dict():
            return [*value, *(text for part in value.values() for text in said(part))]
        case list():
            return [text for part in value for text in said(part)]
        case _:
            return []


def texts_of(message: Message) -> list[str]:
    return [text for block in message.blocks for text in said(block.model_dump(mode="json", exclude={"type"}))]


def size(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


@example("a0", 10_000)
@given(st.text("aA0.", max_size=12) | TEXTS, st.integers(1, 1_000))
def test_no_text_is_estimated_over_its_bytes_however_long_it_is(text: str, times: int) -> None:
    assert estimate_text(text * times) <= len(text.encode()) * times


@given(REQUESTS, TEXTS, TEXTS)
def test_the_upper_bound_covers_every_byte_of_text_and_any_estimate(
    messages: tuple[Message, ...], system: str, tools: str
) -> None:
    bound = compute_request_upper_bound(system, tools, messages)
    content = [text for message in messages for text in texts_of(message)]
    assert bound >= size([system, tools, *content])
    assert bound >= estimate_request_tokens(estimate_fixed_tokens(system, tools), messages)


@given(REQUESTS, MESSAGES)
def test_one_message_more_raises_estimate_and_upper_bound_by_as_much_as_it_says(
    messages: tuple[Message, ...], another: Message
) -> None:
    longer = (*messages, another)
    assert (
        compute_request_upper_bound("", "", longer) - compute_request_upper_bound("", "", messages)
        >= size(texts_of(another)) + 128
    )
    assert estimate_request_tokens(0, longer) >= estimate_request_tokens(0, messages) + 5


@given(MESSAGES, BLOCKS)
def test_one_block_more_raises_the_upper_bound_by_as_much_as_it_says(message: Message, another: Block) -> None:
    longer = message.replace(blocks=(*message.blocks, another))
    # A tokeniser normalises all of a message or nothing of it.
    forms = [[texts_of(part), [normalize("NFKC", text) for text in texts_of(part)]] for part in (longer, message)]
    more = min(size(after) - size(before) for after, before in zip(*forms, strict=True))
    assert compute_request_upper_bound("", "", (longer,)) - compute_request_upper_bound("", "", (message,)) >= more + 64
