"""Answers to approval requests: their input models, validation, effect, and origin.

An answer without an effect is rejected with a reason, so that nothing vanishes. The name in an answer is a claim, and
so is the identity of the program that sent it; only a server that requires credentials adds a principal, which it
vouches for.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, JsonValue, ValidationError

from waystation.agents.action_approvals import AUTHORISED_IN_ADVANCE, TopUpPolicy
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit
from waystation.kernel.ids import short_hash
from waystation.kernel.value import UNKNOWN_FIELD, Value, extract_validation_faults
from waystation.planning.plan import PlanEdit
from waystation.security.untrusted import sanitize_line
from waystation.tasks.task import ApprovalRequest, RejectedMessage

MAX_GRANT_TOKENS, MAX_GRANT_USD = 1_000_000_000, 1_000_000
MAX_ANSWER_ID_CHARACTERS = 64
APPROVE_BUDGET, DENY_BUDGET, REVIEW_PLAN = "approve_budget", "deny_budget", "review_plan"
DELIVER_NOW = "deliver_now"


def _a_name(by: str) -> str:
    if by.strip().lower() == AUTHORISED_IN_ADVANCE:
        raise ValueError("this name is reserved for grants that were authorised in advance: use another name")
    return by


ClaimedName = Annotated[str, Field(max_length=200), AfterValidator(_a_name)]
"""Name given by the person who answers: a claim."""


NameProof = Annotated[str, Field(max_length=400)]
"""How the name was verified by the program that forwarded the answer; only `waystation serve` sets it."""


class VerifiedName(Value):
    """A verified name."""

    name: str
    proof: NameProof


AnswerAuthor = str | VerifiedName
"""A claimed or a verified name."""


MAX_REQUESTS_PER_ANSWER = 1_000
"""Requests in one answer."""
RequestId = Annotated[str, Field(max_length=200)]
AnswerId = Annotated[str, Field(max_length=MAX_ANSWER_ID_CHARACTERS)]
"""Id of a message, chosen by the sending program: a repeated message counts once. For an Update, its own id."""


class MessageInput(Value):
    """What the JSON of every message to a task can have."""

    by: ClaimedName = ""
    answer_id: AnswerId = ""

    def sign(self, author: AnswerAuthor) -> Self:
        """Return the message as one of this author."""
        return self.replace(by=author.name if isinstance(author, VerifiedName) else author)


class DecisionInput(MessageInput):
    """What the JSON of every decision of a person can have."""

    verified: NameProof = ""
    note: str = Field(default="", max_length=2_000)

    def sign(self, author: AnswerAuthor) -> Self:
        """Return the decision as one of this author; a claimed name has no proof."""
        proof = author.proof if isinstance(author, VerifiedName) else ""
        return super().sign(author).replace(verified=proof)


class AnswerInput(DecisionInput):
    """What the JSON of every answer to an approval request can have."""

    request_id: RequestId | None = None
    """Id of the request. May be omitted while exactly one is open, and it asks for budget."""
    also: tuple[RequestId, ...] = Field(default=(), max_length=MAX_REQUESTS_PER_ANSWER)
    """Other requests that the same message answers. Each is answered on its own, and none uses budget that another was
    given or left over.
    """


class ApproveInput(AnswerInput):
    """JSON of the signal `approve_budget`."""

    action: str | None = Field(default=None, max_length=200)
    """The tool that may be called, for a request to call one. May be omitted; a request for budget takes none."""
    tokens: int | None = Field(default=None, gt=0, le=MAX_GRANT_TOKENS, strict=True)
    """Granted tokens; without this and `usd`, the requested amount."""
    usd: Decimal | None = Field(default=None, gt=0, le=MAX_GRANT_USD, decimal_places=6)
    """Granted dollars, as a number or in quotes."""


class DenyInput(AnswerInput):
    """JSON of the signal `deny_budget`."""

    finish: Literal["partial", "cancel"] = "partial"


class DeliverInput(DecisionInput):
    """JSON of the signal `deliver_now`."""


class ReviewPlanInput(MessageInput):
    """JSON of the signal `review_plan`."""

    plan: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Content hash of a `Plan` in the store. Never the plan: its goals are text, and signals stay in the history."""
    request_id: RequestId | None = None
    note: str = Field(default="", max_length=2_000)


