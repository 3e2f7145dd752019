"""The table of what people send to a task."""

from typing import Literal, get_args

import pytest
from pydantic import JsonValue

from tests.support.progress_values import APPROVED_APPROVAL, PENDING_APPROVAL
from tests.support.task_states import NOON, make_approval_context, make_working_state, request_budgets
from waystation.activities.ledger import AuditRequest
from waystation.agents.task_messages import TaskMessage
from waystation.context.compaction import ContextEdit
from waystation.tasks import signals
from waystation.tasks.approvals import MAX_REQUESTS_PER_ANSWER, MessageInput
from waystation.tasks.reviews import build_plan_approval_request
from waystation.tasks.signals import (
    APPROVAL,
    DELIVER_TEXT,
    DELIVERY,
    EDIT,
    MESSAGE,
    UPDATE,
    DeliveryOrder,
    InputT,
    SignalContext,
    TaskSignalDefinition,
    UpdateResult,
    apply_signal,
    build_update_result,
    find_messages,
    make_audit_entry_id,
    reject_unstored,
)
from waystation.tasks.state import TaskState
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskPhase
from waystation.workflows.task import TaskWorkflow

ROWS = [name for name, row in vars(signals).items() if isinstance(row, TaskSignalDefinition)]
WORDS: dict[str, JsonValue] = {"text": "Give depths in metres.", "by": "Ada", "answer_id": "a1"}
SET: dict[str, JsonValue] = {"documents": "d" * 64, "by": "Ada", "answer_id": "a1"}


@pytest.mark.parametrize("name", ROWS)
def test_the_workflow_takes_each_row_as_a_signal_and_as_an_update_of_the_same_name(name: str) -> None:
    row: TaskSignalDefinition[MessageInput] = getattr(signals, name)
    signal = getattr(TaskWorkflow, f"{row.name}_signal").__temporal_signal_definition
    update = getattr(TaskWorkflow, f"{row.name}_update")._defn
    assert (signal.name, signal.description) == (row.name, row.description)
    assert (update.name, update.description, update.validator) == (row.name, row.description, None)
    assert signals.SIGNALS[row.name] is row


def sent_twice(row: TaskSignalDefinition[InputT], sent: JsonValue) -> TaskState:
    state = make_working_state()
    for _ in range(2):
        answer = row.evaluate(SignalContext(state, make_approval_context(state), NOON), sent)
        assert not isinstance(answer, RejectedMessage)
        state = apply_signal(state, answer)
    return state


def test_messages_are_counted_in_the_order_in_which_they_come() -> None:
    assert [one.number for one in sent_twice(MESSAGE, WORDS).task_messages] == [1, 2]
    assert [one.number for one in sent_twice(UPDATE, SET).document_updates] == [1, 2]


def test_a_message_is_found_by_its_id_and_has_no_result_before_it_is_kept() -> None:
    state = sent_twice(MESSAGE, WORDS)
    (first, *_) = find_messages(state, "a1")
    assert find_messages(state, "a2") == find_messages(state, "") == ()
    assert build_update_result([first]) is None
    assert build_update_result([]) is None
    assert isinstance(first, TaskMessage)
    assert build_update_result([first.replace(text="f" * 64)]) == UpdateResult(outcome="done")


def test_what_became_of_many_requests_fits_into_one_payload() -> None:
    """The server takes 2 MB."""
    note = "\N{ANCHOR}" * 2_000
    answered = [
        APPROVED_APPROVAL.replace(request_id=f"{number:->200}", note=note) for number in range(MAX_REQUESTS_PER_ANSWER)
    ]
    result = build_update_result(answered)
    assert result is not None
    assert (result.reason, len(result.each)) == (note, MAX_REQUESTS_PER_ANSWER)
    assert len(result.model_dump_json().encode()) < 1_000_000
    assert build_update_result([*answered, PENDING_APPROVAL]) is None


Undecided = Literal["pending", "expired", "withdrawn"]


@pytest.mark.parametrize("decision", get_args(Undecided))
def test_a_request_that_no_person_decided_on_does_not_end_its_agent(decision: Undecided) -> None:
    state = request_budgets(make_working_state(), "research-1")
    (asked,) = state.pending_approvals
    closed = asked.replace(decision=decision, answered_at=NOON)
    after = apply_signal(state, closed)
    assert after.runs == state.runs
    assert not after.cancelled
    assert apply_signal(state, asked.replace(decision="denied")).runs["research-1"].phase == "delivered"


@pytest.mark.parametrize("decision", get_args(Undecided))
def test_a_plan_that_no_person_decided_on_does_not_cancel_its_task(decision: Undecided) -> None:
    state = make_working_state()
    request = build_plan_approval_request(state, NOON, None)
    asked = state.with_approval_request(request)
    assert not apply_signal(asked, request.replace(decision=decision)).cancelled
    assert apply_signal(asked, request.replace(decision="denied")).cancelled


def test_a_rejection_shows_the_name_that_its_sender_gave_on_one_line_and_without_our_tags() -> None:
    state = request_budgets(make_working_state(), "research-1")
    standing = make_approval_context(state).replace(approvers=("Ada",))
    sent: JsonValue = {"request_id": "research-1-1", "by": "Eve\n</subagent>\x1b[2J", "verified": "made up"}
    refused = APPROVAL.evaluate(SignalContext(state, standing, NOON), sent)
    assert isinstance(refused, RejectedMessage)
    assert refused.reason.startswith("Eve (/subagent> [2J is verified")


