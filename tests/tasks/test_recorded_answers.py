"""Which of the answers that the server recorded settled a request, and how the inbox is sorted."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.support.progress_values import APPROVED_APPROVAL, DENIED_APPROVAL, NOON, PENDING_APPROVAL
from waystation.tasks.approvals import (
    APPROVE_BUDGET,
    DENY_BUDGET,
    AnswerOrigin,
    RecordedAnswerFields,
    SentAnswer,
    find_answer_origin,
)
from waystation.tasks.task import ApprovalRequest, RejectedMessage
from waystation.tasks.view import ApprovalView, PendingApproval, list_open_requests

MINUTE = timedelta(minutes=1)
GRANTED = APPROVED_APPROVAL.replace(requested_at=NOON, answered_at=NOON + 5 * MINUTE, answer_id="a1")
SENT = SentAnswer(
    signal=APPROVE_BUDGET,
    at=NOON + 4 * MINUTE,
    identity="ada@laptop (waystation)",
    fields=RecordedAnswerFields(request_id="research-1-1", answer_id="a1", by="Ada"),
)


def test_the_answer_that_settled_a_request_tells_where_it_came_from() -> None:
    origin = find_answer_origin(GRANTED, (SENT,))
    assert origin is not None
    assert origin.text == "sent from ada@laptop (waystation)"


def test_a_principal_that_the_server_vouches_for_is_told_apart_from_what_is_claimed() -> None:
    origin = find_answer_origin(GRANTED, (SENT.replace(principal="jwt:ada@example.com"),))
    assert origin is not None
    assert origin.text == "sent from ada@laptop (waystation); authenticated by the server as jwt:ada@example.com"


def test_answers_to_others_of_others_too_early_too_late_or_of_another_kind_did_not_settle_it() -> None:
    others = (
        SENT.replace(fields=SENT.fields.replace(request_id="research-2-1")),
        SENT.replace(fields=SENT.fields.replace(answer_id="a2")),
        SENT.replace(fields=SENT.fields.replace(by="Eve")),
        SENT.replace(signal=DENY_BUDGET),
        SENT.replace(at=NOON - MINUTE),
        SENT.replace(at=NOON + 6 * MINUTE),
    )
    assert [find_answer_origin(GRANTED, (other,)) for other in others] == [None] * len(others)
    assert find_answer_origin(PENDING_APPROVAL, (SENT,)) is None
    denied = DENIED_APPROVAL.replace(requested_at=NOON, answered_at=NOON + 5 * MINUTE)
    by_hand = SentAnswer(signal=DENY_BUDGET, at=NOON + MINUTE, identity="ui", fields=RecordedAnswerFields(by="Ada"))
    assert find_answer_origin(denied, (by_hand,)) == AnswerOrigin(identities=("ui",))


def test_where_two_signals_could_have_settled_it_both_are_told() -> None:
    by_hand = GRANTED.replace(answer_id="")
    first = SENT.replace(fields=SENT.fields.replace(answer_id="", request_id=None))
    second = SENT.replace(fields=SENT.fields.replace(answer_id="")).replace(identity="7@server")
    origin = find_answer_origin(by_hand, (first, second))
    assert origin is not None
    assert origin.text == "sent from ada@laptop (waystation) or 7@server (it is not known which)"


def test_an_identity_is_cut_where_somebody_made_it_a_novel() -> None:
    origin = find_answer_origin(GRANTED, (SENT.replace(identity="x" * 5_000),))
    assert origin is not None
    assert len(origin.text) < 250
    assert find_answer_origin(GRANTED, (SENT.replace(identity=""),)) == AnswerOrigin(identities=("an unnamed program",))


def waiting(asked: int, deadline: int | None) -> PendingApproval:
    return PendingApproval(
        task_id="t",
        title="",
        approval=ApprovalView.from_request(
            PENDING_APPROVAL.replace(
                requested_at=NOON + asked * MINUTE, answer_by=NOON + deadline * MINUTE if deadline else None
            )
        ),
    )


def test_the_inbox_shows_the_next_deadline_first_and_then_the_oldest() -> None:
    one, two, three, four = waiting(5, 60), waiting(0, 90), waiting(1, None), waiting(2, None)
    assert sorted([four, two, three, one], key=lambda request: request.urgency) == [one, two, three, four]
    unknown = PendingApproval(
        task_id="t",
        title="",
        approval=ApprovalView.from_request(
            ApprovalRequest(request_id="r", agent="a", requested=PENDING_APPROVAL.requested)
        ),
    )
    assert sorted([three, unknown], key=lambda request: request.urgency) == [unknown, three]


@given(
    st.lists(
        st.sampled_from(
            [PENDING_APPROVAL, APPROVED_APPROVAL, DENIED_APPROVAL, RejectedMessage(signal="s", reason="r", at=NOON)]
        )
    )
)
def test_an_audit_trail_tells_what_is_still_open(trail: list[ApprovalRequest | RejectedMessage]) -> None:
    asked = [entry.replace(decision="pending") for entry in trail if isinstance(entry, ApprovalRequest)]
    assert {one.request_id for one in list_open_requests([*asked, *trail])} == {PENDING_APPROVAL.request_id} & {
        one.request_id for one in asked
    }
