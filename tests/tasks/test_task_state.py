import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.task_states import (
    PLAN,
    REF,
    TASK_CONFIG,
    apply_leg_outcome,
    exhaust_budget,
    finish_agent,
    make_leg_state,
    make_planned_state,
    make_run_usage,
    make_working_state,
    request_budgets,
)
from waystation.agents.leg import ContextFull
from waystation.budgets.budget import BudgetAccount
from waystation.context.compaction import CompactionOutcome, CompactionStatus
from waystation.kernel.amount import Amount, Limit
from waystation.planning.plan import build_standard_plan
from waystation.tasks.progress import build_task_progress
from waystation.tasks.reallocation import draw_from_task
from waystation.tasks.session import SessionBudgetAnswer
from waystation.tasks.state import TaskState, sum_run_usage
from waystation.tasks.task import BudgetProgress, TaskPhase


def test_the_share_of_every_step_is_reserved_as_soon_as_there_is_a_plan() -> None:
    state = make_planned_state()
    assert state.account == BudgetAccount(
        limit=Limit(tokens=200_000),
        spent=make_run_usage(2_000).spent,
        reserved={step.id: Amount(tokens=30_000) for step in PLAN.steps},
    )
    assert (state.phase, state.notes, state.runs) == (TaskPhase.WORKING, ("planned",), {})


@given(st.integers(2_000, 400_000), st.integers(0, 2_000))
def test_shares_and_planning_never_pass_the_budget(budget: int, planning: int) -> None:
    state = TaskState(account=BudgetAccount(limit=Limit(tokens=budget))).with_plan(
        PLAN, make_run_usage(planning), (), TASK_CONFIG.agent_budget
    )
    assert state.account.limit.can_cover(state.account.spent + state.account.total_reserved)
    assert len({amount.tokens for amount in state.account.reserved.values()}) == 1


def test_planning_is_booked_once_whether_it_made_a_plan_or_failed_first() -> None:
    failed = TaskState(account=BudgetAccount(limit=Limit(tokens=200_000))).with_planning_cost(make_run_usage(1_500))
    assert failed.account.spent.tokens == 1_500
    assert failed.with_plan(PLAN, make_run_usage(2_000), (), Limit(tokens=30_000)).account.spent.tokens == 2_000


def test_a_started_step_has_its_share_as_limit() -> None:
    run = make_working_state("research-1").runs["research-1"]
    assert (run.limit, run.initial_limit) == (Limit(tokens=30_000), Limit(tokens=30_000))
    assert (run.run.run_id, run.run.role) == ("task-1/research-1", "research")


def test_a_delivered_run_settles_once_and_gives_the_rest_back() -> None:
    state = finish_agent(make_working_state(), "research-1")
    assert (state.account.spent.tokens, "research-1" in state.account.reserved) == (12_000, False)
    assert state.with_run(state.runs["research-1"]).account == state.account
    assert state.delivered_agents == {"research-1"}


def test_a_spent_agent_draws_on_what_no_step_to_come_needs() -> None:
    state = exhaust_budget(make_working_state(), "research-1")
    drawn, amount = draw_from_task(state, "research-1")
    assert amount == Amount(tokens=15_900), "its next call, and half of its share"
    assert drawn.account.reserved["research-1"].tokens == 45_900
    assert {step: drawn.account.reserved[step].tokens for step in ("analysis", "writing")} == dict.fromkeys(
        ("analysis", "writing"), 30_000
    )


def test_what_a_finished_step_gave_back_can_be_drawn_on() -> None:
    state = finish_agent(exhaust_budget(make_working_state(budget=122_000), "research-1"), "research-2", 20_000)
    drawn, amount = draw_from_task(state, "research-1")
    assert amount == Amount(tokens=10_000)
    assert drawn.account.unreserved.tokens == 0


@pytest.mark.parametrize(("left", "expected"), [(899, 0), (900, 900), (20_000, 15_900)])
def test_nothing_is_drawn_that_would_not_pay_for_one_call(left: int, expected: int) -> None:
    state = exhaust_budget(make_working_state(budget=122_000 + left), "research-1", needed=900)
    drawn, amount = draw_from_task(state, "research-1")
    assert amount == Amount(tokens=expected)
    assert drawn.account.reserved["research-1"].tokens == 30_000 + expected


def test_a_call_that_needs_more_than_the_agent_started_with_draws_as_much_as_it_needs() -> None:
    state = exhaust_budget(make_working_state(budget=200_000), "research-1", needed=50_000)
    assert draw_from_task(state, "research-1")[1] == Amount(tokens=65_000)


def test_a_grant_raises_task_and_agent_together() -> None:
    state = request_budgets(make_working_state(budget=122_000), "research-1").after_grant(
        "research-1", Amount(tokens=12_000)
    )
    assert (state.account.limit, state.account.reserved["research-1"]) == (
        Limit(tokens=134_000),
        Amount(tokens=42_000),
    )
    assert (state.runs["research-1"].limit, state.runs["research-1"].phase) == (Limit(tokens=42_000), "running")
    assert state.account.unreserved.tokens == 0


def test_a_grant_counts_also_where_an_agent_overshot() -> None:
    state = finish_agent(exhaust_budget(make_working_state(budget=122_000), "research-1"), "research-2", 45_000)
    assert not state.account.limit.can_cover(state.account.spent + state.account.total_reserved)
    assert state.after_grant("research-1", Amount(tokens=12_000)).runs["research-1"].limit == Limit(tokens=42_000)


