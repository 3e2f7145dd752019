"""What the Messages API documents as an error is refused, whoever sends it; what our client sends is not."""

from collections.abc import Sequence
from typing import cast

import httpx2
import pytest
from pydantic import JsonValue

from tests.support.strict_server import Body, StrictServer, find_refusal
from waystation.context.transcript import Message, Text, Thinking, ToolResult, ToolUse, build_user_message
from waystation.kernel.errors import ModelRejected
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.anthropic.wire import THINKING_BETA
from waystation.models.ports import ModelRequest, ToolSpec
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import PrefixBinding

MODEL = "claude-haiku-4-5"
ASKED: JsonValue = {"role": "user", "content": "Why?"}
CALL: JsonValue = {"type": "tool_use", "id": "c1", "name": "search", "input": {}}
CALLED: JsonValue = {"role": "assistant", "content": [CALL]}
RESULT: JsonValue = {"type": "tool_result", "tool_use_id": "c1", "content": "4.1 m"}
ANSWERED: JsonValue = {"role": "user", "content": [RESULT]}
TOOL: JsonValue = {"name": "search", "input_schema": {"type": "object"}}
MARK: JsonValue = {"type": "ephemeral"}
THINK: JsonValue = {"type": "enabled", "budget_tokens": 2_048}
FORCED: JsonValue = {"type": "tool", "name": "search"}


def words(text: str, **more: JsonValue) -> JsonValue:
    return {"type": "text", "text": text, **more}


def said(*blocks: JsonValue) -> JsonValue:
    return {"role": "assistant", "content": [*blocks]}


def body(**changes: JsonValue) -> Body:
    """A request that is fine but for these."""
    return {"model": MODEL, "max_tokens": 4_096, "messages": [ASKED, CALLED, ANSWERED], "tools": [TOOL], **changes}


def talk(*messages: JsonValue) -> Body:
    return body(messages=[*messages])


