"""Applies answers to requests as a task does: by the rows of the table of signals."""

from datetime import datetime

from pydantic import JsonValue

from tests.support.task_states import make_working_state
from waystation.tasks.approvals import ApprovalContext
from waystation.tasks.signals import APPROVAL, DENIAL, InputT, SignalContext, TaskSignalDefinition
from waystation.tasks.task import ApprovalRequest, RejectedMessage


def apply_approval(standing: ApprovalContext, sent: JsonValue, now: datetime) -> ApprovalRequest | RejectedMessage:
    """Return the result of an `approve_budget` signal."""
    return _answer(APPROVAL, standing, sent, now)


def apply_denial(standing: ApprovalContext, sent: JsonValue, now: datetime) -> ApprovalRequest | RejectedMessage:
    """Return the result of a `deny_budget` signal."""
    return _answer(DENIAL, standing, sent, now)


def _answer(
    signal: TaskSignalDefinition[InputT], standing: ApprovalContext, sent: JsonValue, now: datetime
) -> ApprovalRequest | RejectedMessage:
    answer = signal.evaluate(SignalContext(make_working_state(), standing, now), sent)
    assert isinstance(answer, ApprovalRequest | RejectedMessage)
    return answer