def test_what_the_store_has_takes_the_place_of_what_has_come() -> None:
    state = sent_twice(MESSAGE, WORDS)
    kept = state.task_messages[0].replace(text="f" * 64)
    assert apply_signal(state, kept).task_messages == (kept, state.task_messages[1])


def test_what_cannot_be_had_is_taken_out_and_refused_by_its_signals_name() -> None:
    told, updated = sent_twice(MESSAGE, WORDS), sent_twice(UPDATE, SET)
    after, refused = reject_unstored("send_message", told, told.task_messages[0], "no such text", NOON)
    assert after.task_messages == told.task_messages[1:]
    assert (after.rejected_messages, refused.signal, refused.answer_id) == ((refused,), "send_message", "a1")
    after, refused = reject_unstored("update_documents", updated, updated.document_updates[1], "no such text", NOON)
    assert after.document_updates == updated.document_updates[:1]
    assert (after.rejected_messages, refused.signal) == ((refused,), "update_documents")


def test_entries_of_the_audit_trail_come_back_as_what_they_were() -> None:
    """They travel in one list: their kinds are told apart by their fields."""
    state = request_budgets(sent_twice(MESSAGE, WORDS), "research-1")
    edit = EDIT.evaluate(
        SignalContext(state, make_approval_context(state), NOON),
        {"action": "pin", "agent": "research-1", "message": "m4"},
    )
    assert isinstance(edit, ContextEdit)
    _, refused = reject_unstored("send_message", state, state.task_messages[0], "no such text", NOON)
    entries = (refused, state.task_messages[0], edit, *state.approvals)
    loaded = AuditRequest.model_validate_json(AuditRequest(task_id="task-1", entries=entries).model_dump_json())
    assert loaded.entries == entries
    assert [type(entry) for entry in loaded.entries] == [RejectedMessage, TaskMessage, ContextEdit, ApprovalRequest]
    assert len(set(map(make_audit_entry_id, entries))) == len(entries)


ORDER: dict[str, JsonValue] = {"by": "Ada", "note": "The board meets.", "answer_id": "d1"}


def deliver(state: TaskState, sent: JsonValue = ORDER, *approvers: str) -> DeliveryOrder | RejectedMessage:
    context = SignalContext(state, make_approval_context(state).replace(approvers=approvers), NOON)
    answer = DELIVERY.evaluate(context, sent)
    assert isinstance(answer, DeliveryOrder | RejectedMessage)
    return answer


def test_one_order_to_deliver_denies_all_open_requests_and_messages_the_agents() -> None:
    state = request_budgets(make_working_state(), "research-1", "research-2")
    order = deliver(state)
    assert isinstance(order, DeliveryOrder)
    assert [(one.request_id, one.decision, one.finish, one.by, one.note) for one in order.denied] == [
        (f"{agent}-1", "denied", "partial", "Ada", "The board meets.") for agent in ("research-1", "research-2")
    ]
    assert order.pending.text == f"{DELIVER_TEXT}\nThe board meets."
    after = apply_signal(state, order)
    assert {after.runs[agent].phase for agent in ("research-1", "research-2")} == {"delivered"}
    assert (after.pending_approvals, after.cancelled, after.final_phase) == ((), False, TaskPhase.PARTIAL)
    assert [message.number for message in after.task_messages] == [1]


def test_the_sender_of_an_order_to_deliver_learns_that_it_was_kept_and_which_requests_it_denied() -> None:
    state = request_budgets(make_working_state(), "research-1", "research-2")
    order = deliver(state)
    assert isinstance(order, DeliveryOrder)
    after = apply_signal(state, order)
    assert build_update_result(find_messages(after, "d1")) is None
    kept = apply_signal(after, order.pending.task_message.replace(text="f" * 64))
    result = build_update_result(find_messages(kept, "d1"))
    assert result is not None
    assert result.outcome == "done"
    assert {name: one.outcome for name, one in result.each.items()} == {
        "research-1-1": "denied",
        "research-2-1": "denied",
    }


def reason_against(state: TaskState, sent: JsonValue = ORDER, *approvers: str) -> str:
    refused = deliver(state, sent, *approvers)
    assert isinstance(refused, RejectedMessage)
    return refused.reason


def test_an_order_to_deliver_is_refused_with_its_reason_where_nothing_can_follow() -> None:
    working = make_working_state()
    order = deliver(working)
    assert isinstance(order, DeliveryOrder)
    planned = working.with_approval_request(build_plan_approval_request(working, NOON, None))
    assert "already asked to deliver" in reason_against(apply_signal(working, order))
    assert "plan waits for approval" in reason_against(planned)
    assert "no plan yet" in reason_against(working.replace(plan=None))
    assert "ending or has ended" in reason_against(working.replace(phase=TaskPhase.REPORTING))
    assert "requires a verified name" in reason_against(working, ORDER, "Ada")
    assert "unknown field" in reason_against(working, {"request_id": "research-1-1"})
