"""An allowance is never passed, whatever the model does with what a call may cost."""

import asyncio
import json
import tempfile
from decimal import Decimal
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.agent_environment import AGENT_CONFIG, AgentEnvironment, make_tool_use
from tests.support.agent_fixtures import open_agent_environment_copy
from waystation.agents.leg import MIN_REPLY_TOKENS, AgentFinished, BudgetExhausted, TurnLimitReached
from waystation.context.tokens import compute_request_upper_bound
from waystation.context.transcript import Text
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput, ModelUnavailable
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.models.profiles import Price, TokenRates, find_worst_rates
from waystation.testing.doubles import ScriptedModel, make_scripted_response

RUN_ID = "task-1/research-1"
STATUS = 300
"""Tokens that a status has at most, as its bytes bound it."""
WIDER = 10
"""Tokens that the widest budget on the status line has over a usual one."""
SUBMIT = make_scripted_response(make_tool_use("submit_findings", "c9", findings=[]))


def bound_of(request: ModelRequest) -> int:
    tools = json.dumps([spec.model_dump(mode="json", exclude={"strict"}) for spec in request.tools])
    return compute_request_upper_bound(request.system, tools, request.messages)


async def build_first_request(env: AgentEnvironment, left: int = 1_000_000) -> ModelRequest:
    """What the first call of a run sends that has so much left. Its status stays, and another one may follow."""
    env.limit = Limit(tokens=left)
    probe = ScriptedModel([ModelUnavailable("busy", possibly_billed=False)])
    with pytest.raises(ModelUnavailable):
        await env.run_leg(probe)
    return probe.requests[0]


async def test_a_call_whose_worst_case_fits_by_its_bytes_is_not_counted(env: AgentEnvironment) -> None:
    request = await build_first_request(env)
    env.limit = Limit(tokens=bound_of(request) + STATUS + AGENT_CONFIG.max_output)
    model = ScriptedModel([SUBMIT])
    await env.run_leg(model)
    assert model.requests[0].max_output == AGENT_CONFIG.max_output


async def test_the_reply_shrinks_to_what_is_left(env: AgentEnvironment) -> None:
    env.terms = env.terms.replace(max_output=16_000)
    request = await build_first_request(env, left=19_999)
    counted = await env.model.count_tokens(request)
    assert counted < bound_of(request)
    env.limit = Limit(tokens=counted + 5_000)
    model = ScriptedModel([SUBMIT])
    assert isinstance(await env.run_leg(model), AgentFinished)
    (sent,) = model.requests
    assert sent.max_output == counted + 5_000 - await env.model.count_tokens(sent)
    assert 5_000 - STATUS < sent.max_output < 5_000


@pytest.mark.parametrize(("missing", "calls"), [(0, 1), (1, 0), (700, 0)])
async def test_under_its_floor_a_reply_is_not_worth_a_call(env: AgentEnvironment, missing: int, calls: int) -> None:
    env.limit = Limit(tokens=1_000)
    stopped = await env.run_leg(ScriptedModel([]))
    assert isinstance(stopped, BudgetExhausted)
    least = env.limit.increase_by(stopped.needed)
    env.limit = least.remaining_after(Amount(tokens=missing + WIDER if missing else 0))
    missing += WIDER if missing else 0
    model = ScriptedModel([SUBMIT])
    outcome = await env.run_leg(model, 2)
    assert model.calls == calls
    if missing:
        assert isinstance(outcome, BudgetExhausted)
        assert missing <= outcome.needed.tokens <= missing + WIDER
    assert (await env.store.get_run_usage(RUN_ID)).possibly_billed == 0


async def test_a_run_with_nothing_makes_no_call(env: AgentEnvironment) -> None:
    env.limit = Limit(tokens=0)
    model = ScriptedModel([])
    assert isinstance(await env.run_leg(model), BudgetExhausted)
    assert model.calls == 0


async def test_more_money_lets_the_next_leg_go_on_where_the_last_one_stopped(env: AgentEnvironment) -> None:
    env.limit = Limit(tokens=0)
    stopped = await env.run_leg(ScriptedModel([]))
    assert isinstance(stopped, BudgetExhausted)
    env.limit = env.limit.increase_by(stopped.needed)
    assert isinstance(await env.run_leg(ScriptedModel([SUBMIT]), 2), AgentFinished)


