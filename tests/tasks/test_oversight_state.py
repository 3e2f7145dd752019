"""Revisions and reviews in the state of a task: when they are due, and what they may spend."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.task_states import (
    NOON,
    PLAN,
    REF,
    TASK_CONFIG,
    exhaust_budget,
    finish_agent,
    make_run_usage,
    make_working_state,
)
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.amount import Amount, Limit
from waystation.planning.plan import Plan, PlanRevision, ReportReview, RevisionResult, SentenceJudgement, Step
from waystation.tasks.reviews import (
    OVERSIGHT_RESERVATION,
    JudgeResult,
    ReviewResult,
    apply_judgement,
    apply_review,
    apply_revision,
    book_oversight_cost,
    build_judge_request,
    build_review_request,
    build_revision_request,
    compute_oversight_limit,
    finish_report_repair,
    is_judgement_due,
    is_review_due,
    is_revision_due,
    propose_revision,
    reserve_oversight_budget,
)
from waystation.tasks.state import TaskState
from waystation.tasks.task import TaskConfig, TaskPhase

OVERSEEN = TASK_CONFIG.replace(revisions=1, reviews=1)
STEPS = ("research-1", "research-2", "analysis", "writing")
FOG = Step(id="fog", role="research", title="Fog")


def begun(budget: int = 200_000, terms: TaskConfig = OVERSEEN) -> TaskState:
    """Planned, for 2,000 tokens."""
    state = reserve_oversight_budget(
        TaskState(account=BudgetAccount(limit=Limit(tokens=budget))), make_run_usage(2_000), terms
    )
    return state.with_plan(PLAN, make_run_usage(2_000), (), terms.agent_budget)


def after(state: TaskState, *steps: str, tokens: int = 10_000) -> TaskState:
    for step_id in steps:
        state = finish_agent(state.start_step(PLAN.get_step(step_id), REF, OVERSEEN), step_id, tokens)
    return state


def test_what_planning_left_of_its_share_is_held_unless_nothing_is_looked_over() -> None:
    assert begun().account.reserved[OVERSIGHT_RESERVATION].tokens == 18_000
    assert compute_oversight_limit(begun()) == Limit(tokens=18_000)
    assert OVERSIGHT_RESERVATION not in begun(terms=TASK_CONFIG).account.reserved


@given(st.integers(2_500, 400_000), st.lists(st.integers(0, 60_000), max_size=4))
def test_the_account_is_never_overdrawn_by_holding_and_every_cost_is_booked_once(budget: int, costs: list[int]) -> None:
    state = begun(budget)
    for number, cost in enumerate(costs):
        for _ in range(2):
            state = book_oversight_cost(state, f"review-{number}", make_run_usage(cost))
    assert state.account.spent.tokens == 2_000 + sum(costs)
    assert state.totals.spent.tokens == 2_000 + sum(costs)
    if sum(costs) <= budget // 10 - 2_000:
        assert state.account.spent.tokens + state.account.total_reserved.tokens <= budget
    assert not state.end_task(state.final_phase).account.reserved


def test_a_revision_is_due_once_all_research_is_done_and_something_is_still_to_begin() -> None:
    assert not is_revision_due(after(begun(), "research-1"), OVERSEEN)
    ready = after(begun(), "research-1", "research-2")
    assert is_revision_due(ready, OVERSEEN)
    assert not is_revision_due(ready, TASK_CONFIG)
    assert not is_revision_due(ready.replace(cancelled=True), OVERSEEN)
    assert not is_revision_due(ready.replace(delivery_requested=True), OVERSEEN)
    assert not is_revision_due(after(begun(), *STEPS), OVERSEEN)


def test_more_revisions_come_only_after_more_research() -> None:
    twice = OVERSEEN.replace(revisions=2)
    ready = after(begun(), "research-1", "research-2")
    request = build_revision_request(ready, REF, twice)
    assert (request.number, request.started_steps, request.reviewed_steps) == (1, STEPS[:2], STEPS[:2])
    kept = apply_revision(
        ready,
        RevisionResult(
            revision=PlanRevision(number=1, reviewed_steps=request.reviewed_steps), totals=make_run_usage(500)
        ),
        Limit(),
    )
    assert not is_revision_due(kept, twice)
    plan = Plan(steps=(*PLAN.steps[:2], FOG, *PLAN.steps[2:]))
    revision = PlanRevision(number=1, version=2, added=("fog",), reviewed_steps=request.reviewed_steps)
    made = RevisionResult(revision=revision, plan=plan, totals=make_run_usage(500))
    state = apply_revision(ready, made, OVERSEEN.agent_budget)
    assert not is_revision_due(state, twice)
    state = finish_agent(state.start_step(FOG, REF, twice), "fog")
    assert is_revision_due(state, twice)
    assert not is_revision_due(state, OVERSEEN)


def test_a_new_step_gets_its_share_of_what_is_unreserved_and_a_dropped_one_gives_its_own_back() -> None:
    ready = after(begun(), "research-1", "research-2")
    plan = Plan(steps=(*PLAN.steps[:2], FOG, PLAN.steps[3]))
    revision = PlanRevision(number=1, version=2, added=("fog",), dropped=("analysis",))
    state = apply_revision(
        ready, RevisionResult(revision=revision, plan=plan, totals=make_run_usage(500)), OVERSEEN.agent_budget
    )
    assert state.account.reserved["fog"].tokens == 30_000
    assert "analysis" not in state.account.reserved
    assert state.start_step(FOG, REF, OVERSEEN).runs["fog"].limit == Limit(tokens=30_000)


def test_a_new_step_starts_with_no_less_than_the_minimum_reserve_of_its_role_if_that_is_there() -> None:
    ready = after(begun(), "research-1", "research-2").replace(minimum_reserves={"writing": Amount(tokens=50_000)})
    summary = Step(id="summary", role="writing", title="Summary", needs=("research-1",))
    plan = Plan(steps=(*PLAN.steps[:2], FOG, summary, PLAN.steps[3]))
    revision = PlanRevision(number=1, version=2, added=("fog", "summary"), dropped=("analysis",))
    made = RevisionResult(revision=revision, plan=plan, totals=make_run_usage(500))
    state = apply_revision(ready, made, Limit(tokens=30_000))
    assert state.account.reserved["fog"].tokens == 30_000
    assert state.account.reserved["summary"].tokens == 50_000
    assert state.oversight.shares["summary"] == Limit(tokens=50_000)
    asked = propose_revision(ready, made, OVERSEEN.replace(revision_percent=1), NOON, None)
    assert asked is not None
    assert asked[1].requested.tokens == 80_000


@pytest.mark.parametrize(("budget", "tokens", "room"), [(200_000, 10_000, 6), (60_000, 13_000, 0)])
def test_there_is_room_for_as_many_new_steps_as_would_get_half_a_share(budget: int, tokens: int, room: int) -> None:
    state = after(begun(budget), "research-1", "research-2", tokens=tokens)
    assert build_revision_request(state, REF, OVERSEEN).max_new_steps == room


def sent_back(state: TaskState) -> TaskState:
    number = len(state.oversight.reviews) + 1
    return apply_review(
        state, ReviewResult(review=ReportReview(number=number, faults=1, sent_back=True), totals=make_run_usage(300))
    )


def test_a_writer_that_is_sent_back_works_with_what_it_had_left_and_its_share_and_settles_once() -> None:
    whole = after(begun(), *STEPS)
    assert is_review_due(whole)
    assert not is_review_due(whole.replace(delivery_requested=True))
    assert build_review_request(whole, OVERSEEN).may_send_back
    state = sent_back(whole)
    run = state.runs["writing"]
    assert (run.phase, run.limit.tokens) == ("running", 10_000 + 20_000 + 30_000)
    assert not state.all_steps_delivered
    again = finish_report_repair(finish_agent(state, "writing", 15_000))
    assert again.account.spent == again.totals.spent
    assert again.totals.spent.tokens == 2_000 + 300 + 45_000
    assert is_review_due(again)
    assert not build_review_request(again, OVERSEEN).may_send_back


def test_a_writer_that_cannot_go_on_leaves_the_report_whole() -> None:
    state = exhaust_budget(sent_back(after(begun(), *STEPS)), "writing")
    stopped = state.with_run(state.runs["writing"].finish_partial("a person denied it more"))
    again = finish_report_repair(stopped)
    assert (stopped.final_phase, again.final_phase) == ("partial", "done")
    assert again.notes[-1] == "The writer did not correct the faults that the review found: a person denied it more."
    twice = OVERSEEN.replace(reviews=2)
    assert not build_review_request(again, twice).may_send_back


def test_a_writer_is_not_sent_back_without_the_money_for_a_turn() -> None:
    state = after(begun(62_000), *STEPS, tokens=15_000)
    assert not build_review_request(state, OVERSEEN).may_send_back
    assert build_review_request(after(begun(62_000), *STEPS, tokens=5_000), OVERSEEN).may_send_back


def test_a_complete_report_is_judged_if_a_model_is_set_and_its_cost_comes_from_oversight() -> None:
    judging = TASK_CONFIG.replace(judge_model="small")
    whole = after(begun(terms=judging), *STEPS)
    assert not is_judgement_due(whole, OVERSEEN)
    assert not is_judgement_due(whole.replace(delivery_requested=True), judging)
    assert is_judgement_due(whole, judging)
    request = build_judge_request(whole, REF, judging)
    assert (request.number, request.model, request.limit) == (1, "small", Limit(tokens=18_000))
    judgement = SentenceJudgement(number=1, supported=2, undecided=1, verdicts_hash="a" * 64)
    judged = apply_judgement(whole, JudgeResult(judgement=judgement, totals=make_run_usage(700), notes=("Cut.",)))
    assert judged.account.spent.tokens == whole.account.spent.tokens + 700
    assert (judged.oversight.judgements, judged.notes[-1]) == ((judgement,), "Cut.")
    assert build_judge_request(judged, REF, judging).number == 2
    interrupted = book_oversight_cost(whole, "judge-1", make_run_usage(300))
    assert build_judge_request(interrupted, REF, judging).number == 2, "the transcript of judge-1 is of another draft"
    assert judgement.text == (
        "Judgement 1 by a model, of 3 cited sentences that code could not decide: 2 supported, 0 not supported, "
        "1 undecided."
    )


def test_a_report_that_was_not_finished_is_not_reviewed() -> None:
    state = after(begun(), *STEPS[:3]).start_step(PLAN.get_step("writing"), REF, OVERSEEN)
    assert not is_review_due(state)
    stopped = state.with_run(state.runs["writing"].finish_partial("no money"))
    assert not is_review_due(stopped)
    assert not is_review_due(make_working_state())


def adding(*ids: str) -> RevisionResult:
    added = tuple(FOG.replace(id=step_id) for step_id in ids)
    plan = Plan(steps=(*PLAN.steps[:2], *added, *PLAN.steps[2:]))
    revision = PlanRevision(number=1, version=2, added=ids, reviewed_steps=("research-1", "research-2"))
    return RevisionResult(revision=revision, plan=plan, totals=make_run_usage(1_000))


@pytest.mark.parametrize(("percent", "asks"), [(None, False), (30, False), (29, True), (0, True)])
def test_a_revision_asks_whose_new_steps_may_spend_more_than_a_part_of_the_budget(
    percent: int | None, *, asks: bool
) -> None:
    state = after(begun(), "research-1", "research-2")
    terms = OVERSEEN.replace(revision_percent=percent)
    asking = propose_revision(state, adding("fog", "mist"), terms, NOON, None)
    assert (asking is not None) is asks
    if asking is not None:
        waiting, request = asking
        assert (request.request_id, request.requested, request.steps_left) == ("plan-1", Amount(tokens=60_000), 6)
        assert waiting.plan == state.plan, "until somebody agrees"
        assert waiting.phase is TaskPhase.PAUSED
        assert waiting.account.spent.tokens == state.account.spent.tokens + 1_000


def test_a_revision_that_adds_nothing_asks_nobody() -> None:
    terms = OVERSEEN.replace(revision_percent=0)
    state = after(begun(), "research-1", "research-2")
    assert propose_revision(state, adding(), terms, NOON, None) is None
