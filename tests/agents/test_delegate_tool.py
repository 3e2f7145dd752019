"""What an agent's calls of `delegate` become: orders within its bounds, refusals, and what waits for the next time."""

import pytest

from tests.support.agent_environment import TASK, AgentEnvironment, make_tool_use
from waystation.agents.delegation import DelegationConfig
from waystation.agents.leg import LegRequest
from waystation.agents.tools.delegate import DelegationRequest, extract_subagent_orders
from waystation.context.transcript import Message, Transcript, build_user_message
from waystation.kernel.amount import Limit

LEFT = Limit(tokens=100_000)


async def asked(
    env: AgentEnvironment, *percents: int, terms: DelegationConfig, left: Limit = LEFT
) -> DelegationRequest:
    """What becomes of one reply that asks for a subagent with each of these parts."""
    calls = [
        make_tool_use(
            "delegate", f"c{number}", role="research", title=f"Part {number}", goal="Look.", budget_percent=percent
        )
        for number, percent in enumerate(percents, 1)
    ]
    reply = Message(id="m2", role="assistant", blocks=tuple(calls))
    transcript = Transcript(
        run_id=f"{TASK}/research-1", version=2, messages=(build_user_message("m1", "Begin."), reply)
    )
    delegating = env.terms.replace(delegation=terms)
    request = LegRequest(run=env.run_ref(), leg=1, config=delegating, limit=left)
    return await extract_subagent_orders(request, transcript, left, env.redactor, ())


def ordered(of: DelegationRequest) -> dict[str, int | None]:
    return {order.call_id: order.limit.tokens for order in of.orders}


@pytest.mark.parametrize(
    ("percents", "expected"),
    [
        ((40, 40), {"c1": 40_000, "c2": 40_000}),
        ((40, 41), {"c1": 40_000}),
        ((40, 41, 40), {"c1": 40_000, "c3": 40_000}),
        ((80, 20), {"c1": 80_000}),
    ],
)
async def test_subagents_hold_no_more_than_their_share_together_and_the_others_wait(
    env: AgentEnvironment, percents: tuple[int, ...], expected: dict[str, int]
) -> None:
    found = await asked(env, *percents, terms=DelegationConfig(budget_percent=80))
    assert ordered(found) == expected
    assert found.rejected == {}


async def test_no_more_subagents_than_the_width_work_at_once(env: AgentEnvironment) -> None:
    assert list(ordered(await asked(env, *[10] * 4, terms=DelegationConfig(max_concurrent=3)))) == ["c1", "c2", "c3"]


async def test_one_that_asks_for_more_than_all_may_have_is_refused(env: AgentEnvironment) -> None:
    found = await asked(env, 81, 80, terms=DelegationConfig(budget_percent=80))
    assert ordered(found) == {"c2": 80_000}
    assert (
        found.rejected["c1"].content == "All subagents together may have at most 80 percent of your remaining budget."
    )


async def test_what_would_not_pay_for_a_subagent_is_refused(env: AgentEnvironment) -> None:
    found = await asked(env, 1, terms=DelegationConfig(), left=Limit(tokens=1_000))
    assert found.orders == ()
    assert found.rejected["c1"].content == "10 tokens is too little for a subagent. Do this part yourself."
