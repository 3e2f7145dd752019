from hypothesis import given
from hypothesis import strategies as st

from tests.crew import terms
from tests.unit import task_values
from tests.unit.task_values import NOON, asking, finished, standing
from tests.unit.test_delegation import delegating, delivered, orders, working
from waystation.agents.leg import BudgetExhausted, OperatorActionRequired, SubagentsRequested
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.reallocation import FREED, drawable, drawn, freed, withdrawn
from waystation.tasks.state import TaskState, taken_on

MOST = 80
"""Percent that subagents hold together at most."""
KEPT = 8_000
"""What that leaves of 40,000 tokens."""


def team(*limits: int) -> TaskState:
    """An agent with 40,000 tokens that waits for subagents."""
    return delegating(working(), *limits)


def spent(state: TaskState, step_id: str, tokens: int, needed: int = 900) -> TaskState:
    ended = BudgetExhausted(standing=standing(tokens), needed=Amount(tokens=needed))
    return state.with_run(state.runs[step_id].after_leg(ended))


def held(state: TaskState) -> dict[str, int]:
    return {step_id: amount.tokens for step_id, amount in state.account.reserved.items()}


def test_a_subagent_goes_on_with_what_a_sibling_handed_back() -> None:
    state = delivered(spent(team(16_000, 16_000), "tides.1", 15_500), "tides.2", 4_000)
    helped = drawn(state, "tides.1")
    assert helped is not None
    assert held(helped) == {"tides": 20_000 - 8_900, "tides.1": 16_000 + 8_900}, "its next call, and half of its share"
    assert helped.runs["tides.1"].limit == Limit(tokens=24_900)
    assert helped.runs["tides.1"].phase == "running"
    assert helped.runs["tides"].limit == Limit(tokens=11_100)
    assert helped.account.limit == state.account.limit


def test_a_parent_keeps_its_own_part() -> None:
    assert drawn(spent(team(32_000), "tides.1", 31_950), "tides.1") is None, "nobody has handed anything back"
    state = delivered(spent(team(31_000, 1_000), "tides.1", 30_500), "tides.2", 100)
    assert drawn(spent(state, "tides.1", 30_500, needed=901), "tides.1") is None
    helped = drawn(state, "tides.1")
    assert helped is not None
    assert helped.runs["tides"].limit == Limit(tokens=KEPT)
    assert drawn(spent(helped, "tides.1", 31_900, needed=1), "tides.1") is None


def test_what_people_granted_a_subagent_does_not_count_as_its_parents() -> None:
    state = delivered(spent(team(16_000, 16_000), "tides.1", 15_500), "tides.2", 15_000)
    granted = spent(state.granted("tides.1", Amount(tokens=50_000)), "tides.1", 65_900)
    helped = drawn(granted, "tides.1")
    assert helped is not None
    assert helped.runs["tides"].limit == Limit(tokens=KEPT)


def test_what_was_handed_back_before_is_the_parents_own_when_it_delegates_again() -> None:
    state = delivered(team(16_000), "tides.1", 4_000)
    again = SubagentsRequested(standing=standing(0), orders=(orders(0, 10_000)[1],))
    state = taken_on(state.with_run(state.runs["tides"].after_leg(again)), "tides", terms())
    assert drawn(spent(state, "tides.2", 9_900), "tides.2") is None


def test_a_parent_at_work_gives_nothing_and_a_task_gives_what_it_has_left() -> None:
    state = spent(team(16_000), "tides.1", 15_500)
    at_work = state.runs["tides"].replace(phase="running")
    assert drawn(state.with_run(at_work), "tides.1") is None
    raised = state.replace(account=state.account.grant(Amount(tokens=1_000))).with_run(at_work)
    helped = drawn(raised, "tides.1")
    assert helped is not None
    assert helped.runs["tides.1"].limit == Limit(tokens=17_000)


def told(state: TaskState, step_id: str) -> int:
    """What a status counts for this agent: what it has left, and what it could draw."""
    run = state.runs[step_id]
    return run.limit.after(run.totals.spent).increase_by(drawable(state, step_id)).amount.tokens


def test_what_an_agent_is_told_is_left_does_not_grow_when_it_draws() -> None:
    for state in (
        delivered(spent(team(16_000, 16_000), "tides.1", 15_500), "tides.2", 4_000),
        spent(team(16_000), "tides.1", 15_500).replace(account=working().account.grant(Amount(tokens=9_000))),
    ):
        before, helped = told(state, "tides.1"), drawn(state, "tides.1")
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
        if step_id in state.done:
            continue
        run = state.runs[step_id]
        left = run.limit.amount.tokens - run.totals.spent.tokens
        state = spent(state, step_id, run.totals.spent.tokens + left * percent // 100, needed)
        helped = drawn(state, step_id)
        state = helped or delivered(state, step_id, state.runs[step_id].totals.spent.tokens)
        assert state.account.limit == Limit(tokens=40_000)
        assert state.account.limit.can_cover(state.account.spent + state.account.held)
        if helped is not None:
            assert state.runs[step_id].limit.amount.tokens >= run.limit.amount.tokens + needed
            assert state.runs["tides"].limit.amount.tokens >= KEPT


def test_an_agent_that_waits_for_a_person_goes_on_with_what_another_gave_back() -> None:
    state = asking(task_values.working(budget=122_000), "research-1")
    assert freed(state, "research-1") is None
    state = finished(state, "research-2", 20_000)
    helped = freed(state, "research-1")
    assert helped is not None
    assert helped.runs["research-1"].limit == Limit(tokens=40_000)
    (request,) = withdrawn(helped, "research-1", NOON)
    assert (request.request_id, request.decision, request.note) == ("research-1-1", "withdrawn", FREED)
    assert withdrawn(helped, "research-2", NOON) == ()


def test_money_answers_nothing_that_is_not_about_money() -> None:
    state = task_values.after_leg(
        task_values.working(), "research-1", OperatorActionRequired(standing=standing(1_000), reason="no credit")
    )
    assert not state.account.unreserved.amount.nothing
    assert freed(state, "research-1") is None
    assert freed(state, "research-2") is None, "it is at work"
