"""Requests that end without a person: at their deadline, in advance, or because their task is over already."""

from datetime import datetime, timedelta

import pytest

from tests.support.approval_answers import apply_approval, apply_denial
from tests.support.task_states import NOON, make_approval_context, make_working_state, request_budgets
from waystation.agents.action_approvals import AUTHORISED_IN_ADVANCE, TopUpPolicy, UnattendedPolicy
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.approvals import ApprovalContext, grant_in_advance
from waystation.tasks.state import TaskState
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskPhase

LATER = NOON + timedelta(days=7)


def expired(state: TaskState, request_id: str) -> TaskState:
    (request,) = [asked for asked in state.pending_approvals if asked.request_id == request_id]
    return state.after_expiry(request, LATER)


def test_at_its_deadline_a_request_is_expired_and_its_agent_delivers_what_it_has() -> None:
    state = expired(request_budgets(make_working_state(), "research-1", "research-2"), "research-1-1")
    first, second = state.approvals
    run = state.runs["research-1"]
    assert (first.decision, first.answered_at, first.granted) == ("expired", LATER, Amount())
    assert second.decision == "pending"
    assert (run.phase, run.partial) == ("delivered", True)
    assert run.reason == "its budget request was not answered by its deadline"
    assert "research-1" not in state.account.reserved
    assert state.account.spent.tokens == 2_000 + 29_500
    assert state.phase is TaskPhase.PAUSED


def test_an_expired_request_takes_no_answer_any_more() -> None:
    state = expired(request_budgets(make_working_state(), "research-1"), "research-1-1")
    for answer in (apply_approval, apply_denial):
        refusal = answer(make_approval_context(state), {"request_id": "research-1-1"}, LATER)
        assert isinstance(refusal, RejectedMessage)
        assert refusal.reason == "the request research-1-1 has already expired"


@pytest.mark.parametrize(
    ("within", "by", "deadline"),
    [
        (None, None, None),
        (timedelta(hours=2), None, NOON + timedelta(hours=2)),
        (None, LATER, LATER),
        (timedelta(hours=2), LATER, NOON + timedelta(hours=2)),
        (timedelta(days=8), LATER, LATER),
    ],
)
def test_the_earlier_of_two_deadlines_is_that_of_the_request(
    within: timedelta | None, by: datetime | None, deadline: datetime | None
) -> None:
    assert UnattendedPolicy(answer_within=within, answer_by=by).compute_deadline(NOON) == deadline


def test_raises_that_people_granted_do_not_use_up_those_that_were_authorised_in_advance() -> None:
    request = ApprovalRequest(request_id="r1-3", agent="r1", requested=Amount(tokens=900), needed=Amount(tokens=900))
    granted = request.replace(request_id="r1-1", decision="approved", by="Ada")
    ahead = TopUpPolicy(amount=Amount(tokens=900), times=1)
    by_ada = ApprovalContext(approvals=(granted,), limit=Limit(tokens=10_000))
    answered = grant_in_advance(by_ada, request, ahead, NOON)
    assert answered is not None
    assert (answered.by, answered.note) == (AUTHORISED_IN_ADVANCE, "1 of 1")
    used = by_ada.replace(approvals=(granted, answered))
    assert grant_in_advance(used, request, ahead, NOON) is None


@pytest.mark.parametrize("finish", ["partial", "cancel"])
def test_a_denial_never_brings_a_cancelled_task_back(finish: str) -> None:
    state = request_budgets(make_working_state(), "research-1")
    denied = apply_denial(make_approval_context(state), {"finish": finish}, NOON)
    cancelled = state.replace(cancelled=True).after_answer(denied).after_denial("research-1")
    assert (cancelled.cancelled, cancelled.final_phase) == (True, TaskPhase.CANCELLED)
