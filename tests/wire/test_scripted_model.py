from waystation.context.transcript import Text, build_user_message
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.testing.doubles import ScriptedModel, make_scripted_response


def asking(text: str) -> ModelRequest:
    return ModelRequest(model="m", system="", messages=(build_user_message("m1", text),), max_output=10)


async def test_a_function_answers_each_request_by_itself() -> None:
    def echo(request: ModelRequest) -> ModelResponse:
        return make_scripted_response(Text(text=request.messages[-1].text.upper()))

    model = ScriptedModel(echo)
    replies = [await model.complete(asking("a")), await model.complete(asking("b"))]
    assert [reply.blocks for reply in replies] == [(Text(text="A"),), (Text(text="B"),)]


async def test_requests_for_replies_are_kept_and_counted() -> None:
    model = ScriptedModel([make_scripted_response(Text(text="Fine."))])
    await model.count_tokens(asking("before"))
    await model.complete(asking("now"))
    assert model.calls == 1
    assert model.requests == [asking("now")]
    assert not model.closed
    await model.aclose()
    assert model.closed
