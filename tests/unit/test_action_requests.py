"""Requests to call tools: asked for beside those for money, answered by the same signals, kept in the same state."""

from datetime import timedelta

import pytest
from pydantic import JsonValue

from tests.unit.action_values import AGENT, asked_for, asking_for, question
from tests.unit.answering import approve, deny
from tests.unit.task_values import NOON, after_leg, asking, standing, standing_of, working
from waystation.agents.agent_run import AgentRun, RequestApproval, RunLeg
from waystation.agents.leg import ApprovalRequired, LegOutcome, OperatorActionRequired, SubagentsRequested, TurnLimit
from waystation.context.outcome import Action, ContextEdit, EditOutcome
from waystation.kernel.amount import Amount
from waystation.tasks.details import answer_text
from waystation.tasks.state import TAKEN_BACK, TaskState, decided, opened_actions, overtaken
from waystation.tasks.task import Approval, Refusal, TaskPhase

LATER = NOON + timedelta(days=7)


def approved(state: TaskState, request_id: str) -> TaskState:
    return settled(state, approve(standing_of(state), {"request_id": request_id}, LATER))


def denied(state: TaskState, sent: JsonValue) -> TaskState:
    return settled(state, deny(standing_of(state), sent, LATER))


def settled(state: TaskState, answer: Approval | Refusal) -> TaskState:
    assert isinstance(answer, Approval)
    return decided(state.answered(answer), answer)


def run_of(state: TaskState) -> AgentRun:
    return state.runs[AGENT]


def why(answer: Approval | Refusal) -> str:
    assert isinstance(answer, Refusal)
    return answer.reason


def test_an_agent_that_asks_waits_for_a_person_and_its_task_is_paused_with_it() -> None:
    state = asking_for(question())
    assert run_of(state).next_move() == RequestApproval(questions=(question(),))
    state = working(AGENT)
    state = asking_for(question(), state=state)
    (request,) = opened_actions(state, AGENT, NOON, LATER)
    assert state.asked(request).phase is TaskPhase.PAUSED
    assert (request.request_id, request.action, request.asked) == (f"{AGENT}-1", question(), Amount())
    assert (request.answer_by, request.requested_at) == (LATER, NOON)


def test_each_call_is_a_request_under_an_id_that_a_replay_gives_again_and_none_is_asked_twice() -> None:
    state = asking_for(question(1), question(2))
    requests = opened_actions(state, AGENT, NOON, None)
    assert requests == opened_actions(state, AGENT, NOON, None)
    assert [request.request_id for request in requests] == [f"{AGENT}-1", f"{AGENT}-2"]
    state = state.asked(requests[0])
    (second,) = opened_actions(state, AGENT, NOON, None)
    assert (second.request_id, second.action) == (f"{AGENT}-2", question(2))


def test_ids_count_on_from_requests_for_money() -> None:
    state = asking(working(), AGENT)
    answer = approve(standing_of(state), {"request_id": f"{AGENT}-1"}, NOON)
    state = state.answered(answer).granted(AGENT, Amount(tokens=30_000))
    (request,) = opened_actions(asking_for(question(), state=state), AGENT, NOON, None)
    assert request.request_id == f"{AGENT}-2"


def test_the_agent_goes_on_when_the_last_of_its_calls_is_decided_on_and_knows_of_each() -> None:
    state = approved(asked_for(question(1), question(2)), f"{AGENT}-1")
    assert isinstance(run_of(state).next_move(), RequestApproval)
    state = denied(state, {"request_id": f"{AGENT}-2", "note": "not that file"})
    move = run_of(state).next_move()
    assert isinstance(move, RunLeg)
    told = [(one.digest, one.allowed, one.note) for one in move.request.decisions]
    assert told == [(question(1).digest, True, ""), (question(2).digest, False, "not that file")]
    assert state.pending == ()
    assert state.phase is TaskPhase.WORKING


def test_an_approval_of_a_call_grants_no_money() -> None:
    state = approved(asked_for(question()), f"{AGENT}-1")
    assert state.account == asked_for(question()).account
    assert state.approvals[0].granted == Amount()


def test_an_approval_of_a_call_is_no_raise_after_which_a_nearly_spent_budget_is_noted_anew() -> None:
    nearly = asking_for(question(), state=after_leg(working(), AGENT, TurnLimit(standing=standing(29_000))))
    (request,) = opened_actions(nearly, AGENT, NOON, None)
    again = after_leg(approved(nearly.asked(request), f"{AGENT}-1"), AGENT, TurnLimit(standing=standing(29_100)))
    noted = [note for note in again.notes if AGENT in note]
    assert len(noted) == 1


