"""The scripted provider of the live benchmark keeps the API's rules, and its figures say what was recorded."""

from datetime import date

import httpx2
import pytest
from pydantic import JsonValue

from benchmarks.live.documents import make_documents
from benchmarks.live.figures import build_rows, compute_figures
from benchmarks.live.model import Body, ScriptedModel
from benchmarks.live.provider import Provider, fit, read_thinking
from benchmarks.live.run import RunResult
from waystation.context.transcript import Message, Thinking, ToolResult, ToolUse, build_user_message
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.ports import ModelRequest, ModelResponse, ToolSpec

DAY = date(2026, 11, 28)
DOCUMENTS = make_documents(3, scale=0.1)
TOOLS = tuple(
    ToolSpec(name=name, description=name, input_schema={"type": "object"})
    for name in ("search_documents", "read_document", "take_note", "list_documents", "submit_findings")
)
CONTRACT = build_user_message("m1", '<step id="quays">Read.</step>')


WRITER_TOOLS = (ToolSpec(name="submit_report", description="submit_report", input_schema={"type": "object"}),)


def request(
    *more: Message, most: int = 8_000, contract: Message = CONTRACT, tools: tuple[ToolSpec, ...] = TOOLS
) -> ModelRequest:
    return ModelRequest(
        model="claude-sonnet-5-5", system="Work.", messages=(contract, *more), tools=tools, max_output=most
    )


async def asked(provider: Provider, *requests: ModelRequest) -> list[ModelResponse]:
    transport = httpx2.MockTransport(lambda sent: provider.reply(sent.url.path, {}, sent.content))
    model = create_anthropic_model("key", http_client=httpx2.AsyncClient(transport=transport))
    replies = [await model.complete(one) for one in requests]
    await model.aclose()
    return replies


def answered(reply: ModelResponse, number: int, text: str = "1| A line.") -> tuple[Message, Message]:
    """The reply, and results of all its calls."""
    results = [ToolResult(tool_use_id=block.id, content=text) for block in reply.blocks if isinstance(block, ToolUse)]
    said = Message(id=f"a{number}", role="assistant", blocks=reply.blocks)
    return said, Message(id=f"u{number}", role="user", blocks=tuple(results))


async def test_thinking_is_kept_behind_the_same_prefix_and_dropped_behind_another() -> None:
    provider = Provider(script=ScriptedModel(DOCUMENTS))
    (first,) = await asked(provider, request())
    assert isinstance(first.blocks[0], Thinking)
    went_on = answered(first, 1)
    await asked(provider, request(*went_on))
    changed = build_user_message("m1", '<step id="quays">Read. <status>left: 9</status></step>')
    await asked(provider, request(*went_on, contract=changed))
    assert [(call.thinking, call.dropped) for call in provider.calls] == [(0, 0), (1, 0), (1, 1)]


async def test_thinking_from_before_a_compaction_is_counted_apart() -> None:
    provider = Provider(script=ScriptedModel(DOCUMENTS))
    (first,) = await asked(provider, request())
    one = answered(first, 1)
    (second,) = await asked(provider, request(*one))
    two = answered(second, 2)
    masked = answered(first, 1, "(hidden)")
    await asked(provider, request(*masked, *two))
    newest = provider.calls[-1]
    assert (newest.compacted, newest.thinking, newest.dropped, newest.outdated) == (True, 2, 1, 1)


async def test_a_reply_is_cut_at_its_maximum_and_asked_for_again_it_is_shorter() -> None:
    provider = Provider(script=ScriptedModel(DOCUMENTS))
    (cut, whole) = await asked(provider, request(most=300), request(most=300))
    assert (cut.stop, whole.stop) == ("max_tokens", "tool_use")
    assert [(call.cut, call.usage.output <= 300) for call in provider.calls] == [(True, True), (False, True)]


async def test_pages_count_once_and_errors_are_told_apart() -> None:
    provider = Provider(script=ScriptedModel(DOCUMENTS))
    (first,) = await asked(provider, request())
    one = answered(first, 1)
    (second,) = await asked(provider, request(*one))
    two = answered(second, 2, "1| " + "word " * 400)
    (third,) = await asked(provider, request(*one, *two))
    await asked(provider, request(*one, *two, *answered(third, 3)))
    pages = [call.documents for call in provider.calls]
    assert pages[:2] == [0, 0]
    assert pages[2] > 400
    assert 0 < pages[3] < 100
    assert sum(call.errors for call in provider.calls) == 0


def test_without_leave_to_drop_thinking_the_request_is_refused() -> None:
    thinking: JsonValue = {"type": "thinking", "thinking": "Why?", "signature": "of another prefix"}
    said: list[JsonValue] = [thinking, {"type": "tool_use", "id": "c1", "name": "read_document", "input": {}}]
    result: list[JsonValue] = [{"type": "tool_result", "tool_use_id": "c1", "content": "A line."}]
    messages: list[JsonValue] = [
        {"role": "user", "content": "Read."},
        {"role": "assistant", "content": said},
        {"role": "user", "content": result},
    ]
    tools: list[JsonValue] = [{"name": "read_document", "description": "", "input_schema": {"type": "object"}}]
    body: Body = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": messages, "tools": tools}
    thoughts, read = read_thinking(body)
    assert [thought.fits for thought in thoughts] == [False]
    assert "another prefix" not in str(read)
    provider = Provider(script=ScriptedModel(DOCUMENTS))
    answer = provider.reply("/v1/messages", {}, httpx2.Request("POST", "http://test", json=body).read())
    assert answer.status_code == 400
    assert provider.refusals


def test_a_call_of_a_tool_that_does_not_fit_is_left_out() -> None:
    text: Body = {"type": "text", "text": "x" * 40}
    call: Body = {"type": "tool_use", "id": "c1", "name": "read_document", "input": {"name": "y" * 40}}
    assert fit([text, call], 10) == ([text], True)
    assert fit([text, call], 5) == ([{"type": "text", "text": "x" * 20}], True)
    assert fit([text, call], 100) == ([text, call], False)


async def test_the_figures_are_those_of_the_recorded_requests() -> None:
    provider = Provider(script=ScriptedModel(DOCUMENTS))
    (first,) = await asked(provider, request(most=9_000))
    await asked(provider, request(*answered(first, 1), most=7_000))
    run = RunResult("a checkout", provider.calls, (), "done", 0, 600_000, 5, 1.0)
    found = compute_figures(run, 600_000, DAY)
    assert (found.turns, found.thinking, found.dropped_between) == (2, 1, 0)
    assert found.fresh == sum(call.usage.fresh for call in provider.calls)
    assert found.least_reply == {"research": 7_000}
    assert found.at_writer is None
    assert found.micro_usd["research"] > 0
    assert ("least max_tokens, research", "7,000") in build_rows([found])


async def test_what_was_granted_later_is_not_left_for_the_writer() -> None:
    provider = Provider(script=ScriptedModel(DOCUMENTS))
    await asked(provider, request(most=9_000))
    await asked(provider, request(most=9_000, tools=WRITER_TOOLS))
    run = RunResult("a checkout", provider.calls, (), "done", 3, 900_000, 5, 1.0)
    assert compute_figures(run, 600_000, DAY).at_writer == 600_000 - provider.calls[0].usage.fresh


@pytest.mark.parametrize("count", [25])
def test_the_documents_are_always_the_same_and_as_long_as_real_ones(count: int) -> None:
    documents = make_documents()
    assert documents == make_documents()
    assert len(documents) == count
    tokens = [len(document.text.encode()) // 4 for document in documents]
    assert (min(tokens) >= 2_000, max(tokens) <= 20_500) == (True, True)
