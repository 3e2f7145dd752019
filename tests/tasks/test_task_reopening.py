"""A finished task that goes on: nothing that was spent is forgotten, and what is left is held for those who work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.task_states import NOON, PLAN, REF, TASK_CONFIG, finish_agent, make_working_state, request_budgets
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput, InsufficientBudgetError
from waystation.tasks import session
from waystation.tasks.continuation import TaskRewind, build_reopened_state
from waystation.tasks.session import SessionState, TaskSettlement
from waystation.tasks.state import TaskState
from waystation.tasks.task import BudgetProgress, TaskPhase

ORDER = ("research-1", "research-2", "analysis", "writing")


def back(agent: str = "research-1") -> TaskRewind:
    return TaskRewind(ref=REF, agent=agent, message="m5", keep_message=True, by="Ada", requested_at=NOON)


def ended(*steps: str, tokens: int = 10_000, budget: int = 200_000) -> TaskState:
    """These steps delivered; then the task ended, cancelled where some were missing."""
    state = make_working_state(*steps[:2], budget=budget)
    for step_id in steps:
        if step_id not in state.runs:
            state = state.start_step(PLAN.get_step(step_id), REF, TASK_CONFIG)
        state = finish_agent(state, step_id, tokens)
    return state.replace(cancelled=len(steps) < len(ORDER)).end_task(state.final_phase)


def again(state: TaskState, agent: str = "research-1") -> TaskState:
    return build_reopened_state(state, back(agent), TASK_CONFIG.agent_budget)[0]


def test_the_agent_works_again_and_those_that_built_on_it_wait_for_it() -> None:
    state = again(ended(*ORDER))
    assert state.phase is TaskPhase.WORKING
    assert state.delivered_agents == {"research-2"}
    assert set(state.suspended_runs) == {"analysis", "writing"}
    assert PLAN.list_ready_steps(state.delivered_agents, frozenset(state.runs)) == ()
    state = finish_agent(state, "research-1", 12_000)
    (next_step,) = PLAN.list_ready_steps(state.delivered_agents, frozenset(state.runs))
    started = state.start_step(next_step, REF, TASK_CONFIG)
    assert (next_step.id, set(started.suspended_runs)) == ("analysis", {"writing"})
    assert started.runs["analysis"].leg > 1
    assert started.totals == state.totals


def test_an_agent_on_which_nobody_built_goes_back_alone() -> None:
    state = again(ended(*ORDER), "writing")
    assert (state.delivered_agents, state.suspended_runs) == ({"research-1", "research-2", "analysis"}, {})


@given(
    st.integers(1, 4), st.integers(1, 30_000), st.integers(40_000, 300_000), st.lists(st.integers(0, 9_000), max_size=8)
)
def test_what_was_spent_stays_spent_and_nothing_passes_the_budget(
    steps: int, tokens: int, budget: int, more: list[int]
) -> None:
    before = ended(*ORDER[:steps], tokens=tokens, budget=budget)
    state = again(before)
    assert state.totals == before.totals
    assert state.account.spent + state.account.total_reserved == before.account.spent + Amount(
        tokens=sum(held.tokens for held in state.account.reserved.values())
    ).subtract_clamped(
        sum((run.totals.spent for run in (*state.suspended_runs.values(), state.runs["research-1"])), Amount())
    )
    if before.account.limit.can_cover(before.account.spent):
        assert state.account.limit.can_cover(state.account.spent + state.account.total_reserved)
    for extra in more:
        spent = state.runs["research-1"].totals.spent.tokens
        state = again(finish_agent(state, "research-1", spent + extra).end_task(TaskPhase.CANCELLED))
    over = state.end_task(TaskPhase.CANCELLED)
    assert over.account.spent == over.totals.spent
    assert over.account.reserved == {}


def test_a_request_that_the_end_came_before_is_closed() -> None:
    waiting = request_budgets(make_working_state(), "research-1").replace(cancelled=True)
    state = again(
        waiting.with_run(waiting.runs["research-1"].finish_partial("cancelled")).end_task(TaskPhase.CANCELLED)
    )
    assert [approval.decision for approval in state.approvals] == ["expired"]
    assert state.pending_approvals == ()


def test_the_rewind_stands_in_the_state_as_done() -> None:
    state, edit = build_reopened_state(ended(*ORDER), back(), TASK_CONFIG.agent_budget)
    assert state.runs["research-1"].context_edits == (edit,)
    assert "research-1: rewind to m5 (edit-1), requested by Ada (name not verified): done" in edit.text
    assert edit.text in state.notes
    twice, second = build_reopened_state(
        finish_agent(state, "research-1").end_task(TaskPhase.PARTIAL), back(), TASK_CONFIG.agent_budget
    )
    assert (second.id, len(twice.runs["research-1"].context_edits)) == ("edit-2", 2)


def test_an_agent_that_never_worked_is_no_agent_to_go_back_with() -> None:
    with pytest.raises(
        BadInput, match=r"no agent 'writing' has worked; agents that have worked: research-1, research-2$"
    ):
        again(ended("research-1", "research-2"), "writing")


def test_a_subagent_is_not_taken_back_without_the_agent_that_used_what_it_found() -> None:
    state = ended(*ORDER)
    run = state.runs["research-1"]
    child = run.replace(run=run.run.replace(step_id="research-1.2"))
    with pytest.raises(
        BadInput, match=r"^research-1\.2 is a subagent, and research-1 has used .*: rewind research-1 instead$"
    ):
        again(state.replace(runs={**state.runs, "research-1.2": child}), "research-1.2")


LIMITED = SessionState(account=BudgetAccount(limit=Limit(tokens=100_000)))


@given(st.integers(0, 60_000), st.integers(0, 60_000))
def test_a_session_counts_a_task_that_went_on_once(first: int, more: int) -> None:
    budget = BudgetProgress(limit=Limit(tokens=60_000), spent=Amount(tokens=first), reserved=Amount())
    state = session.admit_task(LIMITED, "task-1", budget.limit)
    state = session.settle_task(state, TaskSettlement(task_id="task-1", spent=budget.spent))
    state = session.reopen_task(state, "task-1", budget)
    assert state.account.reserved == {"task-1": Amount(tokens=60_000)}
    state = session.settle_task(state, TaskSettlement(task_id="task-1", spent=Amount(tokens=first + more)))
    assert (state.account.spent.tokens, state.account.reserved, state.open_tasks) == (first + more, {}, ())


def test_a_session_that_has_given_the_rest_away_refuses() -> None:
    budget = BudgetProgress(limit=Limit(tokens=60_000), spent=Amount(tokens=20_000), reserved=Amount())
    state = session.admit_task(LIMITED, "task-1", budget.limit)
    state = session.settle_task(state, TaskSettlement(task_id="task-1", spent=budget.spent))
    state = session.admit_task(state, "task-2", Limit(tokens=70_000))
    with pytest.raises(InsufficientBudgetError):
        session.reopen_task(state, "task-1", budget)


def test_the_number_of_a_leg_that_was_cut_off_is_not_used_again() -> None:
    """Its outcome may have been committed meanwhile, by what was rewound."""
    state = make_working_state()
    cut_off = state.runs["research-1"].with_settled_usage(state.runs["research-1"].totals).finish_partial("cancelled")
    state = again(state.with_run(cut_off).end_task(TaskPhase.CANCELLED))
    assert (make_working_state().runs["research-1"].leg, state.runs["research-1"].leg) == (1, 2)


def test_a_step_that_never_began_begins_with_what_is_reserved_for_it() -> None:
    stopped = ended("research-1", "research-2").replace(
        minimum_reserve=Amount(tokens=4_000), minimum_reserves={"writing": Amount(tokens=60_000)}
    )
    state = again(stopped)
    for step_id in ("analysis", "writing"):
        begun = state.start_step(PLAN.get_step(step_id), REF, TASK_CONFIG)
        assert begun.account.reserved[step_id] == begun.runs[step_id].limit.amount, step_id
    assert state.account.reserved["writing"] != state.account.reserved["analysis"]