def test_a_denial_that_cancels_ends_the_task() -> None:
    state = denied(asked_for(question()), {"request_id": f"{AGENT}-1", "finish": "cancel"})
    assert state.cancelled
    assert denied(asked_for(question()), {"request_id": f"{AGENT}-1"}).cancelled is False


def test_a_call_that_nobody_decided_on_until_its_deadline_is_refused_and_the_agent_goes_on() -> None:
    state = asked_for(question(), deadline=LATER)
    closed = state.pending[0].replace(decision="expired", answered_at=LATER)
    run = run_of(decided(state.answered(closed), closed))
    assert run.phase == "running"
    assert [(one.allowed, one.expired) for one in run.decisions] == [(False, True)]


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (TurnLimit(standing=standing(600)), 0),
        (OperatorActionRequired(standing=standing(600), reason="no money left"), 1),
        (SubagentsRequested(standing=standing(600), orders=()), 1),
        (ApprovalRequired(standing=standing(600), questions=(question(2),)), 1),
    ],
)
def test_decisions_are_kept_as_long_as_their_calls_may_be_open(outcome: LegOutcome, kept: int) -> None:
    state = approved(asked_for(question()), f"{AGENT}-1")
    assert len(run_of(after_leg(state, AGENT, outcome)).decisions) == kept


def edited(state: TaskState, action: Action) -> TaskState:
    edit = ContextEdit(id="edit-1", agent=AGENT, action=action, message="m2", asked_at=NOON)
    return state.with_run(run_of(state).with_edit(edit).after_edit(edit, EditOutcome(state="done")))


def test_a_conversation_that_is_taken_back_takes_its_requests_with_it() -> None:
    state = edited(asked_for(question(1), question(2)), "rewind")
    assert isinstance(run_of(state).next_move(), RunLeg)
    closed = overtaken(state, AGENT, LATER)
    assert [(one.decision, one.note, one.answered_at) for one in closed] == [("expired", TAKEN_BACK, LATER)] * 2
    assert answer_text(closed[0], over=False) == (
        f"{AGENT} asked to call fs__write_file; not answered, since its conversation was taken back"
    )


def test_other_edits_leave_an_agent_waiting() -> None:
    state = edited(asked_for(question()), "pin")
    assert isinstance(run_of(state).next_move(), RequestApproval)
    assert overtaken(state, AGENT, LATER) == ()


def test_a_run_that_works_again_after_its_task_has_ended_waits_for_nothing() -> None:
    run = run_of(asked_for(question())).reopen_run(run_of(working()).share)
    assert (run.questions, run.decisions, run.phase) == ((), (), "running")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (
            {"request_id": f"{AGENT}-1", "tokens": 5_000},
            f"{AGENT}-1 asks for no money but to call fs__write_file: approve it without an amount",
        ),
        (
            {"request_id": f"{AGENT}-1", "usd": 0.5},
            f"{AGENT}-1 asks for no money but to call fs__write_file: approve it without an amount",
        ),
        ({}, f"{AGENT}-1 asks to call fs__write_file: look at it, and name it by request_id"),
        (
            {"request_id": f"{AGENT}-1", "action": "fs__delete"},
            f"{AGENT}-1 asks to call fs__write_file, not the tool that `action` names",
        ),
    ],
)
def test_an_approval_that_does_not_mean_this_call_is_refused(sent: JsonValue, reason: str) -> None:
    assert why(approve(standing_of(asked_for(question())), sent, NOON)) == reason


def test_an_approval_that_names_the_tool_is_taken() -> None:
    sent: JsonValue = {"request_id": f"{AGENT}-1", "action": "fs__write_file", "by": "Ada"}
    answer = approve(standing_of(asked_for(question())), sent, NOON)
    assert isinstance(answer, Approval)
    assert (answer.decision, answer.by, answer.granted) == ("approved", "Ada", Amount())
    assert answer_text(answer, over=False) == f"{AGENT} asked to call fs__write_file; approved by Ada (a name as given)"


def test_an_approval_of_a_call_is_no_answer_to_a_request_for_money() -> None:
    sent: JsonValue = {"request_id": f"{AGENT}-1", "action": "fs__write_file"}
    assert why(approve(standing_of(asking(working(), AGENT)), sent, NOON)) == (
        f"{AGENT}-1 asks for money, not to call a tool: approve it without `action`"
    )


def test_a_denial_of_the_one_open_request_needs_no_id() -> None:
    state = denied(asked_for(question()), {})
    assert [one.allowed for one in run_of(state).decisions] == [False]
