"""Answers to requests as they come to a task: by the rows of the table of signals."""

from datetime import datetime

from pydantic import JsonValue

from tests.unit.task_values import working
from waystation.tasks.approvals import Circumstances
from waystation.tasks.signals import APPROVAL, DENIAL, InputT, SentTo, Signal
from waystation.tasks.task import Approval, Refusal


def approve(standing: Circumstances, sent: JsonValue, now: datetime) -> Approval | Refusal:
    """What is made of an `approve_budget`."""
    return _answer(APPROVAL, standing, sent, now)


def deny(standing: Circumstances, sent: JsonValue, now: datetime) -> Approval | Refusal:
    """What is made of a `deny_budget`."""
    return _answer(DENIAL, standing, sent, now)


def _answer(signal: Signal[InputT], standing: Circumstances, sent: JsonValue, now: datetime) -> Approval | Refusal:
    answer = signal.answer(SentTo(working(), standing, now), sent)
    assert isinstance(answer, Approval | Refusal)
    return answer
