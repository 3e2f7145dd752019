"""What every `ChatModel` keeps to, whether scripted or behind the Messages protocol."""

from collections.abc import Callable, Sequence

import httpx2
import pytest

from waystation.adapters.anthropic.messages_server import ScriptedServer, message_of, refused, streamed
from waystation.adapters.anthropic.model import anthropic_model
from waystation.domain.budget import Usage
from waystation.domain.errors import ModelError, ModelRejected, ModelUnavailable
from waystation.domain.transcript import Text, Thinking, ToolUse, user_text
from waystation.ports import ChatModel, ModelReply, ModelRequest, StopReason, ToolSpec
from waystation.testing import ScriptedModel, scripted_reply

Saying = Sequence[ModelReply | ModelError]
Make = Callable[[Saying], ChatModel]

REQUEST = ModelRequest(
    model="claude-sonnet-5-5", system="Work.", messages=(user_text("m1", "What changed?"),), max_output=100
)


def scripted(saying: Saying) -> ChatModel:
    return ScriptedModel(saying)


def behind_the_protocol(saying: Saying) -> ChatModel:
    server = ScriptedServer([answer(said) for said in saying])
    return anthropic_model("key", "http://model.test", server.http_client())


def answer(said: ModelReply | ModelError) -> httpx2.Response:
    match said:
        case ModelReply():
            return streamed(message_of(said))
        case ModelUnavailable():
            named = {} if said.retry_after is None else {"retry-after": str(said.retry_after)}
            return refused(429, "rate_limit_error", headers=named)
        case _:
            return refused(401, "authentication_error")


@pytest.fixture(params=[scripted, behind_the_protocol])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


async def test_a_reply_arrives_whole(make: Make) -> None:
    said = scripted_reply(
        Thinking(thinking="Hm.", signature="c2ln"),
        Text(text="I look."),
        ToolUse(id="t1", name="search", input={"query": "x", "limits": [1, 2.5, None]}),
        usage=Usage(input=3, cache_write=5, cache_read=7, output=11),
    )
    assert await make([said]).complete(REQUEST) == said


async def test_replies_come_in_order_and_one_for_each_call(make: Make) -> None:
    first, second = scripted_reply(Text(text="One.")), scripted_reply(Text(text="Two."))
    model = make([first, second])
    assert [await model.complete(REQUEST), await model.complete(REQUEST)] == [first, second]


async def test_an_empty_refusal_is_a_reply(make: Make) -> None:
    said = scripted_reply(stop=StopReason.REFUSAL)
    assert await make([said]).complete(REQUEST) == said


async def test_what_may_pass_is_unavailable_and_names_the_delay(make: Make) -> None:
    said = scripted_reply(Text(text="Now."))
    model = make([ModelUnavailable("later", retry_after=2.5), said])
    with pytest.raises(ModelUnavailable) as raised:
        await model.complete(REQUEST)
    assert raised.value.retry_after == 2.5
    assert await model.complete(REQUEST) == said


async def test_what_will_not_pass_is_rejected(make: Make) -> None:
    with pytest.raises(ModelRejected):
        await make([ModelRejected("no")]).complete(REQUEST)


async def test_a_model_with_nothing_left_to_say_rejects(make: Make) -> None:
    with pytest.raises(ModelRejected):
        await make([]).complete(REQUEST)


async def test_counting_tokens_is_repeatable_grows_with_the_request_and_says_nothing(make: Make) -> None:
    said = scripted_reply(Text(text="Fine."))
    model = make([said])
    tool = ToolSpec(name="search", description="Search the documents. " * 5, input_schema={"type": "object"})
    longer = REQUEST.model_copy(update={"tools": (tool,)})
    counted, more = await model.count_tokens(REQUEST), await model.count_tokens(longer)
    assert counted is not None
    assert more is not None
    assert 0 < counted < more
    assert await model.count_tokens(REQUEST) == counted
    assert await model.complete(REQUEST) == said


async def test_closing_ends_without_a_word(make: Make) -> None:
    await make([]).aclose()
