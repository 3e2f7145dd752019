"""Warnings that a budget is nearly spent: from 80 % on, once, and once more after a person has raised it."""

import pytest

from tests.unit.answering import approve
from tests.unit.task_values import (
    NOON,
    PLAN,
    REF,
    TERMS,
    after_leg,
    asking,
    finished,
    planned,
    spent,
    standing,
    working,
)
from waystation.agents.decisions import TopUpPolicy
from waystation.agents.leg import LegOutcome, TurnLimit
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.approvals import Circumstances, authorised
from waystation.tasks.reallocation import from_task
from waystation.tasks.session import SessionAnswer
from waystation.tasks.state import TaskState

FIRST = "research-1 has spent 98 % of its budget: 29,500 of 30,000 tokens."


def warnings(state: TaskState) -> list[str]:
    return [note for note in state.notes if "of its budget" in note]


def used(tokens: int) -> LegOutcome:
    return TurnLimit(standing=standing(tokens))


def granted(state: TaskState, tokens: int) -> TaskState:
    held = Circumstances(approvals=state.approvals, limit=state.account.limit)
    answer = approve(held, {"request_id": state.pending[0].request_id, "tokens": tokens, "by": "Ada"}, NOON)
    return state.answered(answer).granted("research-1", Amount(tokens=tokens))


@pytest.mark.parametrize(("tokens", "noted"), [(23_999, 0), (24_000, 1)])
def test_an_agent_is_warned_of_from_four_fifths_of_its_budget_on(tokens: int, noted: int) -> None:
    assert len(warnings(after_leg(working(), "research-1", used(tokens)))) == noted


def test_a_level_is_warned_of_once_however_often_it_is_looked_at_and_carried_on() -> None:
    state = after_leg(working(), "research-1", used(29_500))
    assert warnings(state) == [FIRST]
    carried = TaskState.model_validate_json(state.model_dump_json())
    assert warnings(spent(carried, "research-1", tokens=29_900)) == [FIRST]


def test_after_a_raise_by_a_person_it_is_warned_of_once_more_with_the_new_limit() -> None:
    state = granted(asking(working(), "research-1"), 30_000)
    assert warnings(state) == [FIRST]
    state = after_leg(after_leg(state, "research-1", used(50_000)), "research-1", used(59_000))
    assert warnings(state) == [FIRST, "research-1 has spent 83 % of its budget: 50,000 of 60,000 tokens."]


def test_what_an_agent_draws_from_its_task_or_was_authorised_in_advance_makes_no_second_warning() -> None:
    state, drawn = from_task(spent(working(), "research-1"), "research-1")
    assert not drawn.nothing
    state = spent(state.with_run(state.runs["research-1"].after_grant(drawn)), "research-1", tokens=44_000)
    request = state.request_for("research-1", NOON)
    answer = authorised(Circumstances(approvals=()), request, TopUpPolicy(amount=Amount(tokens=5_000), times=9), NOON)
    assert answer is not None
    state = state.asked(answer).granted("research-1", answer.granted)
    assert warnings(after_leg(state, "research-1", used(48_000))) == [FIRST]


def test_an_agent_that_has_handed_in_needs_no_warning() -> None:
    assert warnings(finished(working(), "research-1", tokens=29_900)) == []


def test_the_task_is_warned_of_beside_its_agents() -> None:
    state = planned(budget=100_000)
    for step in ("research-1", "research-2", "analysis"):
        state = finished(state.started(PLAN.step(step), REF, TERMS), step, tokens=24_000)
    assert warnings(state) == []
    state = after_leg(state.started(PLAN.step("writing"), REF, TERMS), "writing", used(8_000))
    assert warnings(state) == ["The task has spent 82 % of its budget: 82,000 of 100,000 tokens."]


def test_a_budget_in_dollars_is_warned_of_in_dollars() -> None:
    state = working()
    run = state.runs["research-1"].replace(limit=Limit(micro_usd=8))
    assert warnings(after_leg(state.with_run(run), "research-1", used(100))) == [
        "research-1 has spent 87 % of its budget: $0.000007 of $0.000008."
    ]


@pytest.mark.parametrize(("used_up", "noted"), [(799_999, 0), (800_000, 1)])
def test_the_session_is_warned_of_when_it_answers(used_up: int, noted: int) -> None:
    answer = SessionAnswer(ask_id="a", amount=Amount(), used=Amount(tokens=used_up), limit=Limit(tokens=1_000_000))
    state = working().session_answered(answer)
    assert len(warnings(state)) == noted
    if noted:
        assert warnings(state.session_answered(answer.replace(ask_id="b"))) == [
            "The session has spent or reserved 80 % of its budget: 800,000 of 1,000,000 tokens."
        ]
    assert warnings(working().session_answered(SessionAnswer(ask_id="a", amount=Amount(tokens=1)))) == []