async def test_the_reply_shrinks_to_the_dollars_left(env: AgentEnvironment) -> None:
    env.terms = env.terms.replace(max_output=16_000)
    counted = await env.model.count_tokens(await build_first_request(env))
    rates = find_worst_rates(AGENT_CONFIG.model, counted, env.clock().date(), AGENT_CONFIG.prices)
    assert rates is not None
    env.limit = Limit(micro_usd=ceil(counted * rates.input + 5_000 * rates.output))
    model = ScriptedModel([SUBMIT])
    assert isinstance(await env.run_leg(model), AgentFinished)
    assert 5_000 - STATUS < model.requests[0].max_output < 5_000


async def test_dollars_that_do_not_pay_for_a_call_end_the_leg_and_say_how_many_are_missing(
    env: AgentEnvironment,
) -> None:
    short = Amount(micro_usd=100)
    env.limit = Limit(tokens=100_000, micro_usd=1_000)
    model = ScriptedModel([SUBMIT])
    stopped = await env.run_leg(model)
    assert isinstance(stopped, BudgetExhausted)
    assert (model.calls, stopped.needed.tokens) == (0, 0)
    env.limit = env.limit.increase_by(stopped.needed.subtract_clamped(short))
    assert isinstance(await env.run_leg(model, 2), BudgetExhausted)
    env.limit = env.limit.increase_by(short)
    assert isinstance(await env.run_leg(model, 3), AgentFinished)


async def test_a_limit_in_dollars_lets_no_call_of_a_model_without_a_price_through(env: AgentEnvironment) -> None:
    env.limit, env.terms = Limit(micro_usd=10**9), AGENT_CONFIG.replace(model="somebody-elses-1")
    model = ScriptedModel([SUBMIT])
    with pytest.raises(BadInput, match="somebody-elses-1 has no known price"):
        await env.run_leg(model)
    assert model.calls == 0


async def test_what_a_task_takes_along_is_what_its_calls_cost(env: AgentEnvironment) -> None:
    own = Price(
        model=AGENT_CONFIG.model,
        rates=TokenRates(input=Decimal(1), output=Decimal(7), cache_write=Decimal(1), cache_read=Decimal(1)),
    )
    env.terms = AGENT_CONFIG.replace(prices=(own,))
    await env.run_leg(
        ScriptedModel(
            [make_scripted_response(make_tool_use("submit_findings", findings=[]), usage=Usage(input=10, output=3))]
        )
    )
    assert (await env.store.get_run_usage(RUN_ID)).cost_micro_usd == 10 + 3 * 7


@pytest.mark.parametrize(
    ("task_used", "backpressure", "waited"),
    [(0.0, True, 0.0), (0.79, True, 0.0), (0.92, True, 0.75), (1.2, True, 1.5), (0.92, False, None)],
)
async def test_a_call_waits_where_the_tasks_budget_is_nearly_spent(
    env: AgentEnvironment, task_used: float, backpressure: bool, waited: float | None
) -> None:
    env.task_used, env.terms = task_used, AGENT_CONFIG.replace(backpressure=backpressure)
    await env.run_leg(ScriptedModel([SUBMIT]))
    assert env.pauses == ([] if waited is None else [waited])


async def test_a_call_waits_where_the_agents_own_budget_is_nearly_spent(env: AgentEnvironment) -> None:
    env.limit = Limit(tokens=100_000)
    eaten = make_scripted_response(
        make_tool_use("read_document", "c1", name="harbour.md"), usage=Usage(input=86_000, output=0)
    )
    await env.run_leg(ScriptedModel([eaten, SUBMIT]))
    assert env.pauses == [0.0, 0.3]