def test_a_grant_to_a_run_that_delivered_changes_nothing() -> None:
    state = finish_agent(make_working_state(), "research-1")
    assert state.after_grant("research-1", Amount(tokens=12_000)) == state


def test_an_answer_of_the_session_raises_the_task_once() -> None:
    answer = SessionBudgetAnswer(request_id="task-1/research-1-1", amount=Amount(tokens=30_000))
    state = exhaust_budget(make_working_state(budget=122_000), "research-1").after_session_answer(answer)
    assert state.after_session_answer(answer) == state
    assert (state.account.limit.tokens, state.account.unreserved.tokens) == (152_000, 30_000)
    assert draw_from_task(state, "research-1")[1] == Amount(tokens=15_900)
    nothing = state.after_session_answer(SessionBudgetAnswer(request_id="task-1/research-1-2", amount=Amount()))
    assert nothing.account == state.account
    assert nothing.answered_session_requests == ("task-1/research-1-1", "task-1/research-1-2")


def test_a_task_that_ends_settles_what_is_still_reserved() -> None:
    state = finish_agent(make_working_state(), "research-1")
    state = state.with_run(state.runs["research-2"].with_settled_usage(make_run_usage(4_000)))
    over = state.end_task(TaskPhase.CANCELLED)
    assert over.phase is TaskPhase.CANCELLED
    assert over.account == BudgetAccount(
        limit=Limit(tokens=200_000), spent=Amount(tokens=2_000 + 10_000 + 4_000, micro_usd=21)
    )
    assert over.end_task(TaskPhase.CANCELLED) == over


def test_how_a_task_ends_follows_from_its_runs() -> None:
    state = make_working_state("research-1", "research-2", "analysis", "writing")
    for step in PLAN.steps:
        assert not state.all_steps_delivered
        state = finish_agent(state, step.id)
    assert (state.all_steps_delivered, state.final_phase) == (True, TaskPhase.DONE)
    partial = state.with_run(state.runs["analysis"].finish_partial("x"))
    assert partial.final_phase is TaskPhase.PARTIAL


def test_totals_add_up_and_one_unknown_price_makes_the_sum_unknown() -> None:
    known = sum_run_usage((make_run_usage(100, cost=3), make_run_usage(50, cost=4, possibly=9)))
    assert (known.usage.input, known.turns, known.possibly_billed, known.cost_micro_usd) == (150, 2, 9, 7)
    assert sum_run_usage((make_run_usage(100, cost=3), make_run_usage(50, cost=None))).cost_micro_usd is None


def test_the_cost_is_known_while_agents_have_not_made_a_call_yet() -> None:
    assert make_working_state().totals.cost_micro_usd == 7


def test_what_people_see_of_a_task() -> None:
    state = request_budgets(finish_agent(make_working_state(), "research-1"), "research-2")
    outcome = CompactionOutcome(
        compaction_id="c1",
        status=CompactionStatus.COMPRESSED,
        strategy="window",
        tokens_before=12_000,
        tokens_after=5_000,
        covered=9,
        passages=3,
        totals=make_run_usage(10_000),
    )
    state = state.with_run(state.runs["research-1"].replace(compactions=(outcome,)))
    progress = build_task_progress(state, REF, TASK_CONFIG, "Why?")
    assert (progress.phase, progress.legs, progress.title) == (TaskPhase.PAUSED, 2, "Why?")
    assert progress.budget == BudgetProgress(
        limit=Limit(tokens=200_000), spent=Amount(tokens=41_500, micro_usd=21), reserved=Amount(tokens=60_500)
    )
    assert [(step.id, step.state, step.limit.tokens, step.spent.tokens) for step in progress.steps] == [
        ("research-1", "done", 30_000, 10_000),
        ("research-2", "paused", 30_000, 29_500),
        ("analysis", "waiting", 30_000, 0),
        ("writing", "waiting", 30_000, 0),
    ]
    assert [compaction.agent for compaction in progress.compactions] == ["research-1"]
    assert progress.approvals == state.approvals


def test_steps_that_never_started_are_skipped_when_the_task_is_over() -> None:
    over = finish_agent(make_working_state(), "research-1").end_task(TaskPhase.CANCELLED)
    states = [step.state for step in build_task_progress(over, REF, TASK_CONFIG, "").steps]
    assert states[2:] == ["skipped", "skipped"]


def test_a_run_that_makes_room_is_shown_as_compacting_and_one_that_gave_up_as_partial() -> None:
    state = apply_leg_outcome(
        make_working_state(), "research-1", ContextFull(state=make_leg_state(9_000), request_tokens=12_000)
    )
    state = state.with_run(state.runs["research-2"].finish_partial("its budget is spent"))
    shown = build_task_progress(state, REF, TASK_CONFIG, "").steps
    assert [step.state for step in shown[:2]] == ["compacting", "partial"]
    assert shown[1].reason == "its budget is spent"


def test_nothing_written_by_a_model_or_a_person_is_in_the_state_but_titles() -> None:
    plan = build_standard_plan("a private question").without_goals()
    assert "private" not in make_planned_state(plan=plan).model_dump_json()


def test_a_state_survives_continue_as_new() -> None:
    state = request_budgets(finish_agent(make_working_state(), "research-1"), "research-2")
    assert TaskState.model_validate_json(state.model_dump_json()) == state
