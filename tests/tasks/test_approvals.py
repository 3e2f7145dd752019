from datetime import UTC, datetime

import pytest
from inline_snapshot import snapshot
from pydantic import JsonValue

from tests.support.approval_answers import apply_approval, apply_denial
from tests.support.task_states import make_working_state
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.approvals import (
    MAX_GRANT_TOKENS,
    AnswerBatch,
    ApprovalContext,
    ApproveInput,
    DenyInput,
    ReviewPlanInput,
    answer_each_request,
    build_plan_edit,
)
from waystation.tasks.approvals import approve as approved
from waystation.tasks.approvals import deny as denied
from waystation.tasks.signals import apply_signal, make_audit_entry_id
from waystation.tasks.task import ApprovalRequest, RejectedMessage

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ONE = ApprovalRequest(request_id="research-1-1", agent="research-1", requested=Amount(tokens=20_000), requested_at=NOON)
TWO = ApprovalRequest(request_id="research-2-1", agent="research-2", requested=Amount(tokens=30_000), requested_at=NOON)


def among(*approvals: ApprovalRequest, ending: bool = False) -> ApprovalContext:
    return ApprovalContext(approvals=approvals, limit=Limit(tokens=100_000), ending=ending)


def answered(answer: ApprovalRequest | RejectedMessage) -> ApprovalRequest:
    assert isinstance(answer, ApprovalRequest), answer
    return answer


def reason(answer: ApprovalRequest | RejectedMessage) -> str:
    assert isinstance(answer, RejectedMessage), answer
    assert answer.at == NOON
    return answer.reason


def test_an_approval_grants_what_was_asked_for_unless_it_names_an_amount() -> None:
    whole = answered(apply_approval(among(ONE), {"request_id": "research-1-1", "by": "Ada", "note": "go on"}, NOON))
    assert (whole.decision, whole.granted, whole.by, whole.note) == ("approved", Amount(tokens=20_000), "Ada", "go on")
    assert (whole.requested, whole.requested_at, whole.answered_at) == (Amount(tokens=20_000), NOON, NOON)
    assert answered(
        apply_approval(among(ONE), {"request_id": "research-1-1", "tokens": 5_000}, NOON)
    ).granted == Amount(tokens=5_000)


def test_a_denial_keeps_how_the_step_or_the_task_shall_end() -> None:
    partial = answered(apply_denial(among(ONE), {"request_id": "research-1-1", "by": "Ada"}, NOON))
    assert (partial.decision, partial.finish, partial.granted, partial.by) == ("denied", "partial", Amount(), "Ada")
    assert answered(apply_denial(among(ONE), {"finish": "cancel"}, NOON)).finish == "cancel"


def test_the_only_open_request_need_not_be_named() -> None:
    closed = TWO.replace(decision="denied")
    assert answered(apply_approval(among(closed, ONE), {}, NOON)).request_id == "research-1-1"


@pytest.mark.parametrize(
    ("open_requests", "expected"),
    [
        ([], snapshot("no request is open")),
        ([ONE, TWO], snapshot("request_id is missing; open requests: research-1-1, research-2-1")),
    ],
)
def test_an_answer_without_an_id_needs_exactly_one_open_request(
    open_requests: list[ApprovalRequest], expected: str
) -> None:
    assert reason(apply_approval(among(*open_requests), {}, NOON)) == expected
    assert reason(apply_denial(among(*open_requests), {}, NOON)) == expected


MALFORMED: dict[str, tuple[JsonValue, str]] = {
    "a bare string": (
        "yes",
        snapshot("the signal: it should have named values, as a JSON object or a TOML table does"),
    ),
    "nothing": (None, snapshot("the signal: it should have named values, as a JSON object or a TOML table does")),
    "a number": (20_000, snapshot("the signal: it should have named values, as a JSON object or a TOML table does")),
    "a list": ([20_000], snapshot("the signal: it should have named values, as a JSON object or a TOML table does")),
    "an id that is a number": ({"request_id": 7}, snapshot("request_id: it should be text")),
    "tokens in words": ({"tokens": "20000"}, snapshot("tokens: it should be a whole number")),
    "tokens that are true": ({"tokens": True}, snapshot("tokens: it should be a whole number")),
    "tokens with a fraction": ({"tokens": 20_000.0}, snapshot("tokens: it should be a whole number")),
    "zero tokens": ({"tokens": 0}, snapshot("tokens: it should be more than 0")),
    "negative tokens": ({"tokens": -20_000}, snapshot("tokens: it should be more than 0")),
    "too many tokens": (
        {"tokens": MAX_GRANT_TOKENS + 1},
        snapshot("tokens: it should be at most 1000000000"),
    ),
    "absurdly many tokens": (
        {"tokens": 10**40},
        snapshot("tokens: it should be at most 1000000000"),
    ),
    "unknown fields": ({"token": 20_000, "sk-secret-0001": 1}, snapshot("an unknown field")),
    "a name of 201 characters": ({"by": "x" * 201}, snapshot("by: it should have at most 200 characters")),
    "several faults": (
        {"tokens": "sk-secret-0001", "by": ["sk-secret-0001"]},
        snapshot("by: it should be text; tokens: it should be a whole number"),
    ),
}