class ApprovalContext(Value):
    """What an answer is validated against."""

    approvals: tuple[ApprovalRequest, ...]
    limit: Limit = Limit()
    """The task's current budget."""
    ceiling: Limit = Limit()
    """Upper bound for raising the budget."""
    ending: bool = False
    """Whether the task no longer takes answers."""
    editing: bool = False
    """Whether a person's plan is being read."""
    revising: bool = False
    """Whether the plan that waits for approval is a revision."""
    approvers: tuple[str, ...] = ()
    """Names whose verified answers alone take effect; empty: anyone's do."""


def approve(approval_context: ApprovalContext, message: ApproveInput, now: datetime) -> ApprovalRequest:
    """Return the request as approved. Raises ValueError, with the reason, if the approval has no effect."""
    request = get_open_request(approval_context, message)
    if request.about_plan:
        granted = _agreement(message, approval_context)
    else:
        granted = (
            _permission(message, request) if request.action is not None else _grant(message, request, approval_context)
        )
    return request.replace(
        decision="approved",
        granted=granted,
        by=message.by,
        verified=message.verified,
        note=message.note,
        answer_id=message.answer_id,
        answered_at=now,
    )


def grant_in_advance(
    approval_context: ApprovalContext, request: ApprovalRequest, top_up: TopUpPolicy | None, now: datetime
) -> ApprovalRequest | None:
    """Grant the request by what was authorised in advance.

    Returns:
        None if that is used up, too little, or above the ceiling: then a person is asked.
    """
    used = sum(approval.by == AUTHORISED_IN_ADVANCE for approval in approval_context.approvals)
    if top_up is None or used >= top_up.times or not request.needed.subtract_clamped(top_up.amount).is_zero:
        return None
    if not approval_context.ceiling.can_cover(approval_context.limit.increase_by(top_up.amount).amount):
        return None
    note = f"{used + 1} of {top_up.times}"
    return request.replace(
        decision="approved", granted=top_up.amount, by=AUTHORISED_IN_ADVANCE, note=note, answered_at=now
    )


def deny(approval_context: ApprovalContext, message: DenyInput, now: datetime) -> ApprovalRequest:
    """Return the request as denied. Raises ValueError, with the reason, if the denial has no effect."""
    request = get_open_request(approval_context, message)
    return request.replace(
        decision="denied",
        finish=message.finish,
        by=message.by,
        verified=message.verified,
        note=message.note,
        answer_id=message.answer_id,
        answered_at=now,
    )


def deny_all_requests(
    approval_context: ApprovalContext, message: DeliverInput, now: datetime
) -> tuple[ApprovalRequest, ...]:
    """Return all open requests as denied; each agent delivers what it has.

    Raises ValueError, with the reason, if the author may not answer, or the task cannot deliver anything yet.
    """
    _by_an_approver(approval_context, message.by, message.verified)
    pending = _list_pending(approval_context)
    if any(approval.about_plan for approval in pending) and not approval_context.revising:
        raise ValueError(
            "the task's plan waits for approval, so nothing can be delivered yet: approve or deny the plan"
        )
    given = DenyInput(by=message.by, verified=message.verified, note=message.note, answer_id=message.answer_id)
    return tuple(deny(approval_context, given.replace(request_id=approval.request_id), now) for approval in pending)


class AnswerBatch(Value):
    """Results of a message that answers several requests, one each."""

    results: tuple[ApprovalRequest | RejectedMessage, ...]


GivenT = TypeVar("GivenT", ApproveInput, DenyInput)
AnswerOne = Callable[[ApprovalContext, GivenT, datetime], ApprovalRequest]


