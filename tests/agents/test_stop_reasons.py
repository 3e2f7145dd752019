"""What an agent does after each reason for which a reply stops, through the real client against a strict server."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import get_args

import pytest
from anthropic.types import StopReason as WireStopReason

from tests.support.agent_environment import AgentEnvironment, make_tool_use, never_interrupted
from tests.support.full_context import make_conversation, make_summary_response
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.strict_server import Body, StrictServer
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.leg import AgentFinished, ContextFull, LegOutcome, LegRequest
from waystation.agents.stop_reasons import NEXT_STEPS, build_kept_blocks, was_cut
from waystation.agents.tools.toolbox import ARGUMENTS_UNPARSED
from waystation.context.compaction import CompactionStatus
from waystation.context.transcript import Charge, Message, Text, Thinking, ToolUse, build_unparsed_arguments
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ModelUnavailable
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.endpoints import EndpointRegistry, NamedEndpoint
from waystation.models.ports import ChatModel, ModelResponse, StopReason
from waystation.testing.doubles import ScriptedModel, make_scripted_response
from waystation.workers.models import ModelRouter

FINDING = {"claim": "It silted up.", "citations": ["[harbour.md:2-2]"]}
MAIN, SPARE = "main::claude-sonnet-5-5", "spare::claude-haiku-5-5"


def submit() -> ModelResponse:
    return make_scripted_response(make_tool_use("submit_findings", "c9", findings=[FINDING]))


def refuse(*blocks: Text | ToolUse, category: str = "cyber") -> ModelResponse:
    return make_scripted_response(*blocks, stop=StopReason.REFUSAL).replace(stop_detail=category)


def from_script(replies: Sequence[ModelResponse]) -> Callable[[Body], ModelResponse]:
    left = iter(replies)
    return lambda _: next(left)


def connect(server: StrictServer) -> ChatModel:
    return create_anthropic_model("key", "http://model.test", server.http_client())


def build_router(main: StrictServer, spare: StrictServer) -> ModelRouter:
    """Two endpoints, of which the second one stands in for the first."""
    places = EndpointRegistry(
        named={
            "main": NamedEndpoint(kind="anthropic", base_url="http://main.test", fallback=(SPARE,)),
            "spare": NamedEndpoint(kind="anthropic", base_url="http://spare.test"),
        }
    )
    return ModelRouter(ScriptedModel([]), None, {"main": connect(main), "spare": connect(spare)}, places)


async def run_leg(env: AgentEnvironment, model: ChatModel, leg: int = 1) -> LegOutcome:
    metered = MeteredModel(model=model, store=env.store, clock=env.clock, meter=env.meter)
    request = LegRequest(run=env.run_ref(), leg=leg, limit=env.limit, config=env.terms)
    outcome = await replace(env.agent_loop, model=metered).run(request, never_interrupted)
    await model.aclose()
    return outcome


async def load_charges(env: AgentEnvironment) -> Sequence[Charge]:
    listed = await env.store.list_task_charges(env.task_id, SYSTEM_SCOPE)
    return [entry.charge for entry in listed.paid]


def test_every_reason_has_a_way_on() -> None:
    assert NEXT_STEPS.keys() == {*StopReason}
    assert {*get_args(WireStopReason)} | {"unknown"} == {reason.value for reason in StopReason}


@pytest.mark.parametrize(
    "stop",
    [
        StopReason.END_TURN,
        StopReason.STOP_SEQUENCE,
        StopReason.PAUSE_TURN,
        StopReason.UNKNOWN,
        StopReason.MAX_TOKENS,
        StopReason.TOOL_USE,
    ],
)
@pytest.mark.parametrize(
    "blocks",
    [
        (Text(text="I looked at the harbour."),),
        (),
        (Thinking(thinking="Why did it silt up?", signature=""),),
        (Thinking(thinking="Why?", signature=""), make_tool_use("list_documents", "c1")),
    ],
    ids=["text", "nothing", "thinking", "call"],
)
async def test_no_reason_ends_the_step_the_first_time(
    env: AgentEnvironment, stop: StopReason, blocks: tuple[Text | Thinking | ToolUse, ...]
) -> None:
    server = StrictServer(from_script([make_scripted_response(*blocks, stop=stop), submit()]))
    outcome = await run_leg(env, connect(server))
    assert isinstance(outcome, AgentFinished)
    assert (outcome.partial, server.answered, server.refusals) == (False, 2, [])
    assert [charge.stop for charge in await load_charges(env)] == [stop, StopReason.TOOL_USE]


async def test_a_reply_that_was_cut_while_thinking_is_told_so(env: AgentEnvironment) -> None:
    cut = make_scripted_response(Thinking(thinking="Why did it", signature=""), stop=StopReason.MAX_TOKENS)
    server = StrictServer(from_script([cut, submit()]))
    assert isinstance(await run_leg(env, connect(server)), AgentFinished)
    assert "maximum length while thinking" in str(server.bodies[1]["messages"])


@pytest.mark.parametrize(
    ("tool", "how"),
    [
        ("submit_findings", "Submit everything again in one call, but shorter"),
        ("submit_analysis", "Submit everything again in one call, but shorter"),
        ("write_section", "Write shorter sections, one per reply."),
        ("take_note", "Make the call again, shorter, and alone in a reply."),
    ],
)
def test_a_call_that_was_cut_is_replaced_by_how_to_repeat_it(tool: str, how: str) -> None:
    cut = make_scripted_response(make_tool_use(tool, "c1"), stop=StopReason.MAX_TOKENS)
    (kept,) = build_kept_blocks(cut)
    assert isinstance(kept, Text)
    assert how in kept.text
    assert was_cut(Message(id="m1", role="assistant", blocks=(kept,)))
    assert not was_cut(Message(id="m1", role="assistant", blocks=(Text(text="Done."),)))


async def test_a_reason_that_is_new_is_noted(env: AgentEnvironment) -> None:
    odd = make_scripted_response(stop=StopReason.UNKNOWN).replace(stop_detail="coffee_break")
    outcome = await run_leg(env, connect(StrictServer(from_script([odd, submit()]))))
    assert outcome.state.notes == ("claude-sonnet-5-5 ended a reply with an unknown stop reason: coffee_break",)


async def test_a_window_that_was_exceeded_is_compacted_and_the_agent_goes_on(env: AgentEnvironment) -> None:
    await env.commit_conversation(make_conversation(result_tokens=500))
    over = make_scripted_response(
        make_tool_use("list_documents", "d1"),
        make_tool_use("submit_findings", "d2", findings=[]),
        stop=StopReason.CONTEXT_EXCEEDED,
    )
    outcome = await run_leg(env, connect(StrictServer(from_script([over]))))
    assert isinstance(outcome, ContextFull)
    assert outcome.window_exceeded
    assert outcome.request_tokens < env.terms.trigger, "the window is smaller than the model's profile says"
    env.model = ScriptedModel([make_summary_response()])
    compacted = await env.compactor.compact(
        env.make_compaction_request(outcome.request_tokens).replace(window_exceeded=True)
    )
    assert compacted.status is CompactionStatus.COMPRESSED
    last = StrictServer(from_script([submit()]))
    assert isinstance(await run_leg(env, connect(last), 2), AgentFinished)
    assert last.refusals == []
    assert "'d2'" not in str(last.bodies[0]["messages"]), "a call that was cut is not run"


async def test_a_refusal_is_tried_once_by_the_fallback_which_is_charged_at_its_own_price(
    env: AgentEnvironment,
) -> None:
    env.terms = env.terms.replace(model=MAIN)
    first = make_scripted_response(Thinking(thinking="Hm.", signature=""), make_tool_use("list_documents", "c1"))
    declined = refuse(Text(text="I will"), make_tool_use("submit_findings", "c2", findings=[]))
    main = StrictServer(from_script([first, declined, submit()]))
    spare = StrictServer(from_script([make_scripted_response(make_tool_use("list_documents", "c3"))]))
    outcome = await run_leg(env, build_router(main, spare))
    assert isinstance(outcome, AgentFinished)
    assert not outcome.partial
    assert (main.refusals, spare.refusals) == ([], [])
    charges = await load_charges(env)
    assert [(charge.key, charge.model, charge.stop) for charge in charges] == [
        ("turn-1", MAIN, "tool_use"),
        ("turn-2", MAIN, "refusal"),
        ("turn-3", SPARE, "tool_use"),
        ("turn-4", MAIN, "tool_use"),
    ]
    assert all("I will" not in str(body["messages"]) for body in (*main.bodies, *spare.bodies))
    assert "thinking" not in str(spare.bodies[0]["messages"]), "only the model that signed it can read it"
    assert outcome.state.notes == (f"{MAIN} declined to answer in turn 2 (category: cyber)",)
    assert [message.refusal for message in await env.load_messages() if message.role == "assistant"] == [
        "",
        "cyber",
        "",
        "",
    ]


async def test_after_a_crash_a_refused_turn_goes_on_with_the_fallback(env: AgentEnvironment) -> None:
    env.terms = env.terms.replace(model=MAIN)
    crashed = StrictServer(from_script([refuse()]))
    with pytest.raises(ModelUnavailable):
        await run_leg(env, build_router(crashed, StrictServer(from_script([]))))
    main, spare = StrictServer(from_script([])), StrictServer(from_script([submit()]))
    assert isinstance(await run_leg(env, build_router(main, spare)), AgentFinished)
    assert (main.answered, spare.answered) == (0, 1)


async def test_without_a_fallback_a_refused_turn_is_repeated_once(env: AgentEnvironment) -> None:
    server = StrictServer(from_script([refuse(Text(text="I will")), submit()]))
    outcome = await run_leg(env, connect(server))
    assert isinstance(outcome, AgentFinished)
    assert (outcome.partial, server.answered) == (False, 2)
    assert "I will" not in str(server.bodies[1]["messages"])


@pytest.mark.parametrize(
    ("categories", "named"), [(("cyber", "bio"), " (category: bio, cyber)"), (("", ""), "")], ids=["named", "none"]
)
async def test_a_second_refusal_in_a_row_ends_the_step_and_says_what_to_do(
    env: AgentEnvironment, categories: Sequence[str], named: str
) -> None:
    server = StrictServer(from_script([refuse(category=category) for category in categories]))
    outcome = await run_leg(env, connect(server))
    assert isinstance(outcome, AgentFinished)
    assert outcome.partial
    assert outcome.reason == (
        f"the model declined to answer 2 times in a row{named}: rephrase the question, leave out the document that "
        "causes this, choose another model (WAYSTATION_ROLES__RESEARCH__MODEL), or set a fallback for the model's "
        "endpoint"
    )
    assert outcome.state.totals.turns == 2


async def test_arguments_that_are_not_a_json_object_are_answered_and_charged_as_reported(
    env: AgentEnvironment,
) -> None:
    bad = ToolUse(id="c1", name="submit_findings", input=build_unparsed_arguments('{"findings": [{'))
    reply = make_scripted_response(make_tool_use("list_documents", "c0"), bad)
    env.limit = Limit(tokens=60_000)
    server = StrictServer(from_script([reply, submit()]))
    outcome = await run_leg(env, connect(server))
    assert isinstance(outcome, AgentFinished)
    assert (outcome.partial, server.refusals) == (False, [])
    results = [result for message in await env.load_messages() for result in message.tool_results]
    assert [(result.tool_use_id, result.is_error) for result in results[:2]] == [("c0", False), ("c1", True)]
    assert results[1].content == ARGUMENTS_UNPARSED
    assert outcome.state.totals.possibly_billed == 0
    assert [charge.usage.output for charge in await load_charges(env)] == [20, 20]
