"""What is held for calls that may have been billed and brought no reply: never less than the bill, and little more."""

from dataclasses import replace

import httpx2
import pytest
from pydantic import JsonValue

from tests.support.agent_environment import AGENT_CONFIG, TASK, AgentEnvironment, make_tool_use, never_interrupted
from tests.support.prices import PRICES
from waystation.agents.call_ledger import CallKey, MeteredModel, PreparedCall
from waystation.agents.leg import AgentFinished, LegOutcome, LegRequest
from waystation.context.transcript import PinRecord, Text, build_user_message
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import ModelUnavailable
from waystation.kernel.usage import Usage
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.anthropic.sse import StreamEvent, iter_message_events
from waystation.models.ports import ModelRequest
from waystation.models.profiles import compute_cost_micro_usd
from waystation.testing.doubles import ScriptedModel, make_scripted_response
from waystation.testing.messages_server import (
    ScriptedAnswer,
    ScriptedServer,
    build_dropped_stream,
    build_message_body,
    build_stream_response,
)

SEARCH = make_scripted_response(make_tool_use("search_documents", query="harbour"))
RUN_ID = f"{TASK}/research-1"
MODEL = "claude-sonnet-5-5"
USAGE = Usage(input=900, cache_write=300, cache_read=5_000, output=150)
WHOLE = build_message_body(
    make_scripted_response(
        Text(text="It silted up. " * 40), make_tool_use("search_documents", query="harbour"), usage=USAGE, model=MODEL
    )
)
EVENTS = len([*iter_message_events(WHOLE)])
QUESTION = "Why did the harbour silt up? " * 700
MOST = 16_000
BROKE = httpx2.ReadError("the connection broke")


def metered(env: AgentEnvironment, server: ScriptedServer) -> MeteredModel:
    model = create_anthropic_model("key", http_client=server.build_http_client())
    return MeteredModel(model=model, store=env.store, clock=env.clock, meter=env.meter)


async def held(env: AgentEnvironment) -> Amount:
    totals = await env.store.get_run_usage(RUN_ID)
    return Amount(tokens=totals.possibly_billed, micro_usd=totals.possibly_billed_micro_usd)


async def asked(env: AgentEnvironment, answer: ScriptedAnswer) -> PreparedCall:
    """A call that breaks off."""
    fence, model = (await env.make_tool_context()).fence, metered(env, ScriptedServer([answer]))
    request = ModelRequest(model=MODEL, system="", messages=(build_user_message("m1", QUESTION),), max_output=MOST)
    call = await model.prepare_call(request, Limit(tokens=500_000, micro_usd=5_000_000), 10, PRICES)
    assert isinstance(call, PreparedCall)
    with pytest.raises(ModelUnavailable):
        await model.run_call(fence, CallKey("turn", "1"), call)
    return call


@pytest.mark.parametrize("after", range(EVENTS))
async def test_wherever_a_stream_breaks_what_is_held_covers_the_bill(env: AgentEnvironment, after: int) -> None:
    call = await asked(env, build_dropped_stream(WHOLE, after))
    kept = await held(env)
    bill = compute_cost_micro_usd(MODEL, USAGE, call.day, PRICES) or 0
    assert USAGE.fresh <= kept.tokens <= call.worst_case.tokens
    assert bill <= kept.micro_usd <= call.worst_case.micro_usd
    if after == 0:
        assert kept == call.worst_case
    elif after < EVENTS - 1:
        assert kept.tokens < call.worst_case.tokens // 2
    else:
        assert kept == Amount(tokens=USAGE.fresh, micro_usd=bill)


async def test_a_count_that_cannot_be_the_requests_lowers_nothing(env: AgentEnvironment) -> None:
    usage: JsonValue = {"input_tokens": 1, "output_tokens": 0}
    silly: StreamEvent = {**WHOLE, "usage": usage}
    assert await held(env) == Amount()
    call = await asked(env, build_dropped_stream(silly, 3))
    assert await held(env) == call.worst_case


async def test_a_report_beyond_the_worst_case_raises_nothing(env: AgentEnvironment) -> None:
    usage: JsonValue = {"input_tokens": 900_000_000, "output_tokens": 0}
    absurd: StreamEvent = {**WHOLE, "usage": usage}
    call = await asked(env, build_dropped_stream(absurd, 3))
    assert await held(env) == call.worst_case