def answer_each_request(
    answer: AnswerOne[GivenT], approval_context: ApprovalContext, message: GivenT, now: datetime
) -> AnswerBatch:
    """Answer each named request; earlier grants count against the task's ceiling.

    A request that cannot be answered does not affect the others. Raises ValueError without `request_id`.
    """
    if message.request_id is None:
        raise ValueError("`also` lists additional requests, but `request_id` is missing")
    signal = APPROVE_BUDGET if isinstance(message, ApproveInput) else DENY_BUDGET
    answers: list[ApprovalRequest | RejectedMessage] = []
    for one in dict.fromkeys((message.request_id, *message.also)):
        try:
            answered = answer(approval_context, message.replace(request_id=one), now)
        except ValueError as error:
            refused = build_rejection(signal, {"answer_id": message.answer_id}, error, now)
            answers.append(refused.replace(request_id=one))
        else:
            approval_context = approval_context.replace(limit=approval_context.limit.increase_by(answered.granted))
            answers.append(answered)
    return AnswerBatch(results=tuple(answers))


def build_plan_edit(approval_context: ApprovalContext, message: ReviewPlanInput) -> PlanEdit:
    """Return the plan edit to read. Raises ValueError if no plan waits for a person."""
    if approval_context.approvers:
        raise ValueError(
            "WAYSTATION_APPROVERS requires verified names, and the name of a person who edits a plan cannot be "
            "verified: through `waystation serve`, an approver can approve or deny the plan, but not edit it"
        )
    request = _open_request(approval_context, message.request_id)
    if not request.about_plan:
        raise ValueError(
            f"the request {request.request_id} is not about a plan: approve or deny it without sending a plan"
        )
    if approval_context.revising:
        raise ValueError(
            "a revision of the plan cannot be edited: approve the revision, or deny it to keep the plan as it was"
        )
    _none_being_read(approval_context)
    return PlanEdit(
        request_id=request.request_id, plan=message.plan, by=message.by, note=message.note, answer_id=message.answer_id
    )


def describe_plan_request(steps_left: int, requested: Amount) -> tuple[str, str]:
    """Describe a plan that waits for approval, and what a denial leads to; both as parts of a sentence."""
    steps = "step" if steps_left == 1 else "steps"
    plan = f"plan of {steps_left} {steps} waits for approval"
    if requested.is_zero:
        return plan, "the task ends; the cost of planning counts as spent"
    return f"revised {plan}, with {format_amount(requested)} for new steps", "the plan stays as it was"


def get_open_request(standing: ApprovalContext, given: AnswerInput) -> ApprovalRequest:
    """Return the open request that is answered. Raises ValueError if there is none, or its author may not answer."""
    _by_an_approver(standing, given.by, given.verified)
    return _open_request(standing, given.request_id)


def _by_an_approver(approval_context: ApprovalContext, by: str, proof: str) -> None:
    """Raise ValueError unless an approver answers, if the workers name approvers."""
    if not approval_context.approvers:
        return
    if not proof:
        raise ValueError(
            "WAYSTATION_APPROVERS requires a verified name, and this name is not verified: an approver "
            "answers through `waystation serve`, with an API key (`waystation keys make NAME --role "
            "approve`) or an OpenID token"
        )
    if by not in approval_context.approvers:
        raise ValueError(
            f"{sanitize_line(by)} is verified but is not one of the approvers in the workers' "
            "WAYSTATION_APPROVERS: one of them has to answer"
        )


def _agreement(message: ApproveInput, approval_context: ApprovalContext) -> Amount:
    """Return a zero amount. Raises ValueError if an amount is given, or another plan is about to replace this one."""
    if message.tokens is not None or message.usd is not None or message.action is not None:
        raise ValueError("the request asks about a plan: approve it without an amount or an action")
    _none_being_read(approval_context)
    return Amount()


def _none_being_read(approval_context: ApprovalContext) -> None:
    if approval_context.editing:
        raise ValueError("an edited plan arrived before this answer and is being checked: wait for the result")