@pytest.mark.parametrize(("sent", "expected"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_approval_is_refused_with_a_reason_and_without_what_was_typed(
    sent: JsonValue, expected: str
) -> None:
    refusal = apply_approval(among(ONE), sent, NOON)
    assert reason(refusal) == expected
    assert "sk-secret" not in refusal.model_dump_json()


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([], snapshot("the signal: it should have named values, as a JSON object or a TOML table does")),
        ({"finish": "sk-secret-0001"}, snapshot("finish: it should be 'partial' or 'cancel'")),
        ({"tokens": 5}, snapshot("an unknown field")),
    ],
)
def test_a_malformed_denial_is_refused_with_a_reason(sent: JsonValue, expected: str) -> None:
    assert reason(apply_denial(among(ONE), sent, NOON)) == expected


@pytest.mark.parametrize("asked", [[], [ONE, TWO]])
def test_an_unknown_request_is_refused_and_not_repeated(asked: list[ApprovalRequest]) -> None:
    expected = {
        0: snapshot("there is no request with this id; no request is open"),
        2: snapshot("there is no request with this id; open requests: research-1-1, research-2-1"),
    }
    for refused in (
        apply_approval(among(*asked), {"request_id": "ada@example.com"}, NOON),
        apply_denial(among(*asked), {"request_id": "x"}, NOON),
    ):
        assert reason(refused) == expected[len(asked)]


def test_a_request_is_answered_once() -> None:
    approved = answered(apply_approval(among(ONE), {}, NOON))
    denied = answered(apply_denial(among(TWO), {}, NOON))
    requests = [approved, denied]
    assert reason(apply_approval(among(*requests), {"request_id": "research-1-1"}, NOON)) == snapshot(
        "the request research-1-1 was already approved"
    )
    assert reason(apply_denial(among(*requests), {"request_id": "research-1-1"}, NOON)) == snapshot(
        "the request research-1-1 was already approved"
    )
    assert reason(apply_approval(among(*requests), {"request_id": "research-2-1"}, NOON)) == snapshot(
        "the request research-2-1 was already denied"
    )


def test_a_task_that_is_ending_takes_no_answers() -> None:
    assert reason(apply_approval(among(ONE, ending=True), {}, NOON)) == snapshot("the task is ending or has ended")
    assert reason(apply_denial(among(ONE, ending=True), {}, NOON)) == snapshot("the task is ending or has ended")


def test_a_refusal_names_its_signal() -> None:
    refused = (apply_approval(among(), {}, NOON), apply_denial(among(), {}, NOON))
    assert [answer.signal for answer in refused if isinstance(answer, RejectedMessage)] == [
        "approve_budget",
        "deny_budget",
    ]


def test_an_answer_is_recognised_by_the_id_that_its_sender_chose() -> None:
    request = ApprovalRequest(request_id="research-1-1", agent="research-1", requested=Amount(tokens=1_000))
    granted = apply_approval(among(request), {"request_id": "research-1-1", "answer_id": "first"}, NOON)
    assert isinstance(granted, ApprovalRequest)
    late = apply_approval(among(granted), {"request_id": "research-1-1", "tokens": 9, "answer_id": "second"}, NOON)
    malformed = apply_approval(among(granted), {"tokens": "many", "answer_id": "third"}, NOON)
    assert [granted.answer_id, late.answer_id, malformed.answer_id] == ["first", "second", "third"]
    assert granted.decision == "approved"
    assert isinstance(late, RejectedMessage)


