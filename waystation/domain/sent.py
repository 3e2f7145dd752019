"""Answers as they were sent to a task, and which of them settled a request.

The name in an answer is a claim, and so is the identity of the program that sent it; only a server that lets nobody in
without credentials adds a principal, which it vouches for.
"""

from collections.abc import Sequence
from datetime import datetime

from waystation.domain.names import APPROVE_BUDGET, DENY_BUDGET
from waystation.domain.task import Approval
from waystation.domain.value import Value

SIGNALS = {"approved": APPROVE_BUDGET, "denied": DENY_BUDGET}
IDENTITY_CHARACTERS = 200
"""Whoever sends chooses how long an identity is."""


class SentFields(Value):
    """The part of an answer by which it is known again."""

    request_id: str | None = None
    answer_id: str = ""
    by: str = ""


class SentAnswer(Value):
    """One signal as the server recorded it."""

    signal: str
    at: datetime
    identity: str
    """What the sending program calls itself."""
    principal: str = ""
    """Whom the server authenticated, as `type:name`; empty where it does not say."""
    fields: SentFields


class Origin(Value):
    """Where an answer came from. More than one of each where several signals could be the one that counted."""

    identities: tuple[str, ...]
    principals: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As people read it."""
        vouched = f"authenticated by the server as {' or '.join(self.principals)}" if self.principals else ""
        return "; ".join(filter(None, (f"sent from {' or '.join(self.identities)}", vouched)))


def origin_of(approval: Approval, sent: Sequence[SentAnswer]) -> Origin | None:
    """Where a request's answer came from; None where nobody answered, or it is not among those sent."""
    fitting = [answer for answer in sent if _settles(approval, answer)]
    identities = dict.fromkeys(answer.identity[:IDENTITY_CHARACTERS] or "an unnamed program" for answer in fitting)
    principals = dict.fromkeys(answer.principal for answer in fitting if answer.principal)
    return Origin(identities=tuple(identities), principals=tuple(principals)) if fitting else None


def _settles(approval: Approval, answer: SentAnswer) -> bool:
    """Whether this signal can be the one that counted."""
    asked, answered = approval.requested_at, approval.answered_at
    if answered is None or asked is None or not asked <= answer.at <= answered:
        return False
    fields = answer.fields
    same = fields.answer_id == approval.answer_id and fields.by == approval.by
    return same and SIGNALS.get(approval.decision) == answer.signal and fields.request_id in {None, approval.request_id}