def build_rejection(signal: str, sent: JsonValue, error: ValueError, now: datetime) -> RejectedMessage:
    """What is shown of a message that has no effect."""
    return RejectedMessage(signal=signal, reason=describe_fault(error), at=now, answer_id=get_answer_id(sent))


def get_answer_id(sent: JsonValue) -> str:
    """The id of a message, by which it is known when it is sent again; empty where it has none."""
    answer_id = sent.get("answer_id") if isinstance(sent, dict) else None
    return answer_id if isinstance(answer_id, str) and len(answer_id) <= MAX_ANSWER_ID_CHARACTERS else ""


def make_answer_id(update_id: str) -> str:
    """The id of a message that came by an Update and names none itself."""
    return update_id if len(update_id) <= MAX_ANSWER_ID_CHARACTERS else short_hash("update", update_id)


def _permission(message: ApproveInput, request: ApprovalRequest) -> Amount:
    """Return a zero amount. Raises ValueError if an amount is given, or it is not certain that this call is meant."""
    tool = request.action.tool if request.action is not None else ""
    asks = f"the request {request.request_id} asks to call {tool}"
    if message.tokens is not None or message.usd is not None:
        raise ValueError(f"{asks}, not for budget: approve it without an amount")
    if message.request_id is None:
        raise ValueError(f"{asks}: look at the call, then answer with this request_id")
    if message.action not in {None, tool}:
        raise ValueError(f"{asks}, not the tool that `action` names")
    return Amount()


def _grant(message: ApproveInput, request: ApprovalRequest, approval_context: ApprovalContext) -> Amount:
    """Return the granted amount. Raises ValueError if it is not possible."""
    if message.action is not None:
        raise ValueError(
            f"the request {request.request_id} asks for budget, not to call a tool: approve it without `action`"
        )
    granted = _granted(message, request)
    _stay_in_units(approval_context, granted)
    _stay_under(approval_context, granted)
    return granted


_HOW_MUCH, _OTHER_UNIT, _ABOVE = "are requested: say", "the task's budget is in", ", over its ceiling of "


def is_amount_rejection(reason: str) -> bool:
    """Return whether an answer was rejected for its amount: with another one it may be accepted."""
    return any(words in reason for words in (_HOW_MUCH, _OTHER_UNIT, _ABOVE))


def _granted(message: ApproveInput, request: ApprovalRequest) -> Amount:
    """Return the amount. Raises ValueError if it is in another unit than requested."""
    if message.tokens is None and message.usd is None:
        return request.requested
    granted = Amount(tokens=message.tokens or 0, micro_usd=int((message.usd or 0) * 1_000_000))
    if request.requested.tokens and not granted.tokens:
        raise ValueError(f"tokens {_HOW_MUCH} how many, like `--add 50k`, or `tokens` in a signal")
    if request.requested.micro_usd and not granted.micro_usd:
        raise ValueError(f"dollars {_HOW_MUCH} how many, like `--add '$0.10'`, or `usd` in a signal")
    return granted


def _stay_in_units(approval_context: ApprovalContext, granted: Amount) -> None:
    """Reject a grant in a unit that the budget does not count, where it would have no effect."""
    if approval_context.limit.restrict_to_limited_units(granted) != granted:
        counted, other = ("dollars", "tokens") if approval_context.limit.tokens is None else ("tokens", "dollars")
        raise ValueError(f"{_OTHER_UNIT} {counted} only: give {counted} and no {other}")


def _stay_under(approval_context: ApprovalContext, granted: Amount) -> None:
    raised = approval_context.limit.increase_by(granted)
    if not approval_context.ceiling.can_cover(raised.amount):
        room = approval_context.ceiling.remaining_after(approval_context.limit.amount)
        raise ValueError(
            f"the grant would raise the task's budget to {format_limit(raised)}{_ABOVE}"
            f"{format_limit(approval_context.ceiling)}, which leaves {format_limit(room)} for grants"
        )


