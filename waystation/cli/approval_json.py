"""What `--json` prints of a request for money, or for a call, and of its answer: keys that stay."""

from datetime import datetime

from waystation.domain.actions import ActionQuestion
from waystation.domain.amount import Amount
from waystation.domain.outlook import Outlook
from waystation.domain.request_text import denial_text
from waystation.domain.sent import Origin
from waystation.domain.task import Approval
from waystation.domain.value import Value


class OutlookJson(Value):
    """What a request's money is for, as it was when it was made. `calls_worth`: how many calls it pays, about."""

    calls: int
    call_tokens: int
    call_usd: float
    calls_worth: int
    steps_finished: int
    steps_to_come: int
    kept_tokens: int
    kept_usd: float
    notes: int
    findings: int
    sections: int
    denial: str

    @classmethod
    def of(cls, seen: Outlook, agent: str) -> "OutlookJson":
        """The outlook, flat, and in a sentence what a denial would deliver."""
        return cls(
            calls=seen.calls,
            call_tokens=seen.each.tokens,
            call_usd=seen.each.usd,
            calls_worth=seen.worth,
            steps_finished=seen.finished,
            steps_to_come=seen.to_come,
            kept_tokens=seen.kept.tokens,
            kept_usd=seen.kept.usd,
            denial=denial_text(seen, agent),
            **seen.made.model_dump(),
        )


class OriginJson(Value):
    """Where an answer came from. The identities are claims; principals are whom the server authenticated."""

    identities: tuple[str, ...]
    principals: tuple[str, ...]


class ActionJson(Value):
    """A call of a tool that a person decides on. `text` is redacted; so many characters of it are `hidden`."""

    tool: str
    text: str
    hidden: int

    @classmethod
    def of(cls, question: ActionQuestion) -> "ActionJson":
        """What a person reads of it."""
        return cls(tool=question.tool, text=question.text, hidden=question.hidden)


class ApprovalJson(Value):
    """One request for money, or for the call that `action` is, and its answer. `by` is a name as given. `sent_from` is
    null where it is not known, and where `show` did not ask the server.
    """

    request_id: str
    agent: str
    action: ActionJson | None
    asked_tokens: int
    asked_usd: float
    granted_tokens: int
    granted_usd: float
    needed_tokens: int
    needed_usd: float
    spent_tokens: int
    spent_usd: float
    decision: str
    by: str
    note: str
    requested_at: datetime | None
    answer_by: datetime | None
    answered_at: datetime | None
    outlook: OutlookJson | None
    sent_from: OriginJson | None

    @classmethod
    def of(cls, approval: Approval, origin: Origin | None = None) -> "ApprovalJson":
        """The request, its amounts in tokens and dollars."""
        return cls(
            action=None if approval.action is None else ActionJson.of(approval.action),
            **_units("asked", approval.asked),
            **_units("granted", approval.granted),
            **_units("needed", approval.needed),
            **_units("spent", approval.spent),
            outlook=None if approval.outlook is None else OutlookJson.of(approval.outlook, approval.agent),
            sent_from=None if origin is None else OriginJson(**origin.model_dump()),
            **approval.model_dump(
                include={
                    "request_id",
                    "agent",
                    "decision",
                    "by",
                    "note",
                    "requested_at",
                    "answer_by",
                    "answered_at",
                }
            ),
        )


def _units(name: str, amount: Amount) -> dict[str, int | float]:
    return {f"{name}_tokens": amount.tokens, f"{name}_usd": amount.usd}