@pytest.mark.parametrize("limit", [Limit(tokens=120_000), Limit(micro_usd=1_000_000)])
async def test_no_call_is_made_with_room_for_less_than_4000_tokens_of_reply_until_the_budget_is_spent(
    env: AgentEnvironment, limit: Limit
) -> None:
    env.limit = limit
    env.terms = AGENT_CONFIG.replace(turn_limit=60, max_output=16_000, auto_compact=False)
    costly = Usage(input=1_000, output=9_000)
    turns = [make_scripted_response(make_tool_use("list_documents", f"l{n}"), usage=costly) for n in range(60)]
    model = ScriptedModel(turns)
    assert isinstance(await env.run_leg(model), BudgetExhausted)
    replies = [request.max_output for request in model.requests]
    assert min(replies) >= MIN_REPLY_TOKENS
    # The last ones are shorter than the first, so the bound was met.
    assert replies[0] == 16_000 > replies[-1]


class CacheOmittingModel(ScriptedModel):
    """Uses all that a call may use. At an even turn it reports a quarter of its prompt: the rest was in its cache."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        prompt = await self.count_tokens(request)
        usage = Usage(input=prompt if self.calls % 2 else prompt // 4, output=request.max_output)
        return make_scripted_response(make_tool_use("read_document", f"c{self.calls}", name="harbour.md"), usage=usage)


async def test_a_prompt_that_was_reported_in_part_does_not_let_a_run_pass_its_limit(env: AgentEnvironment) -> None:
    env.terms = AGENT_CONFIG.replace(turn_limit=3)
    assert isinstance(await env.run_leg(CacheOmittingModel([])), TurnLimitReached)
    three_calls = (await env.store.get_run_usage(RUN_ID)).spent
    env.limit = Limit(tokens=three_calls.tokens - STATUS)
    model = CacheOmittingModel([])
    assert isinstance(await env.run_leg(model, step_id="research-2"), BudgetExhausted)
    assert model.calls == 2
    assert env.limit.can_cover((await env.store.get_run_usage("task-1/research-2")).spent)


class HungryModel(ScriptedModel):
    """Uses any part of what a call may use at most; sometimes its stream is cut.

    Its reports do not agree with each other: the same messages may count a quarter in one turn, and all in the next.
    """

    def __init__(self, data: st.DataObject) -> None:
        super().__init__([])
        self._data = data

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        most, share = await self.count_tokens(request), st.floats(0, 1)
        prompt = round(most * self._data.draw(st.one_of(st.just(1.0), share), label="prompt"))
        cached = round(prompt * self._data.draw(share, label="cached"))
        output = round(request.max_output * self._data.draw(st.one_of(st.just(1.0), share), label="output"))
        if self._data.draw(st.integers(0, 4), label="cut") == 0:
            raise ModelUnavailable("the stream was cut", possibly_billed=True)
        written = round((prompt - cached) * self._data.draw(share, label="written"))
        usage = Usage(input=prompt - cached - written, cache_write=written, cache_read=cached, output=output)
        call_id = f"c{self.calls}"
        read = make_tool_use("read_document", call_id, name="harbour.md")
        return make_scripted_response(Text(text="x" * 40), read, usage=usage)


LIMITS = st.one_of(
    st.builds(Limit, tokens=st.integers(3_000, 25_000)),
    st.builds(Limit, micro_usd=st.integers(6_000, 80_000)),
    st.builds(Limit, tokens=st.integers(3_000, 25_000), micro_usd=st.integers(6_000, 80_000)),
)


@settings(max_examples=30)
@given(limit=LIMITS, turn_limit=st.integers(1, 4), data=st.data())
def test_no_run_ever_passes_its_limit(
    prepared_stores: Path, limit: Limit, turn_limit: int, data: st.DataObject
) -> None:
    async def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with open_agent_environment_copy(prepared_stores / "planned.db", Path(folder)) as env:
                env.limit, env.terms = limit, AGENT_CONFIG.replace(turn_limit=turn_limit)
                await work_until_spent(env, HungryModel(data))

    asyncio.run(work())


async def work_until_spent(env: AgentEnvironment, model: HungryModel) -> None:
    leg, outcome = 1, None
    while not isinstance(outcome, BudgetExhausted) and model.calls < 12:
        try:
            outcome = await env.run_leg(model, leg)
            leg += 1
        except ModelUnavailable:
            continue  # the same leg is tried again
        finally:
            totals = await env.store.get_run_usage(RUN_ID)
            assert env.limit.can_cover(totals.spent)
