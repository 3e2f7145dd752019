"""A call that its provider refuses for a short while is repeated inside the leg, and what it waited is visible."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agent_environment import TENANT, AgentEnvironment, make_tool_use, never_interrupted
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.agent_status import AgentStatus
from waystation.agents.call_ledger import (
    MAX_CALL_WAIT_SECONDS,
    MAX_JITTER_SECONDS,
    MAX_RETRY_WAIT_SECONDS,
    MeteredModel,
    RetryWaitPolicy,
    compute_retry_wait,
)
from waystation.agents.leg import AgentFinished, LegRequest
from waystation.budgets.budget import RunUsage
from waystation.kernel.errors import ModelError, ModelUnavailable
from waystation.kernel.scopes import TenantScope
from waystation.models.ports import ModelResponse
from waystation.testing.doubles import ScriptedModel, make_scripted_response

SUBMIT = make_scripted_response(make_tool_use("submit_findings", "c9", findings=[]))
RUN_ID = "task-1/research-1"


def refused(seconds: float | None) -> ModelUnavailable:
    return ModelUnavailable("rate limit", retry_after=seconds, possibly_billed=False)


@dataclass
class Leg:
    """One leg whose waits are recorded and take no time."""

    env: AgentEnvironment
    waited: list[float] = field(default_factory=list[float])
    statuses: list[AgentStatus] = field(default_factory=list[AgentStatus])
    stopping: bool = False

    async def _sleep(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return not self.stopping

    async def run(self, *answers: ModelResponse | ModelError, jitter: float = 0.0) -> ScriptedModel:
        env, model = self.env, ScriptedModel(answers)
        waits = RetryWaitPolicy(self._sleep, lambda: jitter)
        metered = MeteredModel(model, env.store, env.clock, env.meter, self.statuses.append, waits)
        loop = replace(env.agent_loop, model=metered)
        request = LegRequest(run=env.run_ref(), leg=1, limit=env.limit, config=env.terms)
        outcome = await loop.run(request, never_interrupted)
        assert isinstance(outcome, AgentFinished)
        return model


async def test_a_short_refusal_is_waited_for_in_the_leg_and_the_call_is_repeated_under_its_one_intent(
    env: AgentEnvironment,
) -> None:
    leg = Leg(env)
    model = await leg.run(refused(5), refused(2.5), SUBMIT, jitter=0.5)
    assert leg.waited == [7.5, 3.75]
    assert model.calls == 3
    assert model.requests[0] == model.requests[2]
    usage = await env.store.get_run_usage(RUN_ID)
    assert (usage.possibly_billed, usage.spent.tokens) == (0, SUBMIT.usage.fresh)


async def test_what_was_waited_is_in_charge_event_metric_and_status(env: AgentEnvironment) -> None:
    leg = Leg(env)
    await leg.run(refused(5), SUBMIT)
    (charge,) = (await env.store.list_task_charges(env.task_id, SYSTEM_SCOPE)).paid
    assert charge.charge.waited_ms == 5000
    assert env.meter.waits == [(env.terms.model, 5.0)]
    assert [status.what for status in leg.statuses] == ["model", "waiting", "model", "between", "tool"]
    said = leg.statuses[1].text(env.clock())
    assert said == "research-1: turn 1, rate-limited by the provider for 0 s"
    events = await env.store.list_events(TenantScope(tenant=TENANT), 0, 100)
    told = [(event.kind, event.reference, event.detail) for event in events.events]
    assert ("throttled", "turn-1", "5.0 s") in told


@pytest.mark.parametrize("seconds", [MAX_RETRY_WAIT_SECONDS + 1, None], ids=["long", "no delay is named"])
async def test_other_refusals_fail_the_attempt_and_hold_nothing(env: AgentEnvironment, seconds: float | None) -> None:
    leg = Leg(env)
    with pytest.raises(ModelUnavailable) as failed:
        await leg.run(refused(seconds), SUBMIT)
    assert (failed.value.retry_after, leg.waited) == (seconds, [])
    assert await env.store.get_run_usage(RUN_ID) == RunUsage(cost_micro_usd=0)


async def test_a_call_that_may_have_been_billed_is_not_repeated_under_its_intent(env: AgentEnvironment) -> None:
    leg = Leg(env)
    with pytest.raises(ModelUnavailable):
        await leg.run(ModelUnavailable("cut", retry_after=1), SUBMIT)
    assert leg.waited == []


async def test_a_provider_that_refuses_for_ever_fails_the_attempt_after_the_longest_wait(
    env: AgentEnvironment,
) -> None:
    leg = Leg(env)
    with pytest.raises(ModelUnavailable):
        await leg.run(*[refused(60)] * 100)
    assert sum(leg.waited) == MAX_CALL_WAIT_SECONDS


async def test_a_worker_that_stops_leaves_the_call_to_the_next_attempt(env: AgentEnvironment) -> None:
    leg = Leg(env, stopping=True)
    with pytest.raises(ModelUnavailable) as failed:
        await leg.run(refused(30), SUBMIT)
    assert failed.value.retry_after == 30


@given(st.floats(0, 86_400), st.floats(0, 1))
def test_a_wait_is_never_shorter_than_the_provider_named_and_its_jitter_is_bounded(delay: float, spread: float) -> None:
    assert delay <= compute_retry_wait(delay, spread) <= delay + min(max(delay, 1.0), MAX_JITTER_SECONDS)


def test_refusals_of_the_same_moment_come_back_spread_over_as_much_time_as_they_waited() -> None:
    assert [compute_retry_wait(5, spread) for spread in (0.0, 0.5, 1.0)] == [5.0, 7.5, 10.0]