LONG = make_scripted_response(
    Text(text="The harbour silted up. " * 2_000),
    make_tool_use("search_documents", "c1", query="harbour"),
    usage=Usage(input=3_000, output=1_000),
    model=MODEL,
)
SHORT = make_scripted_response(
    make_tool_use("search_documents", "c2", query="harbour"),
    usage=Usage(input=500, cache_read=19_500, output=60),
    model=MODEL,
)
SUBMIT = make_scripted_response(
    make_tool_use("submit_findings", "c9", findings=[]), usage=Usage(input=14_000, output=40), model=MODEL
)


async def leg(env: AgentEnvironment, server: ScriptedServer) -> LegOutcome:
    """One attempt at the first leg."""
    loop = replace(env.agent_loop, model=metered(env, server))
    return await loop.run(LegRequest(run=env.run_ref(), leg=1, limit=env.limit, config=env.terms), never_interrupted)


async def test_where_no_byte_came_the_last_count_and_the_bytes_of_what_is_new_are_held(
    env: AgentEnvironment,
) -> None:
    env.terms = AGENT_CONFIG.replace(window=200_000, trigger=150_000, target=75_000)
    env.limit = Limit(tokens=1_000_000)
    replies = [build_stream_response(build_message_body(LONG)), build_stream_response(build_message_body(SHORT))]
    server = ScriptedServer([*replies, BROKE, BROKE, build_stream_response(build_message_body(SUBMIT))])
    with pytest.raises(ModelUnavailable):
        await leg(env, server)
    new = len(server.requests[-1].content) - len(server.requests[-2].content)
    first = (await held(env)).tokens - env.terms.max_output
    assert 20_000 <= first < 20_000 + 2 * new + 2_000
    with pytest.raises(ModelUnavailable):  # another attempt sends the system prompt and tools that were counted
        await leg(env, server)
    second = (await held(env)).tokens - first - 2 * env.terms.max_output
    assert second == first < len(server.requests[-1].content)
    assert isinstance(await leg(env, server), AgentFinished)


async def test_the_count_of_a_fallback_bounds_no_request_of_another_model(env: AgentEnvironment) -> None:
    counted_otherwise = make_scripted_response(*SEARCH.blocks, usage=Usage(input=10, output=5)).replace(
        called_model="other-model-1"
    )
    model = ScriptedModel([counted_otherwise, ModelUnavailable("cut")])
    with pytest.raises(ModelUnavailable):
        await env.run_leg(model)
    sent = model.requests[-1]
    head = len(sent.system.encode()) + sum(len(tool.model_dump_json()) for tool in sent.tools)
    assert (await held(env)).tokens > head + sent.max_output, "the bytes of all that was sent"


async def test_after_a_compaction_the_bytes_bound_the_request_again(env: AgentEnvironment) -> None:
    env.terms = AGENT_CONFIG.replace(window=200_000, trigger=150_000, target=75_000)
    env.limit = Limit(tokens=1_000_000)
    server = ScriptedServer([build_stream_response(build_message_body(LONG)), BROKE, BROKE])
    with pytest.raises(ModelUnavailable):
        await leg(env, server)
    before = (await held(env)).tokens
    fence = await env.store.acquire_fence(RUN_ID)
    transcript = await env.load_transcript()
    pinned = PinRecord(id="p-1", message_id=transcript.messages[0].id)
    await env.store.commit_compaction(fence, transcript.version, pinned, (), None)
    with pytest.raises(ModelUnavailable):
        await leg(env, server)
    assert (await held(env)).tokens - before > before


@pytest.mark.parametrize("after", [0, 1, 5])
async def test_connections_that_break_again_and_again_never_pass_the_budget(env: AgentEnvironment, after: int) -> None:
    env.limit = Limit(tokens=60_000)
    server = ScriptedServer([build_dropped_stream(WHOLE, after) for _ in range(40)])
    outcome: LegOutcome | None = None
    attempts = 0
    while outcome is None and attempts < 40:
        attempts += 1
        try:
            outcome = await leg(env, server)
        except ModelUnavailable:
            continue
    assert (await env.store.get_run_usage(RUN_ID)).spent.tokens <= 60_000
    assert outcome is not None
    assert not isinstance(outcome, AgentFinished)
