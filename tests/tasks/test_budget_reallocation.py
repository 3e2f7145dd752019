from hypothesis import given
from hypothesis import strategies as st

from tests.support import task_states
from tests.support.task_model import make_task_config
from tests.support.task_states import NOON, finish_agent, make_leg_state, request_budgets
from tests.tasks.test_task_delegation import delegate_work, deliver_result, make_subagent_orders, make_working_state
from waystation.agents.leg import BudgetExhausted, OperatorActionRequired, SubagentsRequested
from waystation.budgets.budget import BudgetMode
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.reallocation import (
    FREED_BUDGET_NOTE,
    compute_drawable_budget,
    draw_budget,
    draw_freed_budget,
    withdraw_budget_requests,
)
from waystation.tasks.state import TaskState, start_subagents

MOST = 80
"""Percent that subagents hold together at most."""
KEPT = 8_000
"""What that leaves of 40,000 tokens."""


def team(*limits: int) -> TaskState:
    """An agent with 40,000 tokens that waits for subagents."""
    return delegate_work(make_working_state(), *limits)


def spent(state: TaskState, step_id: str, tokens: int, needed: int = 900) -> TaskState:
    ended = BudgetExhausted(state=make_leg_state(tokens), needed=Amount(tokens=needed))
    return state.with_run(state.runs[step_id].after_leg(ended))


def held(state: TaskState) -> dict[str, int]:
    return {step_id: amount.tokens for step_id, amount in state.account.reserved.items()}


def test_a_subagent_goes_on_with_what_a_sibling_handed_back() -> None:
    state = deliver_result(spent(team(16_000, 16_000), "tides.1", 15_500), "tides.2", 4_000)
    helped = draw_budget(state, "tides.1")
    assert helped is not None
    assert held(helped) == {"tides": 20_000 - 8_900, "tides.1": 16_000 + 8_900}, "its next call, and half of its share"
    assert helped.runs["tides.1"].limit == Limit(tokens=24_900)
    assert helped.runs["tides.1"].phase == "running"
    assert helped.runs["tides"].limit == Limit(tokens=11_100)
    assert helped.account.limit == state.account.limit


def test_a_parent_keeps_its_own_part() -> None:
    assert draw_budget(spent(team(32_000), "tides.1", 31_950), "tides.1") is None, "nobody has handed anything back"
    state = deliver_result(spent(team(31_000, 1_000), "tides.1", 30_500), "tides.2", 100)
    assert draw_budget(spent(state, "tides.1", 30_500, needed=901), "tides.1") is None
    helped = draw_budget(state, "tides.1")
    assert helped is not None
    assert helped.runs["tides"].limit == Limit(tokens=KEPT)
    assert draw_budget(spent(helped, "tides.1", 31_900, needed=1), "tides.1") is None


def test_what_people_granted_a_subagent_does_not_count_as_its_parents() -> None:
    state = deliver_result(spent(team(16_000, 16_000), "tides.1", 15_500), "tides.2", 15_000)
    granted = spent(state.after_grant("tides.1", Amount(tokens=50_000)), "tides.1", 65_900)
    helped = draw_budget(granted, "tides.1")
    assert helped is not None
    assert helped.runs["tides"].limit == Limit(tokens=KEPT)


def test_what_was_handed_back_before_is_the_parents_own_when_it_delegates_again() -> None:
    state = deliver_result(team(16_000), "tides.1", 4_000)
    again = SubagentsRequested(state=make_leg_state(0), orders=(make_subagent_orders(0, 10_000)[1],))
    state = start_subagents(state.with_run(state.runs["tides"].after_leg(again)), "tides", make_task_config())
    assert draw_budget(spent(state, "tides.2", 9_900), "tides.2") is None


def test_a_parent_at_work_gives_nothing_and_a_task_gives_what_it_has_left() -> None:
    state = spent(team(16_000), "tides.1", 15_500)
    at_work = state.runs["tides"].replace(phase="running")
    assert draw_budget(state.with_run(at_work), "tides.1") is None
    raised = state.replace(account=state.account.grant(Amount(tokens=1_000))).with_run(at_work)
    helped = draw_budget(raised, "tides.1")
    assert helped is not None
    assert helped.runs["tides.1"].limit == Limit(tokens=17_000)


def told(state: TaskState, step_id: str) -> int:
    """What a status counts for this agent: what it has left, and what it could draw."""
    run, drawable = state.runs[step_id], compute_drawable_budget(state, step_id, BudgetMode.APPROVAL)
    return run.limit.remaining_after(run.totals.spent).increase_by(drawable).amount.tokens


def test_what_an_agent_is_told_is_left_does_not_grow_when_it_draws() -> None:
    for state in (
        deliver_result(spent(team(16_000, 16_000), "tides.1", 15_500), "tides.2", 4_000),
        spent(team(16_000), "tides.1", 15_500).replace(
            account=make_working_state().account.grant(Amount(tokens=9_000))
        ),
    ):
        before, helped = told(state, "tides.1"), draw_budget(state, "tides.1")
        assert helped is None or told(helped, "tides.1") <= before
        assert before > 500, "what it has left alone"


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100), st.integers(1, 5_000)), max_size=20),
)
def test_whatever_subagents_draw_no_money_is_made_and_the_parent_keeps_its_part(
    percents: list[int], moves: list[tuple[int, int, int]]
) -> None:
    limits: list[int] = []
    for percent in percents:
        if sum(limits) + percent * 400 <= MOST * 400:
            limits.append(percent * 400)
    state = team(*limits)
    for which, percent, needed in moves:
        step_id = f"tides.{1 + which % len(limits)}"
        if step_id in state.delivered_agents:
            continue
        run = state.runs[step_id]
        left = run.limit.amount.tokens - run.totals.spent.tokens
        state = spent(state, step_id, run.totals.spent.tokens + left * percent // 100, needed)
        helped = draw_budget(state, step_id)
        state = helped or deliver_result(state, step_id, state.runs[step_id].totals.spent.tokens)
        assert state.account.limit == Limit(tokens=40_000)
        assert state.account.limit.can_cover(state.account.spent + state.account.total_reserved)
        if helped is not None:
            assert state.runs[step_id].limit.amount.tokens >= run.limit.amount.tokens + needed
            assert state.runs["tides"].limit.amount.tokens >= KEPT


def test_an_agent_that_waits_for_a_person_goes_on_with_what_another_gave_back() -> None:
    state = request_budgets(task_states.make_working_state(budget=122_000), "research-1")
    assert draw_freed_budget(state, "research-1") is None
    state = finish_agent(state, "research-2", 20_000)
    helped = draw_freed_budget(state, "research-1")
    assert helped is not None
    assert helped.runs["research-1"].limit == Limit(tokens=40_000)
    (request,) = withdraw_budget_requests(helped, "research-1", NOON)
    assert (request.request_id, request.decision, request.note) == ("research-1-1", "withdrawn", FREED_BUDGET_NOTE)
    assert withdraw_budget_requests(helped, "research-2", NOON) == ()


def test_money_answers_nothing_that_is_not_about_money() -> None:
    state = task_states.apply_leg_outcome(
        task_states.make_working_state(),
        "research-1",
        OperatorActionRequired(state=make_leg_state(1_000), reason="no credit"),
    )
    assert not state.account.unreserved.amount.is_zero
    assert draw_freed_budget(state, "research-1") is None
    assert draw_freed_budget(state, "research-2") is None, "it is at work"
