"""Requests to call tools: asked for beside those for money, answered by the same signals, kept in the same state."""

from datetime import timedelta

import pytest
from pydantic import JsonValue

from tests.support.approval_answers import apply_approval, apply_denial
from tests.support.task_states import (
    NOON,
    apply_leg_outcome,
    make_approval_context,
    make_leg_state,
    make_working_state,
    request_budgets,
)
from tests.support.tool_approval_states import AGENT, end_leg_with_questions, make_action_question, open_tool_approvals
from waystation.agents.agent_run import AgentRun, RequestApproval, RunLeg
from waystation.agents.compaction_request import EditOutcome
from waystation.agents.leg import (
    ApprovalRequired,
    LegOutcome,
    OperatorActionRequired,
    SubagentsRequested,
    TurnLimitReached,
)
from waystation.context.compaction import ContextEdit, ContextEditAction
from waystation.kernel.amount import Amount
from waystation.tasks.details import format_request_and_answer
from waystation.tasks.state import (
    TAKEN_BACK_NOTE,
    TaskState,
    apply_action_decision,
    build_action_requests,
    expire_obsolete_requests,
)
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskPhase
from waystation.tasks.view import ApprovalView

LATER = NOON + timedelta(days=7)


def approved(state: TaskState, request_id: str) -> TaskState:
    return settled(state, apply_approval(make_approval_context(state), {"request_id": request_id}, LATER))


def denied(state: TaskState, sent: JsonValue) -> TaskState:
    return settled(state, apply_denial(make_approval_context(state), sent, LATER))


def settled(state: TaskState, answer: ApprovalRequest | RejectedMessage) -> TaskState:
    assert isinstance(answer, ApprovalRequest)
    return apply_action_decision(state.after_answer(answer), answer)


def run_of(state: TaskState) -> AgentRun:
    return state.runs[AGENT]


def why(answer: ApprovalRequest | RejectedMessage) -> str:
    assert isinstance(answer, RejectedMessage)
    return answer.reason


def test_an_agent_that_asks_waits_for_a_person_and_its_task_is_paused_with_it() -> None:
    state = end_leg_with_questions(make_action_question())
    assert run_of(state).get_next_action() == RequestApproval(questions=(make_action_question(),))
    state = make_working_state(AGENT)
    state = end_leg_with_questions(make_action_question(), state=state)
    (request,) = build_action_requests(state, AGENT, NOON, LATER)
    assert state.with_approval_request(request).phase is TaskPhase.PAUSED
    assert (request.request_id, request.action, request.requested) == (f"{AGENT}-1", make_action_question(), Amount())
    assert (request.answer_by, request.requested_at) == (LATER, NOON)


def test_each_call_is_a_request_under_an_id_that_a_replay_gives_again_and_none_is_asked_twice() -> None:
    state = end_leg_with_questions(make_action_question(1), make_action_question(2))
    requests = build_action_requests(state, AGENT, NOON, None)
    assert requests == build_action_requests(state, AGENT, NOON, None)
    assert [request.request_id for request in requests] == [f"{AGENT}-1", f"{AGENT}-2"]
    state = state.with_approval_request(requests[0])
    (second,) = build_action_requests(state, AGENT, NOON, None)
    assert (second.request_id, second.action) == (f"{AGENT}-2", make_action_question(2))


def test_ids_count_on_from_requests_for_money() -> None:
    state = request_budgets(make_working_state(), AGENT)
    answer = apply_approval(make_approval_context(state), {"request_id": f"{AGENT}-1"}, NOON)
    state = state.after_answer(answer).after_grant(AGENT, Amount(tokens=30_000))
    (request,) = build_action_requests(end_leg_with_questions(make_action_question(), state=state), AGENT, NOON, None)
    assert request.request_id == f"{AGENT}-2"


def test_the_agent_goes_on_when_the_last_of_its_calls_is_decided_on_and_knows_of_each() -> None:
    state = approved(open_tool_approvals(make_action_question(1), make_action_question(2)), f"{AGENT}-1")
    assert isinstance(run_of(state).get_next_action(), RequestApproval)
    state = denied(state, {"request_id": f"{AGENT}-2", "note": "not that file"})
    move = run_of(state).get_next_action()
    assert isinstance(move, RunLeg)
    told = [(one.digest, one.allowed, one.note) for one in move.request.decisions]
    assert told == [
        (make_action_question(1).digest, True, ""),
        (make_action_question(2).digest, False, "not that file"),
    ]
    assert state.pending_approvals == ()
    assert state.phase is TaskPhase.WORKING


def test_an_approval_of_a_call_grants_no_money() -> None:
    state = approved(open_tool_approvals(make_action_question()), f"{AGENT}-1")
    assert state.account == open_tool_approvals(make_action_question()).account
    assert state.approvals[0].granted == Amount()


def test_an_approval_of_a_call_is_no_raise_after_which_a_nearly_spent_budget_is_noted_anew() -> None:
    nearly = end_leg_with_questions(
        make_action_question(),
        state=apply_leg_outcome(make_working_state(), AGENT, TurnLimitReached(state=make_leg_state(29_000))),
    )
    (request,) = build_action_requests(nearly, AGENT, NOON, None)
    again = apply_leg_outcome(
        approved(nearly.with_approval_request(request), f"{AGENT}-1"),
        AGENT,
        TurnLimitReached(state=make_leg_state(29_100)),
    )
    assert "29,000" in again.noted_warnings[AGENT].text


