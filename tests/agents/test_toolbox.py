import json

import pytest

from tests.support.agent_environment import SECRET, SECRET_PLACEHOLDER, AgentEnvironment, make_tool_use
from waystation.agents.tools.tool import ToolCallRejectedError, ToolContext, ToolInput, TypedTool, select_page_lines
from waystation.agents.tools.toolbox import OUTCOME_UNKNOWN, Toolbox
from waystation.context.stages import is_too_large
from waystation.context.transcript import ToolResult
from waystation.kernel.errors import RedactionFailed, StaleFenceError
from waystation.kernel.roles import AgentRole


class SayInput(ToolInput):
    text: str
    times: int = 1


class Say(TypedTool[SayInput]):
    name = "say"
    description = "Says it."
    rereadable = True
    input_model = SayInput

    async def run(self, arguments: SayInput, ctx: ToolContext) -> str:
        if arguments.text == "refuse":
            raise ToolCallRejectedError(f"Not that: {SECRET}.")
        return arguments.text * arguments.times


class Send(TypedTool[SayInput]):
    """Doing it twice does more than doing it once."""

    name = "send"
    description = "Sends it."
    idempotent = False
    ends_run = True
    input_model = SayInput

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def run(self, arguments: SayInput, ctx: ToolContext) -> str:
        self.sent.append(arguments.text)
        return "sent"


@pytest.fixture
def send() -> Send:
    return Send()


@pytest.fixture
def box(env: AgentEnvironment, send: Send) -> Toolbox:
    return Toolbox(tools=[Say(), send], store=env.store, redactor=env.redactor)


def test_a_box_knows_its_tools(box: Toolbox) -> None:
    assert [spec.name for spec in box.visible_specs] == ["say", "send"]
    assert (box.rereadable_tool_names, box.ending_tool_names) == ({"say"}, {"send"})


@pytest.mark.parametrize("role", ["research", "analysis", "writing"])
def test_every_role_has_one_tool_that_ends_its_run_and_no_name_twice(env: AgentEnvironment, role: AgentRole) -> None:
    toolbox = env.agent_deps.build_role_toolbox(role)
    names = [spec.name for spec in toolbox.visible_specs]
    assert len(set(names)) == len(names)
    assert len(toolbox.ending_tool_names) == 1
    assert {"list_documents", "search_documents", "read_document", "recall", "read_stored"} <= set(names)
    assert [spec.name for spec in env.agent_deps.build_role_toolbox(role).visible_specs] == names


def test_every_argument_is_described_by_a_schema_that_allows_no_other(env: AgentEnvironment) -> None:
    for role in ("research", "analysis", "writing"):
        for spec in env.agent_deps.build_role_toolbox(role).visible_specs:
            assert spec.input_schema["type"] == "object"
            assert spec.input_schema["additionalProperties"] is False


async def test_a_call_gives_its_result(env: AgentEnvironment, box: Toolbox) -> None:
    result = await box.run(make_tool_use("say", "c7", text="hello"), await env.make_tool_context())
    assert result == ToolResult(tool_use_id="c7", content="hello")


async def test_an_unknown_tool_is_an_error_that_names_the_known_ones(env: AgentEnvironment, box: Toolbox) -> None:
    result = await box.run(make_tool_use("shout", text="hello"), await env.make_tool_context())
    assert (result.is_error, result.content) == (True, "There is no tool 'shout'. Your tools are: say, send.")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "text: Field required"),
        ({"text": "x", "times": "a private thing"}, "times: Input should be a valid integer"),
        ({"text": ["a private thing"]}, "text: Input should be a valid string"),
        ({"text": "x", "loud": "a private thing"}, "loud: Extra inputs are not permitted"),
    ],
)
async def test_bad_arguments_are_an_error_that_says_what_is_wrong_without_their_values(
    env: AgentEnvironment, box: Toolbox, arguments: dict[str, object], complaint: str
) -> None:
    result = await box.run(make_tool_use("say", **arguments), await env.make_tool_context())
    assert result.is_error
    assert result.content.startswith(f"These arguments cannot be used. {complaint}")
    assert "private" not in result.content


async def test_a_refusal_is_an_error_and_redacted_like_any_result(env: AgentEnvironment, box: Toolbox) -> None:
    result = await box.run(make_tool_use("say", text="refuse"), await env.make_tool_context())
    assert (result.is_error, result.content) == (True, f"Not that: {SECRET_PLACEHOLDER}.")


async def test_a_tool_that_may_not_be_repeated_is_run_once(env: AgentEnvironment, box: Toolbox, send: Send) -> None:
    first = await box.run(make_tool_use("send", "c1", text="a"), await env.make_tool_context())
    again = await box.run(make_tool_use("send", "c1", text="a"), await env.make_tool_context())
    other = await box.run(make_tool_use("send", "c2", text="b"), await env.make_tool_context())
    assert (first.content, other.content) == ("sent", "sent")
    assert (again.is_error, again.content) == (True, OUTCOME_UNKNOWN)
    assert send.sent == ["a", "b"]


async def test_an_attempt_that_lost_its_run_does_not_run_such_a_tool(
    env: AgentEnvironment, box: Toolbox, send: Send
) -> None:
    lost = await env.make_tool_context()
    await env.make_tool_context()
    with pytest.raises(StaleFenceError):
        await box.run(make_tool_use("send", text="a"), lost)
    assert send.sent == []


async def test_what_cannot_be_redacted_is_not_given(env: AgentEnvironment, box: Toolbox) -> None:
    env.redactor.failing = True
    for text in ("hello", "refuse"):
        with pytest.raises(RedactionFailed):
            await box.run(make_tool_use("say", text=text), await env.make_tool_context())


@pytest.mark.parametrize("words", ["harbour ", "港が埋まった", f"{SECRET} "], ids=["prose", "wide", "secret"])
@pytest.mark.parametrize("window", [2_000, 12_000])
async def test_a_large_result_is_stored_and_its_pointer_leads_through_the_whole_of_it(
    env: AgentEnvironment, box: Toolbox, words: str, window: int
) -> None:
    times = 2 * window // len(words)
    site = await env.make_tool_context(window=window)
    shown = (await box.run(make_tool_use("say", text=words, times=times), site)).content
    assert len(shown) < 4_300
    blob = shown.split("read_stored with id ")[1].split()[0]
    whole = words.replace(SECRET, SECRET_PLACEHOLDER) * times
    read = ""
    while len(read) < len(whole):
        piece = await env.call_tool(make_tool_use("read_stored", id=blob, first=len(read)), window=window)
        assert not is_too_large(piece, window)
        read += piece.partition("\ncontinues at character ")[0]
    assert read == whole


def test_a_page_holds_whole_lines_and_at_least_one() -> None:
    assert select_page_lines(["aaaa", "bbbb", "cccc"], 10) == (["aaaa", "bbbb"], False)
    assert select_page_lines(["aaaa", "bbbb"], 10) == (["aaaa", "bbbb"], True)
    assert select_page_lines(["a" * 20, "b"], 10) == (["a" * 10 + " …"], False)
    assert select_page_lines([], 10) == ([], True)


async def test_schemas_do_not_change_between_two_boxes(env: AgentEnvironment) -> None:
    boxes = [env.agent_deps.build_role_toolbox("writing") for _ in range(2)]
    first, second = (json.dumps([spec.model_dump() for spec in box.visible_specs]) for box in boxes)
    assert first == second
