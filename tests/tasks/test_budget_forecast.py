"""What a request says the money is for, in numbers and in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.progress_values import NOON, PENDING_APPROVAL
from tests.support.task_states import apply_leg_outcome, finish_agent, make_run_usage, make_working_state
from waystation.agents.action_approvals import AUTHORISED_IN_ADVANCE
from waystation.agents.agent_run import AgentRun, BudgetForecast, build_budget_forecast
from waystation.agents.deliverables import (
    Analysis,
    Finding,
    Note,
    ReportDraft,
    ReportSection,
    ResearchFindings,
    WorkCounts,
    count_work,
)
from waystation.agents.leg import BudgetExhausted, Interrupted, LegState, OperatorActionRequired
from waystation.budgets.budget import BudgetAccount, RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.usage import Usage
from waystation.planning.plan import PLANNING_ID, Plan, PlanEdit, PlanVersion, build_standard_plan
from waystation.tasks.details import (
    format_budget_forecast,
    format_request_and_answer,
    format_step_progress,
)
from waystation.tasks.reallocation import FREED_BUDGET_NOTE
from waystation.tasks.task import ApprovalRequest
from waystation.tasks.view import ApprovalView, BudgetForecastView, format_denial_effect, format_work_counts


def asking_run(used: int, calls: int, needed: int, share: int) -> AgentRun:
    """An agent that spent its share, so much of it."""
    run = make_working_state().runs["research-1"].replace(initial_limit=Limit(tokens=share), limit=Limit(tokens=share))
    standing = LegState(totals=RunUsage(usage=Usage(input=used), turns=calls))
    return run.after_leg(BudgetExhausted(state=standing, needed=Amount(tokens=needed)))


def seen(run: AgentRun) -> BudgetForecast:
    return build_budget_forecast(run, Plan(steps=()), BudgetAccount(limit=Limit()), {}, 0)


def calls_made(left: int, worst_case: int, cost: int) -> int:
    """One by one, as the guard before each call lets them through."""
    calls = 0
    while left >= worst_case:
        left, calls = left - cost, calls + 1
    return calls


@given(st.integers(1, 40), st.integers(1, 5_000), st.integers(0, 9_000), st.integers(1, 60_000), st.data())
def test_an_amount_is_worth_as_many_calls_as_the_guard_lets_through_at_the_average_cost(
    calls: int, cost: int, over: int, share: int, data: st.DataObject
) -> None:
    worst_case = cost + over
    left = data.draw(st.integers(0, worst_case - 1))
    run = asking_run(calls * cost, calls, worst_case - left, share)
    assert seen(run).average_turn_cost == Amount(tokens=cost)
    assert seen(run).turns_covered == calls_made(left + run.proposed_grant.tokens, worst_case, cost)


def format_forecast(forecast: BudgetForecast, requested: Amount) -> str:
    return format_budget_forecast(BudgetForecastView.from_forecast(forecast, "research-1"), requested)


def test_of_two_units_the_one_that_ends_first_decides() -> None:
    run = make_working_state().runs["research-1"].replace(limit=Limit(tokens=10_000, micro_usd=5_000))
    spent = RunUsage(usage=Usage(input=9_000), turns=9, cost_micro_usd=4_500)
    run = run.replace(initial_limit=Limit(tokens=30_000, micro_usd=5_000)).after_leg(
        BudgetExhausted(state=LegState(totals=spent), needed=Amount(tokens=1_000, micro_usd=2_500))
    )
    assert seen(run).average_turn_cost == Amount(tokens=1_000, micro_usd=500)
    assert seen(run).turns_covered == 1 + 5_000 // 500


def test_a_request_counts_what_the_agent_has_and_what_steps_to_come_keep() -> None:
    state = finish_agent(make_working_state(), "research-2")
    standing = LegState(totals=make_run_usage(29_500), work_counts=WorkCounts(notes=4))
    state = apply_leg_outcome(state, "research-1", BudgetExhausted(state=standing, needed=Amount(tokens=900)))
    told = state.build_budget_request("research-1", NOON).forecast
    assert told is not None
    assert (told.finished_steps, told.pending_steps, told.reserved_for_pending, told.work_counts) == (
        1,
        2,
        Amount(tokens=60_000),
        WorkCounts(notes=4),
    )
    assert told.dependent_steps == ("analysis",)


def test_an_agent_that_made_no_call_is_given_no_estimate() -> None:
    run = asking_run(0, 0, 900, 30_000)
    assert format_forecast(seen(run), run.proposed_grant) == "none yet"


def test_what_finishing_may_take_is_said_only_if_it_is_more_than_what_is_asked_for() -> None:
    run = asking_run(29_000, 29, 900, 30_000)
    told, more = seen(run), run.proposed_grant + Amount(tokens=40_000)
    assert "unfinished steps" not in format_budget_forecast(
        BudgetForecastView.from_forecast(told, "research-1"), run.proposed_grant
    )
    text = format_budget_forecast(
        BudgetForecastView.from_forecast(told.replace(cost_to_finish=more), "research-1"), run.proposed_grant
    )
    assert text.endswith("; at the pace so far, the unfinished steps may need about 71,000 tokens more than they have")


def test_where_the_provider_stopped_nothing_is_said_of_what_an_amount_is_worth() -> None:
    standing = LegState(totals=RunUsage(usage=Usage(input=900), turns=3))
    run = make_working_state().runs["research-1"].after_leg(OperatorActionRequired(state=standing, reason="no credit"))
    assert format_forecast(seen(run), Amount()) == "none yet"


def test_a_call_without_a_reply_that_spent_the_budget_is_named_where_money_is_asked_for() -> None:
    spent = BudgetExhausted(state=LegState(totals=RunUsage()), needed=Amount(tokens=9), unanswered="a cut stream")
    run = make_working_state().runs["research-1"].after_leg(spent)
    why = "the agent's last model call may have been billed, although it got no reply: a cut stream"
    assert format_forecast(seen(run), run.proposed_grant) == why
    assert run.finish_partial("a person denied it more").reason == f"a person denied it more; {why}"
    went_on = run.after_grant(Amount(tokens=9)).after_leg(Interrupted(state=LegState(totals=RunUsage(turns=1))))
    assert went_on.finish_partial("it was ended").reason == "it was ended"


@pytest.mark.parametrize(
    ("each", "told"),
    [
        (Amount(tokens=7), "7 tokens"),
        (Amount(tokens=4_251), "4,300 tokens"),
        (Amount(micro_usd=31_337), "$0.031"),
        (Amount(tokens=123_456, micro_usd=1_234_567), "120,000 tokens and $1.20"),
    ],
)
def test_an_average_is_told_as_precisely_as_it_is_meant(each: Amount, told: str) -> None:
    outlook_of_it = seen(asking_run(100, 1, 900, 30_000)).replace(average_turn_cost=each, turns=3)
    assert f" at an average of {told}, with room for the longest reply" in format_budget_forecast(
        BudgetForecastView.from_forecast(outlook_of_it, "research-1"), Amount(tokens=1)
    )


@pytest.mark.parametrize(
    ("ceiling", "told"),
    [
        (Limit(), " at an average of 1,000 tokens, "),
        (Limit(tokens=230_900), " at an average of 1,000 tokens, "),
        (Limit(tokens=230_899), "the task's ceiling leaves 30,899 tokens for grants: approve no more than that"),
        (Limit(tokens=200_900), "the task's ceiling leaves 900 tokens for grants: approve no more than that"),
        (
            Limit(tokens=200_899),
            "the task's ceiling leaves 899 tokens for grants, too little for the agent's next call: deny "
            "the request, or cancel the task",
        ),
    ],
)
def test_a_request_says_what_its_ceiling_leaves_and_when_no_grant_is_enough(ceiling: Limit, told: str) -> None:
    run = asking_run(29_000, 29, 900, 30_000)
    seen_under = seen(run).with_ceiling(ceiling, Limit(tokens=200_000), run.needed)
    text = format_forecast(seen_under, run.proposed_grant)
    assert told in text
    assert ("more calls" in text) is seen_under.covers_next_call
    assert ("ceiling" in text) is (ceiling != Limit() and ceiling != Limit(tokens=230_900))


def test_a_denial_says_who_goes_on_with_what() -> None:
    told = seen(asking_run(100, 1, 900, 30_000))
    research = told.replace(work_counts=WorkCounts(notes=1, findings=2), dependent_steps=("weigh", "write"))
    writing = told.replace(work_counts=WorkCounts(sections=2))
    assert format_denial_effect(research, "a") == (
        "a ends with 1 note and 2 findings; weigh and write continue with this result; the report is partial"
    )
    assert format_denial_effect(told.replace(dependent_steps=("weigh",)), "a") == (
        "a ends with nothing; weigh continues without a result; the report is partial"
    )
    assert format_denial_effect(writing, "write") == (
        "write ends with 2 sections; the report is partial and lists the findings of the other steps"
    )
    assert format_work_counts(WorkCounts(notes=1, findings=2, sections=3)) == "1 note, 2 findings and 3 sections"


def test_the_last_step_has_none_to_come_and_a_request_of_an_older_release_says_what_it_knows() -> None:
    told = PENDING_APPROVAL.forecast
    assert told is not None
    one = PENDING_APPROVAL.replace(forecast=told.replace(pending_steps=1), steps_left=1)
    assert (
        format_step_progress(ApprovalView.from_request(one))
        == "1 of 2 steps finished; 60,000 tokens reserved for 1 later step"
    )
    last = PENDING_APPROVAL.replace(forecast=told.replace(pending_steps=0), steps_left=1)
    assert format_step_progress(ApprovalView.from_request(last)) == "1 of 2 steps finished"
    older = ApprovalRequest.model_validate(PENDING_APPROVAL.model_dump(exclude={"forecast"}))
    assert older.forecast is None
    assert format_step_progress(ApprovalView.from_request(older)) == "3 steps to finish"


def test_an_answer_with_an_edited_plan_says_how_many_steps_were_approved() -> None:
    plan = build_standard_plan("Which?")
    asked = ApprovalRequest(
        request_id="plan-1", agent=PLANNING_ID, requested=Amount(), steps_left=4, decision="approved", by="Ada"
    )
    edited = Plan(steps=plan.steps[1:])
    versions = (
        PlanVersion(number=1, plan=plan, made_by=PLANNING_ID),
        PlanVersion(number=2, plan=edited, made_by=PlanEdit(request_id="plan-1", plan="a" * 64).made_by),
    )
    said = "approval was asked for the plan with 4 steps; "
    by_ada = "approved by Ada (name not verified)"
    view = ApprovalView.from_request(asked)
    assert format_request_and_answer(view, over=True, plans=versions[:1]) == f"{said}{by_ada}"
    assert format_request_and_answer(view, over=True, plans=versions) == f"{said}an edited plan with 3 steps {by_ada}"


def test_an_answer_names_who_claims_to_have_given_it_and_where_it_came_from() -> None:
    asked = "research-2 asked for 30,000 tokens after 7 calls"
    granted = PENDING_APPROVAL.replace(decision="approved", granted=Amount(tokens=5))
    by_ada = granted.replace(by="Ada", note="go on")
    assert format_request_and_answer(ApprovalView.from_request(by_ada), over=False, origin="sent from a@b") == (
        f"{asked}; 5 tokens approved by Ada (name not verified; sent from a@b): go on"
    )
    assert format_request_and_answer(ApprovalView.from_request(granted), over=False) == f"{asked}; 5 tokens approved"
    assert format_request_and_answer(ApprovalView.from_request(granted), over=False, origin="sent from a@b") == (
        f"{asked}; 5 tokens approved by an unnamed person (sent from a@b)"
    )
    halted = PENDING_APPROVAL.replace(decision="approved", reason="no credit", by="Ada")
    assert format_request_and_answer(ApprovalView.from_request(halted), over=False) == (
        "research-2 made no more calls after 7 calls (no credit); approved by Ada (name not verified)"
    )
    unasked = granted.replace(by=AUTHORISED_IN_ADVANCE, note="1 of 3")
    assert (
        format_request_and_answer(ApprovalView.from_request(unasked), over=False)
        == f"{asked}; 5 tokens authorised in advance: 1 of 3"
    )
    relieved = PENDING_APPROVAL.replace(decision="withdrawn", note=FREED_BUDGET_NOTE)
    assert (
        format_request_and_answer(ApprovalView.from_request(relieved), over=False)
        == f"{asked}; withdrawn: budget was released elsewhere, and the agent continues with it"
    )
    closed = PENDING_APPROVAL.replace(decision="expired", note="the task had ended", answer_by=NOON)
    assert (
        format_request_and_answer(ApprovalView.from_request(closed), over=False)
        == f"{asked}; not answered, because the task had ended"
    )
    assert (
        format_request_and_answer(ApprovalView.from_request(PENDING_APPROVAL), over=False)
        == f"{asked}; not answered yet"
    )
    assert (
        format_request_and_answer(ApprovalView.from_request(PENDING_APPROVAL), over=True) == f"{asked}; no one answered"
    )


def test_what_an_agent_has_is_counted_by_kind() -> None:
    note = Note(id="n", run_id="r", text="t", document="a.md", first_line=1, last_line=1)
    found = Finding(claim="c", citations=())
    assert count_work(None, (note, note)) == WorkCounts(notes=2)
    assert count_work(ResearchFindings(findings=(found, found)), (note,)) == WorkCounts(notes=1, findings=2)
    assert count_work(Analysis(conclusions=(found,)), ()) == WorkCounts(findings=1)
    assert count_work(ReportDraft(sections=(ReportSection(heading="h", markdown="m"),)), ()) == WorkCounts(sections=1)


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        (1, "700 tokens (from 1 call so far), with"),
        (2, "700 tokens (from 2 calls so far), with"),
        (3, "700 tokens, with"),
    ],
)
def test_an_average_of_few_calls_says_how_many(calls: int, told: str) -> None:
    forecast = seen(asking_run(100, 1, 900, 30_000)).replace(average_turn_cost=Amount(tokens=700), turns=calls)
    view = BudgetForecastView.from_forecast(forecast, "research-1")
    assert f"at an average of {told} room for the longest reply" in format_budget_forecast(view, Amount(tokens=1))
