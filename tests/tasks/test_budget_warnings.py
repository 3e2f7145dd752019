"""Warnings that a budget is nearly spent: from 80 % on, once, and once more after a person has raised it."""

import pytest

from tests.support.approval_answers import apply_approval
from tests.support.task_states import (
    NOON,
    PLAN,
    REF,
    TASK_CONFIG,
    apply_leg_outcome,
    exhaust_budget,
    finish_agent,
    make_leg_state,
    make_planned_state,
    make_working_state,
    request_budgets,
)
from waystation.agents.action_approvals import TopUpPolicy
from waystation.agents.leg import LegOutcome, TurnLimitReached
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.approvals import ApprovalContext, grant_in_advance
from waystation.tasks.progress import build_task_progress
from waystation.tasks.reallocation import draw_from_task
from waystation.tasks.session import SessionBudgetAnswer
from waystation.tasks.state import TaskState
from waystation.tasks.task import TaskPhase

FIRST = "research-1 has spent 98 % of its budget: 29,500 of 30,000 tokens."


def warnings(state: TaskState) -> list[str]:
    return [note for note in build_task_progress(state, REF, TASK_CONFIG, "Why?").notes if "of its budget" in note]


def used(tokens: int) -> LegOutcome:
    return TurnLimitReached(state=make_leg_state(tokens))


def granted(state: TaskState, tokens: int) -> TaskState:
    held = ApprovalContext(approvals=state.approvals, limit=state.account.limit)
    answer = apply_approval(
        held, {"request_id": state.pending_approvals[0].request_id, "tokens": tokens, "by": "Ada"}, NOON
    )
    return state.after_answer(answer).after_grant("research-1", Amount(tokens=tokens))


@pytest.mark.parametrize(("tokens", "noted"), [(23_999, 0), (24_000, 1)])
def test_an_agent_is_warned_of_from_four_fifths_of_its_budget_on(tokens: int, noted: int) -> None:
    assert len(warnings(apply_leg_outcome(make_working_state(), "research-1", used(tokens)))) == noted


def test_a_level_is_warned_of_once_however_often_it_is_looked_at_and_carried_on() -> None:
    state = apply_leg_outcome(make_working_state(), "research-1", used(29_500))
    assert warnings(state) == [FIRST]
    carried = TaskState.model_validate_json(state.model_dump_json())
    assert warnings(exhaust_budget(carried, "research-1", tokens=29_900)) == [FIRST]


def test_after_a_raise_by_a_person_it_is_warned_of_once_more_with_the_new_limit() -> None:
    state = granted(request_budgets(make_working_state(), "research-1"), 30_000)
    assert warnings(state) == []
    state = apply_leg_outcome(apply_leg_outcome(state, "research-1", used(50_000)), "research-1", used(59_000))
    assert warnings(state) == ["research-1 has spent 83 % of its budget: 50,000 of 60,000 tokens."]


def test_what_an_agent_draws_from_its_task_or_was_authorised_in_advance_makes_no_second_warning() -> None:
    state, drawn = draw_from_task(exhaust_budget(make_working_state(), "research-1"), "research-1")
    assert not drawn.is_zero
    state = exhaust_budget(state.with_run(state.runs["research-1"].after_grant(drawn)), "research-1", tokens=44_000)
    request = state.build_budget_request("research-1", NOON)
    answer = grant_in_advance(
        ApprovalContext(approvals=()), request, TopUpPolicy(amount=Amount(tokens=5_000), times=9), NOON
    )
    assert answer is not None
    state = state.with_approval_request(answer).after_grant("research-1", answer.granted)
    assert warnings(apply_leg_outcome(state, "research-1", used(48_000))) == []


def test_a_warning_goes_when_its_agent_or_its_task_has_ended() -> None:
    state = apply_leg_outcome(make_working_state(), "research-1", used(29_500))
    assert warnings(state) == [FIRST]
    assert warnings(finish_agent(state, "research-1", tokens=29_900)) == []
    assert warnings(state.end_task(TaskPhase.CANCELLED)) == []


def test_an_agent_that_has_handed_in_needs_no_warning() -> None:
    assert warnings(finish_agent(make_working_state(), "research-1", tokens=29_900)) == []


def test_the_task_is_warned_of_beside_its_agents() -> None:
    state = make_planned_state(budget=100_000)
    for step in ("research-1", "research-2", "analysis"):
        state = finish_agent(state.start_step(PLAN.get_step(step), REF, TASK_CONFIG), step, tokens=24_000)
    assert warnings(state) == []
    state = apply_leg_outcome(state.start_step(PLAN.get_step("writing"), REF, TASK_CONFIG), "writing", used(8_000))
    assert warnings(state) == ["The task has spent 82 % of its budget: 82,000 of 100,000 tokens."]


def test_a_budget_in_dollars_is_warned_of_in_dollars() -> None:
    state = make_working_state()
    run = state.runs["research-1"].replace(limit=Limit(micro_usd=8))
    assert warnings(apply_leg_outcome(state.with_run(run), "research-1", used(100))) == [
        "research-1 has spent 87 % of its budget: $0.000007 of $0.000008."
    ]


@pytest.mark.parametrize(("used_up", "noted"), [(799_999, 0), (800_000, 1)])
def test_the_session_is_warned_of_when_it_answers(used_up: int, noted: int) -> None:
    answer = SessionBudgetAnswer(
        request_id="a", amount=Amount(), used=Amount(tokens=used_up), limit=Limit(tokens=1_000_000)
    )
    state = make_working_state().after_session_answer(answer)
    assert len(warnings(state)) == noted
    if noted:
        assert warnings(state.after_session_answer(answer.replace(request_id="b"))) == [
            "The session has spent or reserved 80 % of its budget: 800,000 of 1,000,000 tokens."
        ]
    assert (
        warnings(
            make_working_state().after_session_answer(SessionBudgetAnswer(request_id="a", amount=Amount(tokens=1)))
        )
        == []
    )
