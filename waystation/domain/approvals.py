"""Answers to budget requests: what a person sent, validated here and nowhere else, so that nothing vanishes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue, ValidationError

from waystation.domain.task import Approval, Refusal
from waystation.domain.value import Input

HIGHEST_GRANT = 1_000_000_000
ANSWER_ID_CHARACTERS = 64


class ApproveInput(Input):
    """JSON of the signal `approve_budget`."""

    request_id: str | None = None
    """Which request; may be left out while exactly one is open."""
    tokens: int | None = Field(default=None, gt=0, le=HIGHEST_GRANT, strict=True)
    """How many tokens; by default as many as were asked for."""
    by: str = Field(default="", max_length=200)
    note: str = Field(default="", max_length=2_000)
    answer_id: str = Field(default="", max_length=ANSWER_ID_CHARACTERS)
    """Chosen by programs that want to see what became of this very answer."""


class DenyInput(Input):
    """JSON of the signal `deny_budget`."""

    request_id: str | None = None
    finish: Literal["partial", "cancel"] = "partial"
    by: str = Field(default="", max_length=200)
    note: str = Field(default="", max_length=2_000)
    answer_id: str = Field(default="", max_length=ANSWER_ID_CHARACTERS)
    """Chosen by programs that want to see what became of this very answer."""


def approve(
    approvals: Sequence[Approval], sent: JsonValue, now: datetime, *, ending: bool = False
) -> Approval | Refusal:
    """The request that this grants, answered; or why it has no effect. `ending`: the task takes no answers any more."""
    try:
        given = ApproveInput.model_validate(sent)
        request = _open_request(approvals, given.request_id, ending=ending)
    except ValueError as error:
        return _refusal("approve_budget", sent, error, now)
    return request.model_copy(
        update={
            "decision": "approved",
            "granted_tokens": given.tokens or request.asked_tokens,
            "by": given.by,
            "note": given.note,
            "answer_id": given.answer_id,
            "answered_at": now,
        }
    )


def deny(approvals: Sequence[Approval], sent: JsonValue, now: datetime, *, ending: bool = False) -> Approval | Refusal:
    """The request that this denies, answered; or why it has no effect. `ending`: the task takes no answers any more."""
    try:
        given = DenyInput.model_validate(sent)
        request = _open_request(approvals, given.request_id, ending=ending)
    except ValueError as error:
        return _refusal("deny_budget", sent, error, now)
    return request.model_copy(
        update={
            "decision": "denied",
            "finish": given.finish,
            "by": given.by,
            "note": given.note,
            "answer_id": given.answer_id,
            "answered_at": now,
        }
    )


def _refusal(signal: str, sent: JsonValue, error: ValueError, now: datetime) -> Refusal:
    answer_id = sent.get("answer_id") if isinstance(sent, dict) else None
    known = answer_id if isinstance(answer_id, str) and len(answer_id) <= ANSWER_ID_CHARACTERS else ""
    return Refusal(signal=signal, reason=_reason(error), at=now, answer_id=known)


def _open_request(approvals: Sequence[Approval], request_id: str | None, *, ending: bool) -> Approval:
    if ending:
        raise ValueError("the task is ending, or over")
    pending = [approval for approval in approvals if approval.decision == "pending"]
    if request_id is None:
        if len(pending) == 1:
            return pending[0]
        raise ValueError(f"request_id is missing, and {_open(pending)}")
    for approval in approvals:
        if approval.request_id == request_id:
            if approval.decision != "pending":
                raise ValueError(f"{request_id} was already {approval.decision}")
            return approval
    raise ValueError(f"there is no request of this request_id; {_open(pending)}")


def _open(pending: Sequence[Approval]) -> str:
    names = ", ".join(approval.request_id for approval in pending)
    return f"open: {names}" if names else "no request is open"


def _reason(error: ValueError) -> str:
    """The fault in one line. Values are left out: a person may have pasted anything."""
    if not isinstance(error, ValidationError):
        return str(error)
    faults = [
        "a field that is not known here"
        if fault["type"] == "extra_forbidden"
        else f"{'.'.join(str(part) for part in fault['loc']) or 'the signal'}: {fault['msg']}"
        for fault in error.errors()
    ]
    return "; ".join(dict.fromkeys(faults))