def test_a_denial_that_cancels_ends_the_task() -> None:
    state = denied(open_tool_approvals(make_action_question()), {"request_id": f"{AGENT}-1", "finish": "cancel"})
    assert state.cancelled
    assert denied(open_tool_approvals(make_action_question()), {"request_id": f"{AGENT}-1"}).cancelled is False


def test_a_call_that_nobody_decided_on_until_its_deadline_is_refused_and_the_agent_goes_on() -> None:
    state = open_tool_approvals(make_action_question(), deadline=LATER)
    closed = state.pending_approvals[0].replace(decision="expired", answered_at=LATER)
    run = run_of(apply_action_decision(state.after_answer(closed), closed))
    assert run.phase == "running"
    assert [(one.allowed, one.expired) for one in run.decisions] == [(False, True)]


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (TurnLimitReached(state=make_leg_state(600)), 0),
        (OperatorActionRequired(state=make_leg_state(600), reason="no money left"), 1),
        (SubagentsRequested(state=make_leg_state(600), orders=()), 1),
        (ApprovalRequired(state=make_leg_state(600), questions=(make_action_question(2),)), 1),
    ],
)
def test_decisions_are_kept_as_long_as_their_calls_may_be_open(outcome: LegOutcome, kept: int) -> None:
    state = approved(open_tool_approvals(make_action_question()), f"{AGENT}-1")
    assert len(run_of(apply_leg_outcome(state, AGENT, outcome)).decisions) == kept


def edited(state: TaskState, action: ContextEditAction) -> TaskState:
    edit = ContextEdit(id="edit-1", agent=AGENT, action=action, message="m2", requested_at=NOON)
    return state.with_run(run_of(state).with_edit(edit).after_edit(edit, EditOutcome(state="done")))


def test_a_conversation_that_is_taken_back_takes_its_requests_with_it() -> None:
    state = edited(open_tool_approvals(make_action_question(1), make_action_question(2)), "rewind")
    assert isinstance(run_of(state).get_next_action(), RunLeg)
    closed = expire_obsolete_requests(state, AGENT, LATER)
    assert [(one.decision, one.note, one.answered_at) for one in closed] == [("expired", TAKEN_BACK_NOTE, LATER)] * 2
    assert format_request_and_answer(ApprovalView.from_request(closed[0]), over=False) == (
        f"{AGENT} asked to call fs__write_file; not answered, because its conversation was rewound"
    )


def test_other_edits_leave_an_agent_waiting() -> None:
    state = edited(open_tool_approvals(make_action_question()), "pin")
    assert isinstance(run_of(state).get_next_action(), RequestApproval)
    assert expire_obsolete_requests(state, AGENT, LATER) == ()


def test_a_run_that_works_again_after_its_task_has_ended_waits_for_nothing() -> None:
    run = run_of(open_tool_approvals(make_action_question())).reopen_run(run_of(make_working_state()).initial_limit)
    assert (run.questions, run.decisions, run.phase) == ((), (), "running")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (
            {"request_id": f"{AGENT}-1", "tokens": 5_000},
            f"the request {AGENT}-1 asks to call fs__write_file, not for budget: approve it without an amount",
        ),
        (
            {"request_id": f"{AGENT}-1", "usd": 0.5},
            f"the request {AGENT}-1 asks to call fs__write_file, not for budget: approve it without an amount",
        ),
        ({}, f"the request {AGENT}-1 asks to call fs__write_file: look at the call, then answer with this request_id"),
        (
            {"request_id": f"{AGENT}-1", "action": "fs__delete"},
            f"the request {AGENT}-1 asks to call fs__write_file, not the tool that `action` names",
        ),
    ],
)
def test_an_approval_that_does_not_mean_this_call_is_refused(sent: JsonValue, reason: str) -> None:
    assert why(apply_approval(make_approval_context(open_tool_approvals(make_action_question())), sent, NOON)) == reason


def test_an_approval_that_names_the_tool_is_taken() -> None:
    sent: JsonValue = {"request_id": f"{AGENT}-1", "action": "fs__write_file", "by": "Ada"}
    answer = apply_approval(make_approval_context(open_tool_approvals(make_action_question())), sent, NOON)
    assert isinstance(answer, ApprovalRequest)
    assert (answer.decision, answer.by, answer.granted) == ("approved", "Ada", Amount())
    assert (
        format_request_and_answer(ApprovalView.from_request(answer), over=False)
        == f"{AGENT} asked to call fs__write_file; approved by Ada (name not verified)"
    )


def test_an_approval_of_a_call_is_no_answer_to_a_request_for_money() -> None:
    sent: JsonValue = {"request_id": f"{AGENT}-1", "action": "fs__write_file"}
    assert why(apply_approval(make_approval_context(request_budgets(make_working_state(), AGENT)), sent, NOON)) == (
        f"the request {AGENT}-1 asks for budget, not to call a tool: approve it without `action`"
    )


def test_a_denial_of_the_one_open_request_needs_no_id() -> None:
    state = denied(open_tool_approvals(make_action_question()), {})
    assert [one.allowed for one in run_of(state).decisions] == [False]