def _list_pending(approval_context: ApprovalContext) -> list[ApprovalRequest]:
    """Return the requests that can still be answered. Raises ValueError if the task takes no more answers."""
    if approval_context.ending:
        raise ValueError("the task is ending or has ended")
    return [approval for approval in approval_context.approvals if approval.decision == "pending"]


def _open_request(approval_context: ApprovalContext, request_id: str | None) -> ApprovalRequest:
    pending = _list_pending(approval_context)
    if request_id is None:
        if len(pending) == 1:
            return pending[0]
        raise ValueError(f"request_id is missing; {_open(pending)}" if pending else _open(pending))
    for approval in approval_context.approvals:
        if approval.request_id == request_id:
            if approval.decision != "pending":
                verb = "has" if approval.decision == "expired" else "was"
                raise ValueError(f"the request {request_id} {verb} already {approval.decision}")
            return approval
    raise ValueError(f"there is no request with this id; {_open(pending)}")


def _open(pending: Sequence[ApprovalRequest]) -> str:
    names = ", ".join(approval.request_id for approval in pending)
    return f"open requests: {names}" if names else "no request is open"


def describe_fault(error: ValueError) -> str:
    """Return the fault in one line, without values: a person may have pasted anything."""
    if not isinstance(error, ValidationError):
        return str(error)
    faults = [
        "an unknown field"
        if fault.words == UNKNOWN_FIELD
        else f"{'.'.join(map(str, fault.place)) or 'the signal'}: {fault.words}"
        for fault in extract_validation_faults(error)
    ]
    return "; ".join(dict.fromkeys(faults))


SIGNALS_BY_DECISION = {"approved": (APPROVE_BUDGET, REVIEW_PLAN), "denied": (DENY_BUDGET, DELIVER_NOW)}
MAX_IDENTITY_CHARACTERS = 200
"""Maximum length of an identity: the sender chooses it freely."""


class RecordedAnswerFields(Value):
    """The fields that identify an answer."""

    request_id: str | None = None
    also: tuple[str, ...] = ()
    answer_id: str = ""
    by: str = ""


class SentAnswer(Value):
    """One signal or Update as the server recorded it."""

    signal: str
    at: datetime
    identity: str
    """Name that the sending program gives itself."""
    principal: str = ""
    """The authenticated principal as `type:name`; empty if the server does not report one."""
    fields: RecordedAnswerFields


class AnswerOrigin(Value):
    """Where an answer came from. It has several entries if several messages may be the one that took effect."""

    identities: tuple[str, ...]
    principals: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The origin in words."""
        vouched = f"authenticated by the server as {' or '.join(self.principals)}" if self.principals else ""
        unsure = " (it is not known which)" if len(self.identities) > 1 else ""
        return "; ".join(filter(None, (f"sent from {' or '.join(self.identities)}{unsure}", vouched)))


def find_answer_origin(approval: ApprovalRequest, answers: Sequence[SentAnswer]) -> AnswerOrigin | None:
    """Return the origin of a request's answer; None if no one answered, or the answer is not among those sent."""
    fitting = [answer for answer in answers if _settles(approval, answer)]
    identities = dict.fromkeys(answer.identity[:MAX_IDENTITY_CHARACTERS] or "an unnamed program" for answer in fitting)
    principals = dict.fromkeys(answer.principal for answer in fitting if answer.principal)
    return AnswerOrigin(identities=tuple(identities), principals=tuple(principals)) if fitting else None


def _settles(approval: ApprovalRequest, answer: SentAnswer) -> bool:
    """Whether this message can be the one that counted."""
    asked, answered = approval.requested_at, approval.answered_at
    if answered is None or asked is None or not asked <= answer.at <= answered:
        return False
    fields = answer.fields
    same = fields.answer_id == approval.answer_id and fields.by == approval.by
    return (
        same
        and answer.signal in SIGNALS_BY_DECISION.get(approval.decision, ())
        and (fields.request_id in {None, approval.request_id} or approval.request_id in fields.also)
    )