VIOLATIONS: dict[str, tuple[Body, str]] = {
    "the assistant begins": (talk(said(words("Hm.")), ASKED), "first message"),
    "a field that the API does not have": (body(reply_tokens=1), "reply_tokens: extra inputs are not permitted"),
    "prefill": (talk(ASKED, said(words("The depth is"))), "prefill"),
    "nothing said": (talk({"role": "user", "content": []}), "at least 1 item"),
    "blank text": (talk({"role": "user", "content": [words(" \n")]}), "non-whitespace"),
    "blank system prompt": (body(system=[words("")]), "non-whitespace"),
    "a call without a result": (talk(ASKED, CALLED, ASKED), "without `tool_result`"),
    "a result without a call": (talk(ASKED, said(words("Hm.")), ANSWERED), "unexpected `tool_use_id`"),
    "two results of one call": (
        talk(ASKED, CALLED, {"role": "user", "content": [RESULT, RESULT]}),
        "unexpected `tool_use_id`",
    ),
    "a result behind text": (talk(ASKED, CALLED, {"role": "user", "content": [words("So"), RESULT]}), "before other"),
    "a result one message late": (talk(ASKED, CALLED, ASKED, said(words("Hm.")), ANSWERED), "without `tool_result`"),
    "a call of the user": (talk({"role": "user", "content": [CALL]}), "only be in assistant"),
    "one id for two calls": (talk(ASKED, CALLED, ANSWERED, CALLED, ANSWERED), "ids must be unique"),
    "arguments that are no object": (talk(ASKED, said({**cast("Body", CALL), "input": "x"}), ANSWERED), "input"),
    "five marks": (
        body(messages=[{"role": "user", "content": [words(str(n), cache_control=MARK) for n in range(5)]}]),
        "a maximum of 4",
    ),
    "tools of one name": (body(tools=[TOOL, TOOL]), "names must be unique"),
    "a choice of no tool": (body(tool_choice={"type": "tool", "name": "dig"}), "there is no tool"),
    "a union at the top": (body(tools=[{"name": "search", "input_schema": {"anyOf": [{"type": "object"}]}}]), "union"),
    "a union beside an object": (
        body(tools=[{"name": "search", "input_schema": {"type": "object", "oneOf": []}}]),
        "union",
    ),
    "a schema of no object": (body(tools=[{"name": "search", "input_schema": {"type": "array"}}]), "an object"),
    "a forced choice with thinking": (body(tool_choice=FORCED, thinking=THINK, messages=[ASKED]), "forces tool use"),
    "any choice with thinking": (
        body(tool_choice={"type": "any"}, thinking={"type": "adaptive"}, messages=[ASKED]),
        "forces tool use",
    ),
    "too little to think": (body(thinking={"type": "enabled", "budget_tokens": 1_023}, messages=[ASKED]), "1,024"),
    "all of the reply to think": (
        body(thinking={"type": "enabled", "budget_tokens": 4_096}, messages=[ASKED]),
        "less than max_tokens",
    ),
    "nothing to think": (body(thinking={"type": "enabled"}, messages=[ASKED]), "field required"),
    "a budget for adaptive thinking": (
        body(thinking={"type": "adaptive", "budget_tokens": 2_048}, messages=[ASKED]),
        "extra inputs",
    ),
    "a budget for a model that takes none": (
        body(thinking=THINK, messages=[ASKED], model="claude-opus-4-8"),
        "thinks adaptively",
    ),
    "a forced choice of a model that takes none": (body(tool_choice=FORCED, model="claude-opus-5-5"), "auto and none"),
    "bound thinking without its beta": (
        body(thinking={"type": "adaptive", "block_binding": {}}, messages=[ASKED], model="claude-opus-5-5"),
        "extra inputs",
    ),
    "open calls without their thinking": (body(thinking=THINK), "begin with it"),
    "thinking at the end": (
        talk(ASKED, said(words("Hm."), {"type": "thinking", "thinking": "x", "signature": "y"}), ASKED),
        "final block",
    ),
    "no longest reply": ({**body(), "max_tokens": -1}, "greater than or equal to 0"),
    "a stream without a reply": ({**body(), "max_tokens": 0, "stream": True}, "with max_tokens 0"),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_every_violation_is_refused_for_its_own_reason(violation: str) -> None:
    request, reason = VIOLATIONS[violation]
    assert reason in find_refusal(request)
    response = StrictServer(lambda _: make_scripted_response(Text(text="Fine."))).respond(
        httpx2.Request("POST", "http://model.test/v1/messages", json=request)
    )
    assert response.status_code == 400


@pytest.mark.parametrize(
    "request_",
    [
        body(),
        talk(ASKED, ASKED),
        talk(ASKED, CALLED, {"role": "user", "content": [RESULT, words("Go on.")]}),
        body(tool_choice=FORCED),
        body(thinking=THINK, messages=[ASKED]),
        body(thinking={"type": "adaptive"}, model="claude-opus-4-8"),
        body(thinking={"type": "disabled"}, tool_choice=FORCED),
        body(messages=[{"role": "user", "content": [words(str(n), cache_control=MARK) for n in range(4)]}]),
    ],
)
def test_what_the_api_takes_is_taken(request_: Body) -> None:
    assert find_refusal(request_) == ""


THOUGHT = make_scripted_response(Thinking(thinking="Hm.", signature=""), ToolUse(id="c1", name="search", input={}))
SEARCH = ToolSpec(name="search", description="Search.", input_schema={"type": "object"})


async def looped(model: str, thinking: int | None, *changed: Message) -> tuple[StrictServer, Sequence[str]]:
    """A call that thought, and one with its result; `changed`: in the place of what was asked first."""
    replies = iter([THOUGHT, make_scripted_response(Text(text="Fine."))])
    server = StrictServer(lambda _: next(replies))
    client = create_anthropic_model("key", "http://model.test", server.http_client())
    asked = ModelRequest(
        model=model, system="Work.", messages=(build_user_message("m1", "Why?"),), tools=(SEARCH,), max_output=4_096
    ).replace(thinking=thinking)
    reply = await client.complete(asked)
    result = Message(id="m3", role="user", blocks=(ToolResult(tool_use_id="c1", content="4.1 m"),))
    before = changed or (*asked.messages, Message(id="m2", role="assistant", blocks=reply.blocks))
    try:
        await client.complete(asked.replace(messages=(*before, result)))
    except ModelRejected as error:
        return server, [str(error)]
    return server, []


def thought(text: str, signature: str) -> Message:
    blocks = (Thinking(thinking=text, signature=signature), ToolUse(id="c1", name="search", input={}))
    return Message(id="m2", role="assistant", blocks=blocks)


@pytest.mark.parametrize(("model", "thinking"), [(MODEL, 2_048), ("claude-sonnet-5-5", None)])
async def test_thinking_that_comes_back_as_it_was_signed_is_taken(model: str, thinking: int | None) -> None:
    server, errors = await looped(model, thinking)
    assert (server.refusals, errors) == ([], [])


@pytest.mark.parametrize(
    "reply",
    [
        thought("Hm!", "c2ln"),
        Message(id="m2", role="assistant", blocks=(ToolUse(id="c1", name="search", input={}),)),
    ],
    ids=["changed", "missing"],
)
async def test_thinking_that_was_changed_or_left_out_of_a_loop_is_refused(reply: Message) -> None:
    server, errors = await looped(MODEL, 2_048, build_user_message("m1", "Why?"), reply)
    assert len(server.refusals) == len(errors) == 1
    assert "thinking" in errors[0]


def test_bound_thinking_behind_another_question_is_refused_unless_it_may_be_dropped() -> None:
    server = StrictServer(lambda _: THOUGHT)
    first = body(model="claude-sonnet-5-5", messages=[ASKED])
    answer = server.respond(httpx2.Request("POST", "http://model.test/v1/messages", json=first))
    assert answer.status_code == 200
    signature = _signature(first)
    reply = said({"type": "thinking", "thinking": "Hm.", "signature": signature}, CALL)
    assert find_refusal({**first, "messages": [ASKED, reply, ANSWERED]}) == ""
    other: JsonValue = {"role": "user", "content": "When?"}
    changed: Body = {**first, "messages": [other, reply, ANSWERED]}
    assert "signed behind" in find_refusal(changed)
    dropping: JsonValue = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert find_refusal({**changed, "thinking": dropping}, THINKING_BETA) == ""


def _signature(asked: Body) -> str:
    block = PrefixBinding().sign_reply(THOUGHT, asked).blocks[0]
    assert isinstance(block, Thinking)
    return block.signature