def test_nobody_answers_under_the_name_of_what_was_authorised_in_advance() -> None:
    for answer in (apply_approval, apply_denial):
        refused = reason(answer(among(ONE), {"by": " Authorised in advance"}, NOON))
        assert refused == "by: this name is reserved for grants that were authorised in advance: use another name"


def test_of_requests_that_are_denied_together_one_that_cannot_be_spares_no_other() -> None:
    given = DenyInput(
        request_id="research-1-1", also=("gone-1", "research-2-1", "research-1-1"), by="Ada", answer_id="a"
    )
    first, unknown, second = answer_each_request(denied, among(ONE, TWO), given, NOON).results
    assert [(answered(one).request_id, answered(one).decision, answered(one).by) for one in (first, second)] == [
        ("research-1-1", "denied", "Ada"),
        ("research-2-1", "denied", "Ada"),
    ]
    assert reason(unknown) == "there is no request with this id; open requests: research-1-1, research-2-1"
    assert {one.answer_id for one in (first, unknown, second)} == {"a"}
    assert [one.request_id for one in (first, unknown, second)] == ["research-1-1", "gone-1", "research-2-1"]
    with pytest.raises(ValueError, match="`also` lists additional requests, but `request_id` is missing"):
        answer_each_request(denied, among(ONE, TWO), DenyInput(also=("research-1-1",)), NOON)


def test_of_grants_that_are_made_together_each_counts_against_the_ceiling_of_the_next() -> None:
    standing = among(ONE, TWO).replace(limit=Limit(tokens=10_000), ceiling=Limit(tokens=10_900))
    given = ApproveInput(request_id="research-1-1", also=("research-2-1",), tokens=600, answer_id="a")
    first, second = answer_each_request(approved, standing, given, NOON).results
    assert (answered(first).granted, answered(first).answer_id) == (Amount(tokens=600), "a")
    assert "over its ceiling of 10,900 tokens, which leaves 300 tokens for grants" in reason(second)
    assert second.request_id == "research-2-1"
    with pytest.raises(ValueError, match="`also` lists additional requests, but `request_id` is missing"):
        answer_each_request(approved, standing, ApproveInput(also=("research-1-1",)), NOON)


def test_what_is_refused_of_one_message_for_several_requests_is_an_entry_each_of_the_trail() -> None:
    first, second = answer_each_request(
        denied, among(ONE), DenyInput(request_id="gone-1", also=("gone-2",)), NOON
    ).results
    assert reason(first) == reason(second)
    assert make_audit_entry_id(first) != make_audit_entry_id(second)


def test_requests_that_are_denied_together_are_settled_in_the_same_state() -> None:
    answers = tuple(answered(apply_denial(among(ONE, TWO), {"request_id": one.request_id}, NOON)) for one in (ONE, TWO))
    state = make_working_state().replace(approvals=(ONE, TWO))
    agents = {run.agent for run in (ONE, TWO)}
    state = state.replace(runs={name: next(iter(state.runs.values())) for name in agents})
    after = apply_signal(state, AnswerBatch(results=answers))
    assert [one.decision for one in after.approvals] == ["denied", "denied"]
    assert not after.pending_approvals


APPROVERS = among(ONE).replace(approvers=("Ada",))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"by": "Ada"}, "requires a verified name"),
        ({}, "waystation keys make"),
        ({"by": "Grace", "verified": "API key 1"}, "Grace is verified but is not one of the approvers"),
        ({"by": "ada", "verified": "API key 1"}, "is not one of the approvers"),
    ],
)
def test_where_approvers_are_named_whoever_else_answers_is_told_why_and_what_to_do(
    said: dict[str, JsonValue], why: str
) -> None:
    assert why in reason(apply_approval(APPROVERS, said, NOON))
    assert why in reason(apply_denial(APPROVERS, said, NOON))
    named = DenyInput.model_validate({**said, "request_id": ONE.request_id})
    (refused,) = answer_each_request(denied, APPROVERS, named, NOON).results
    assert why in reason(refused)


def test_an_approver_whose_name_is_verified_answers_and_nobody_edits_a_plan() -> None:
    ada: dict[str, JsonValue] = {"by": "Ada", "verified": "API key 1"}
    assert answered(apply_approval(APPROVERS, ada, NOON)).decision == "approved"
    assert answered(apply_denial(APPROVERS, ada, NOON)).decision == "denied"
    with pytest.raises(ValueError, match="through `waystation serve`, an approver can approve or deny"):
        build_plan_edit(APPROVERS, ReviewPlanInput(plan="0" * 64, by="Ada"))
