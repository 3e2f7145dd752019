"""A task and its agents with budgets in dollars, in tokens, and in both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.task_states import NOON, PLAN, REF, TASK_CONFIG, apply_leg_outcome
from waystation.agents.agent_run import RequestBudget
from waystation.agents.leg import AgentFinished, BudgetExhausted, LegState
from waystation.budgets.budget import BudgetAccount, BudgetMode, RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.usage import Usage
from waystation.planning.plan import PlanEdit, PlanEditResult
from waystation.tasks.progress import build_task_progress
from waystation.tasks.reallocation import compute_drawable_budget, draw_budget, draw_from_task, should_wait_for_release
from waystation.tasks.reviews import apply_plan_edit_result, build_plan_approval_request
from waystation.tasks.session import SessionBudgetAnswer
from waystation.tasks.state import UNFIT_SHARES_NOTE, TaskState
from waystation.tasks.task import ApprovalRequest, TaskPhase
from waystation.tasks.view import TaskView

PLANNING = RunUsage(usage=Usage(input=2_000), turns=1, cost_micro_usd=40_000)
NUMBERS = st.none() | st.integers(0, 400_000)
LIMITS = st.builds(Limit, tokens=NUMBERS, micro_usd=NUMBERS)


def working(budget: Limit, agent: Limit) -> TaskState:
    state = TaskState(account=BudgetAccount(limit=budget)).with_plan(PLAN, PLANNING, (), agent)
    return state.start_step(PLAN.get_step("research-1"), REF, TASK_CONFIG)


def standing(spent: Amount, turns: int = 1) -> LegState:
    return LegState(totals=RunUsage(usage=Usage(input=spent.tokens), turns=turns, cost_micro_usd=spent.micro_usd))


def spent(state: TaskState, spent: Amount, needed: Amount, turns: int = 1) -> TaskState:
    return apply_leg_outcome(state, "research-1", BudgetExhausted(state=standing(spent, turns), needed=needed))


@given(LIMITS, LIMITS)
def test_shares_never_pass_what_the_task_has_left_in_any_unit(budget: Limit, agent: Limit) -> None:
    state = working(budget, agent)
    assert state.account.unreserved.can_cover(Amount())
    assert budget.remaining_after(PLANNING.spent).can_cover(state.account.total_reserved)
    run = state.runs["research-1"]
    assert run.limit == run.initial_limit == state.initial_step_limit
    assert state.account.reserved["research-1"] == run.limit.amount


@pytest.mark.parametrize(
    ("needed", "drawn"),
    [
        (Amount(micro_usd=900), Amount(micro_usd=50_900)),
        (Amount(micro_usd=60_000), Amount(micro_usd=110_000)),
        (Amount(tokens=900), Amount(tokens=15_900)),
        (Amount(tokens=900, micro_usd=900), Amount(tokens=15_900, micro_usd=50_900)),
        (Amount(tokens=900, micro_usd=560_001), Amount()),
    ],
)
def test_a_spent_agent_draws_what_it_needs_and_half_a_share_in_the_units_that_it_lacks(
    needed: Amount, drawn: Amount
) -> None:
    budget, agent = Limit(tokens=200_000, micro_usd=1_000_000), Limit(tokens=30_000, micro_usd=100_000)
    state = spent(working(budget, agent), Amount(tokens=29_500, micro_usd=99_500), needed)
    after, given_out = draw_from_task(state, "research-1")
    assert given_out == drawn
    assert after.account.reserved["research-1"] == agent.amount + drawn
    assert after.account.limit.can_cover(after.account.spent + after.account.total_reserved)


@pytest.mark.parametrize(
    ("needed", "wanted"),
    [
        (Amount(micro_usd=900), Amount(micro_usd=100_900)),
        (Amount(tokens=900), Amount(tokens=30_900)),
        (Amount(tokens=900, micro_usd=200_000), Amount(tokens=30_900, micro_usd=300_000)),
    ],
)
def test_an_agent_asks_in_the_units_that_it_lacks_for_what_it_needs_and_its_share_again(
    needed: Amount, wanted: Amount
) -> None:
    agent = Limit(tokens=30_000, micro_usd=100_000)
    state = spent(working(Limit(tokens=900_000, micro_usd=900_000), agent), Amount(tokens=1, micro_usd=1), needed)
    assert state.runs["research-1"].get_next_action() == RequestBudget(amount=wanted)
    request = state.build_budget_request("research-1", NOON)
    assert (request.requested, request.needed, request.limit) == (wanted, needed, state.runs["research-1"].limit)


def test_an_answer_of_the_session_in_dollars_raises_the_task_once() -> None:
    state = working(Limit(micro_usd=440_000), Limit(micro_usd=100_000))
    state = spent(state, Amount(tokens=9, micro_usd=99_000), Amount(micro_usd=900))
    assert draw_from_task(state, "research-1")[1] == Amount()
    answer = SessionBudgetAnswer(request_id="task-1/research-1-1", amount=Amount(micro_usd=100_000))
    answered = state.after_session_answer(answer).after_session_answer(answer)
    assert answered.account.limit == Limit(micro_usd=540_000)
    assert draw_from_task(answered, "research-1")[1] == Amount(micro_usd=50_900)


def test_people_see_spent_and_reserved_in_both_units() -> None:
    state = working(Limit(micro_usd=1_000_000), Limit(micro_usd=100_000))
    state = apply_leg_outcome(
        state, "research-1", AgentFinished(state=standing(Amount(tokens=5_000, micro_usd=60_000)))
    )
    progress = build_task_progress(state, REF, TASK_CONFIG, "Why?")
    assert progress.budget.limit == Limit(micro_usd=1_000_000)
    assert progress.budget.spent == Amount(tokens=7_000, micro_usd=100_000)
    assert progress.budget.reserved == Amount(micro_usd=300_000)
    assert progress.steps[0].limit == Limit(micro_usd=100_000)


def test_people_see_what_an_agent_could_draw_beyond_its_limit_as_the_agent_does() -> None:
    state = working(Limit(tokens=200_000), Limit(tokens=30_000))
    drawable = compute_drawable_budget(state, "research-1", BudgetMode.APPROVAL)
    assert drawable.tokens > 30_000
    view = TaskView.from_progress(build_task_progress(state, REF, TASK_CONFIG, "Why?"))
    assert [step.drawable for step in view.steps] == [drawable, Amount(), Amount(), Amount()]
    assert view.format_drawable_budget() == (
        f"Beyond its limit, an agent may draw up to {drawable.tokens:,} tokens from what the task has left. "
        "The budget that agents see includes this amount."
    )
    over = TaskView.from_progress(build_task_progress(state.end_task(TaskPhase.CANCELLED), REF, TASK_CONFIG, "Why?"))
    assert over.format_drawable_budget() == ""


def test_in_mode_hard_an_agent_draws_nothing_and_is_not_told_that_it_could() -> None:
    state, hard = working(Limit(tokens=200_000), Limit(tokens=30_000)), TASK_CONFIG.replace(mode=BudgetMode.HARD)
    assert compute_drawable_budget(state, "research-1", BudgetMode.HARD) == Amount()
    view = TaskView.from_progress(build_task_progress(state, REF, hard, "Why?"))
    assert view.format_drawable_budget() == ""


FLOOR = Amount(tokens=4_000)


def narrow(floor: Amount | None) -> TaskState:
    """Four steps with 20,000 tokens each, of which the first has spent its own; nothing is unreserved."""
    state = TaskState(account=BudgetAccount(limit=Limit(tokens=80_000)), minimum_reserve=floor)
    state = state.with_plan(PLAN, RunUsage(), (), Limit(tokens=90_000)).start_step(
        PLAN.get_step("research-1"), REF, TASK_CONFIG
    )
    return spent(state, Amount(tokens=19_500), Amount(tokens=6_000))


def test_a_spent_agent_borrows_of_steps_to_come_down_to_what_each_needs() -> None:
    state, limits = narrow(FLOOR), list[int]()
    while (helped := draw_budget(state, "research-1")) is not None:
        limits.append(helped.runs["research-1"].limit.tokens or 0)
        state = spent(helped, Amount(tokens=limits[-1] - 500), Amount(tokens=6_000))
    assert limits == [36_000, 52_000, 68_000]
    to_come = [step.id for step in PLAN.steps if step.id not in state.runs]
    assert [state.account.reserved[step_id] for step_id in to_come] == [FLOOR] * 3
    assert state.account.unreserved == Limit(tokens=0)
    shown = build_task_progress(state, REF, TASK_CONFIG, "Why?").steps
    assert [step.limit.tokens for step in shown] == [68_000, 4_000, 4_000, 4_000]


TOKENS = st.integers(0, 600_000)


@given(TOKENS, TOKENS, st.lists(st.tuples(TOKENS, TOKENS), max_size=12), TOKENS, TOKENS)
def test_whatever_agents_draw_no_role_starts_with_less_than_its_minimum_reserve(
    budget: int, agent: int, draws: list[tuple[int, int]], analysis: int, writing: int
) -> None:
    reserves = {"analysis": Amount(tokens=analysis), "writing": Amount(tokens=writing)}
    state = TaskState(
        account=BudgetAccount(limit=Limit(tokens=budget)), minimum_reserve=FLOOR, minimum_reserves=reserves
    )
    state = state.with_plan(PLAN, RunUsage(), (), Limit(tokens=agent)).start_step(
        PLAN.get_step("research-1"), REF, TASK_CONFIG
    )
    least = {step.id: state.get_minimum_reserve(step) for step in PLAN.steps}
    if analysis + writing <= budget:
        assert [least[step.id] for step in PLAN.steps] == [reserves.get(step.role, Amount()) for step in PLAN.steps]
    for used, needed in draws:
        limit = state.runs["research-1"].limit.tokens or 0
        state = spent(state, Amount(tokens=min(used, limit)), Amount(tokens=needed))
        state = draw_budget(state, "research-1") or state
        assert state.account.limit.can_cover(state.account.spent + state.account.total_reserved)
    for step in PLAN.steps[1:]:
        begun = state.start_step(step, REF, TASK_CONFIG).runs[step.id]
        assert begun.limit.can_cover(least[step.id])


@pytest.mark.parametrize("needed", [900, 60_000, 250_000])
def test_a_grant_of_what_was_asked_pays_for_ten_turns_at_the_pace_so_far(needed: int) -> None:
    state = spent(
        working(Limit(tokens=900_000), Limit(tokens=30_000)), Amount(tokens=28_000), Amount(tokens=needed), turns=7
    )
    asked = state.build_budget_request("research-1", NOON)
    granted = state.after_grant("research-1", asked.requested).runs["research-1"]
    assert asked.requested == Amount(tokens=needed + 10 * 4_000)
    assert granted.remaining_budget == Amount(tokens=2_000 + needed + 10 * 4_000)


def test_a_request_says_what_finishing_may_take_by_the_steps_to_come_and_the_pace() -> None:
    state = working(Limit(tokens=200_000), Limit(tokens=30_000)).start_step(PLAN.steps[1], REF, TASK_CONFIG)
    state = apply_leg_outcome(state, PLAN.steps[1].id, AgentFinished(state=standing(Amount(tokens=80_000))))
    state = spent(state, Amount(tokens=29_500), Amount(tokens=900))
    asked = state.build_budget_request("research-1", NOON)
    assert asked.forecast is not None
    # Two steps to come hold 30,000 tokens each, and a finished one took 80,000.
    assert asked.forecast.cost_to_finish.tokens == asked.requested.tokens + 2 * 50_000


def test_a_share_that_a_person_gave_is_reserved_whole_and_lent_to_nobody() -> None:
    given = PLAN.replace(steps=(*PLAN.steps[:3], PLAN.steps[3].replace(share="25k")))
    state = TaskState(account=BudgetAccount(limit=Limit(tokens=85_000)), minimum_reserve=FLOOR)
    state = state.with_plan(given, RunUsage(), (), Limit(tokens=90_000)).start_step(
        PLAN.get_step("research-1"), REF, TASK_CONFIG
    )
    assert [held.tokens for held in state.account.reserved.values()] == [20_000, 20_000, 20_000, 25_000]
    state = spent(state, Amount(tokens=19_500), Amount(tokens=6_000))
    while (helped := draw_budget(state, "research-1")) is not None:
        limit = helped.runs["research-1"].limit.tokens or 0
        state = spent(helped, Amount(tokens=limit - 500), Amount(tokens=6_000))
    assert [state.account.reserved[step.id].tokens for step in PLAN.steps[1:]] == [4_000, 4_000, 25_000]
    assert state.get_step_share(PLAN.steps[3].id) == Limit(tokens=25_000)


def test_shares_of_a_plan_that_came_from_elsewhere_and_do_not_fit_are_even_and_noted() -> None:
    given = PLAN.replace(steps=(*PLAN.steps[:3], PLAN.steps[3].replace(share="90k")))
    state = TaskState(account=BudgetAccount(limit=Limit(tokens=80_000))).with_plan(
        given, RunUsage(), (), Limit(tokens=90_000)
    )
    assert [held.tokens for held in state.account.reserved.values()] == [20_000] * 4
    assert state.notes == (UNFIT_SHARES_NOTE,)


def test_where_nobody_lends_shares_are_walls() -> None:
    assert draw_budget(narrow(None), "research-1") is None


def test_an_agent_waits_while_another_goes_on_that_cannot_leave_enough_and_asks_when_none_does() -> None:
    other = PLAN.steps[1].id
    state = narrow(FLOOR).start_step(PLAN.steps[1], REF, TASK_CONFIG)
    state = spent(state, Amount(tokens=19_500), Amount(tokens=60_000))
    assert should_wait_for_release(state, "research-1")
    ended = apply_leg_outcome(state, other, AgentFinished(state=standing(Amount(tokens=20_000))))
    assert not should_wait_for_release(ended, "research-1")
    assert not should_wait_for_release(state.replace(minimum_reserve=None), "research-1"), "nobody lends"


def test_a_step_that_begins_has_its_share_again_as_far_as_others_have_handed_back() -> None:
    helped = draw_budget(narrow(FLOOR), "research-1")
    assert helped is not None
    done = apply_leg_outcome(helped, "research-1", AgentFinished(state=standing(Amount(tokens=25_000))))
    begun = done.start_step(PLAN.steps[1], REF, TASK_CONFIG)
    assert [held.tokens for held in helped.account.reserved.values()] == [36_000, 14_667, 14_666, 14_667]
    assert begun.runs[PLAN.steps[1].id].limit == Limit(tokens=20_000)
    assert begun.account.limit.can_cover(begun.account.spent + begun.account.total_reserved)


def test_the_floor_rises_with_what_finished_steps_have_spent() -> None:
    state = narrow(FLOOR).start_step(PLAN.steps[1], REF, TASK_CONFIG)
    state = apply_leg_outcome(state, PLAN.steps[1].id, AgentFinished(state=standing(Amount(tokens=20_000))))
    while (helped := draw_budget(state, "research-1")) is not None:
        limit = helped.runs["research-1"].limit.tokens or 0
        state = spent(helped, Amount(tokens=limit - 500), Amount(tokens=6_000))
    assert [state.account.reserved[step.id].tokens for step in PLAN.steps[2:]] == [5_000, 5_000]


@pytest.mark.parametrize("dropped", [step.id for step in PLAN.steps[:3]])
def test_every_step_of_a_plan_that_a_person_edited_begins_with_what_is_reserved_for_it(dropped: str) -> None:
    """Otherwise a limit would be below the reservation, and lending from it would reach below what was spent."""
    state = TaskState(
        account=BudgetAccount(limit=Limit(tokens=45_000)),
        minimum_reserve=FLOOR,
        minimum_reserves={"writing": Amount(tokens=12_000)},
    ).with_plan(PLAN, RunUsage(), (), Limit(tokens=90_000))
    assert state.get_step_share("research-1") != state.get_step_share("writing")
    request = build_plan_approval_request(state, NOON, None)
    edited = PLAN.replace(
        steps=tuple(
            step.replace(needs=tuple(one for one in step.needs if one != dropped))
            for step in PLAN.steps
            if step.id != dropped
        )
    )
    state, answered = apply_plan_edit_result(
        state.with_approval_request(request),
        PlanEdit(request_id=request.request_id, plan="b" * 64),
        PlanEditResult(plan=edited),
        TASK_CONFIG.replace(agent_budget=Limit(tokens=90_000)),
        NOON,
    )
    assert isinstance(answered, ApprovalRequest)
    for step in edited.steps:
        begun = state.start_step(step, REF, TASK_CONFIG)
        assert begun.account.reserved[step.id] == begun.runs[step.id].limit.amount, step.id
