"""What people send to a task: the table of its messages. The task validates them, so that nothing vanishes.

Answers to its requests (`approvals` decides), messages to its agents, new versions of its documents, changes to its
agents' contexts: each kind is a row, which the task takes as a signal and as an Update of the same name, and which
`Client.send` sends. `apply_signal` says what it changes, `make_audit_entry_id` what it is called in the audit trail,
`build_update_result` what its sender learns of it. An Update answers with that; a signal has no answer.

What arrives: any number of JSON values, since a person may send anything from the Temporal UI.

A handler that raises, or whose arguments do not fit, would hang its workflow: so handlers take everything and ask here.
Who can reach the server can send; who has the key of the workers can seal. What came sealed is told apart here, by the
bytes in the history alone, so that a replay sees the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Annotated, Generic, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError, model_validator

from waystation.agents.action_approvals import PlaceholderResolution
from waystation.agents.agent_run import AgentRun
from waystation.agents.task_messages import MAX_MESSAGE_CHARACTERS, TaskMessage
from waystation.context.compaction import ContextEdit, ContextEditAction
from waystation.documents.documents import DocumentsUpdate, RecordedDocumentsUpdate
from waystation.kernel.client_permissions import ClientPermission
from waystation.kernel.ids import short_hash
from waystation.kernel.value import Value
from waystation.planning.plan import PlanEdit
from waystation.privacy.policy import truncate_redacted
from waystation.security.untrusted import is_blank
from waystation.tasks.approvals import (
    APPROVE_BUDGET,
    DELIVER_NOW,
    DENY_BUDGET,
    REVIEW_PLAN,
    AnswerBatch,
    ApprovalContext,
    ApproveInput,
    DeliverInput,
    DenyInput,
    MessageInput,
    ReviewPlanInput,
    answer_each_request,
    approve,
    build_plan_edit,
    build_rejection,
    deny,
    deny_all_requests,
)
from waystation.tasks.state import TaskState, apply_action_decision, merge_unique
from waystation.tasks.task import ApprovalRequest, AuditEntry, RejectedMessage

EDIT_CONTEXT, SEND_MESSAGE, UPDATE_DOCUMENTS = "edit_context", "send_message", "update_documents"
TASK_MESSAGE_PREFIX, DOCUMENTS_UPDATE_PREFIX = "message-", "documents-"
"""Prefixes of audit entry IDs of messages and document updates, which agents look up at every turn."""

InputT = TypeVar("InputT", bound=MessageInput)
ModelT = TypeVar("ModelT", bound=BaseModel)
NumberedT = TypeVar("NumberedT", TaskMessage, DocumentsUpdate)


class TaskMessageInput(MessageInput):
    """JSON of the signal `send_message`."""

    text: Annotated[str, Field(max_length=MAX_MESSAGE_CHARACTERS)] | None = None
    """The message as typed in the Temporal UI, whose history then contains it."""
    message: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Content hash of the message, which is in the store already."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.text is None) == (self.message is None):
            raise ValueError("give either `text` (a new message) or `message` (the content hash of a stored message)")
        if self.text is not None and is_blank(self.text):
            raise ValueError("`text` is blank: write the message")
        return self


class PendingMessage(Value):
    """A message to be stored, with its text or the hash of it."""

    task_message: TaskMessage
    text: str | None = None
    message: str | None = None


DELIVER_TEXT = (
    "Deliver now: submit your result at once, from what you have. Start no more searches, calls or subagents. Say in "
    "the result what is missing."
)
"""Message to the agents of a task that is to deliver what it has."""
DELIVERY_NOTE = "A person asked for the report before the work was done."


class DeliveryOrder(Value):
    """A task is to deliver what it has: the requests that are denied for it, and the message to its agents."""

    denied: tuple[ApprovalRequest, ...]
    pending: PendingMessage


class DocumentsUpdateInput(MessageInput):
    """JSON of the signal `update_documents`."""

    documents: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Content hash of a `DocumentSet`, which is in the store, as are the texts that it names."""


MAX_INSTRUCTIONS_CHARACTERS = 4_000
"""Maximum characters of the instructions for a summary."""
_NEEDS = {"compact": None, "pin": "message", "unpin": "message", "rewind": "message", "restore": "compaction"}
"""The naming field that each action needs; it takes no other."""

MAX_ID_CHARACTERS = 64


def _id(given: str) -> str:
    return _of_signs(given, "-", "an id such as m4, which `waystation transcript` shows")


def _compaction_id(given: str) -> str:
    return _of_signs(
        given, "-", "the id of a compaction, or the first characters of the id, which `waystation show` prints"
    )


def _agent_id(given: str) -> str:
    return _of_signs(given, "-.", "an agent such as research-1, which `waystation transcript` lists")


def _of_signs(given: str, others: str, what: str) -> str:
    signs = given.translate(str.maketrans("", "", others + "_"))
    if not given or len(given) > MAX_ID_CHARACTERS or not (signs.isalnum() or not signs):
        signs = ", ".join(["letters", "digits", *(f"`{one}`" for one in others)])
        raise ValueError(f"give {what}; an id has at most {MAX_ID_CHARACTERS} characters: {signs} and `_`")
    return given


SignalMessageId = Annotated[str, AfterValidator(_id)]
CompactionId = Annotated[str, AfterValidator(_compaction_id)]
AgentId = Annotated[str, AfterValidator(_agent_id)]


class ContextEditInput(MessageInput):
    """JSON of the signal `edit_context`."""

    action: ContextEditAction
    agent: AgentId
    """ID of the agent's step, or of a subagent."""
    message: SignalMessageId | None = None
    """For `pin`, `unpin` and `rewind`."""
    keep: bool | None = None
    """For `rewind`: whether the message itself stays; true by default."""
    compaction: CompactionId | None = None
    """For `restore`: the ID, or the beginning of it."""
    instructions: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """For `compact`: content hash of a text in the store. Never the text: signals stay in the workflow's history."""
    note: str = Field(default="", max_length=2_000)

    @model_validator(mode="after")
    def _names_what_it_needs(self) -> Self:
        for name in ("message", "compaction"):
            if (getattr(self, name) is not None) != (_NEEDS[self.action] == name):
                verb = "needs" if _NEEDS[self.action] == name else "takes no"
                raise ValueError(f"the action {self.action} {verb} `{name}`")
        if self.instructions is not None and self.action != "compact":
            raise ValueError(f"the action {self.action} does not accept `instructions`")
        if self.keep is not None and self.action != "rewind":
            raise ValueError(f"the action {self.action} does not accept `keep`")
        return self


def _editable(state: TaskState, agent: str) -> AgentRun:
    """Return an agent whose context can be edited. Raises ValueError, without the given name if no agent has it."""
    if state.is_ending:
        raise ValueError("the task is ending or has ended: its agents' contexts can no longer be edited")
    run = state.runs.get(agent)
    if run is not None and run.phase == "delivered":
        raise ValueError(f"{agent} has finished: its context can no longer be edited")
    if run is not None:
        return run
    if state.plan is not None and any(step.id == agent for step in state.plan.steps):
        raise ValueError(f"{agent} has not started: it has no context yet")
    working = ", ".join(name for name in state.runs if name not in state.delivered_agents)
    raise ValueError(f"there is no agent with this name; running agents: {working or 'none yet'}")


class SignalContext(NamedTuple):
    """The task that a message is sent to."""

    state: TaskState
    approval_context: ApprovalContext
    now: datetime


def _approve(context: SignalContext, message: ApproveInput) -> ApprovalRequest | AnswerBatch:
    if message.also:
        return answer_each_request(approve, context.approval_context, message, context.now)
    return approve(context.approval_context, message, context.now)


def _deny(context: SignalContext, message: DenyInput) -> ApprovalRequest | AnswerBatch:
    if message.also:
        return answer_each_request(deny, context.approval_context, message, context.now)
    return deny(context.approval_context, message, context.now)


def _review_plan(context: SignalContext, message: ReviewPlanInput) -> PlanEdit:
    return build_plan_edit(context.approval_context, message)


def _deliver(context: SignalContext, message: DeliverInput) -> DeliveryOrder:
    """Return the denials of all open requests and the message to the agents.

    Raises ValueError if there is nothing to deliver yet, or the task delivers already.
    """
    denied = deny_all_requests(context.approval_context, message, context.now)
    if context.state.plan is None:
        raise ValueError("the task has no plan yet, so nothing can be delivered: wait, or cancel the task")
    if context.state.delivery_requested:
        raise ValueError("the task was already asked to deliver, and its agents are finishing")
    task_message = TaskMessage(
        number=_next(context.state.task_messages), by=message.by, answer_id=message.answer_id, sent_at=context.now
    )
    text = "\n".join(filter(None, (DELIVER_TEXT, message.note)))
    return DeliveryOrder(denied=denied, pending=PendingMessage(task_message=task_message, text=text))


def _send_message(to: SignalContext, given: TaskMessageInput) -> PendingMessage:
    """Return the message with the next number, not stored yet."""
    if to.state.is_ending:
        raise ValueError("the task is ending or has ended: none of its agents would receive the message")
    task_message = TaskMessage(
        number=_next(to.state.task_messages), by=given.by, answer_id=given.answer_id, sent_at=to.now
    )
    return PendingMessage(task_message=task_message, text=given.text, message=given.message)


def _update(context: SignalContext, message: DocumentsUpdateInput) -> DocumentsUpdate:
    """Return the update with the next number, not stored yet."""
    if context.state.is_ending:
        raise ValueError("the task is ending or has ended: none of its agents would read the documents again")
    return DocumentsUpdate(
        number=_next(context.state.document_updates),
        document_set=message.documents,
        by=message.by,
        answer_id=message.answer_id,
        updated_at=context.now,
    )


def _edit(context: SignalContext, message: ContextEditInput) -> ContextEdit:
    """Return the edit, which waits from now on."""
    return ContextEdit(
        id=_editable(context.state, message.agent).next_edit_id,
        agent=message.agent,
        action=message.action,
        message=message.message or "",
        keep_message=message.keep is not False,
        compaction=message.compaction or "",
        instructions=message.instructions or "",
        by=message.by,
        note=message.note,
        answer_id=message.answer_id,
        requested_at=context.now,
    )


SignalEffect = ApprovalRequest | AnswerBatch | DeliveryOrder | PendingMessage | DocumentsUpdate | ContextEdit | PlanEdit
"""Meaning of an accepted message."""


@dataclass(frozen=True)
class TaskSignalDefinition(Generic[InputT]):
    """Defines one kind of message to a task, which takes it as a signal and as an Update.

    A row of the table `SIGNALS`.
    """

    name: str
    """Name of the signal and of the Update."""
    model: type[InputT]
    """Model of its JSON."""
    decide: Callable[[SignalContext, InputT], SignalEffect]
    """Decides what the message means to this task. Raises ValueError, with the reason, if it has no effect."""
    description: str
    """Description in the Temporal UI."""
    permission: ClientPermission | None = None
    """Permission that `Client.send` over HTTP needs. None for a message that names texts by their hashes: a method of
    the client stores those first, and has a permission of its own.
    """

    def evaluate(self, context: SignalContext, sent: JsonValue) -> SignalEffect | RejectedMessage:
        """Return the meaning of a message, or why it has no effect."""
        try:
            return self.decide(context, self.model.model_validate(sent))
        except ValueError as error:
            return build_rejection(self.name, sent, error, context.now)


APPROVAL = TaskSignalDefinition(
    APPROVE_BUDGET,
    ApproveInput,
    _approve,
    (
        "Approve a request for budget, for a tool call or for a plan: "
        '{"request_id": "research-1-1", "tokens": 20000, "by": "your name", "note": "why"}. Without "tokens", the '
        "requested amount is granted."
    ),
    permission="approve",
)
DENIAL = TaskSignalDefinition(
    DENY_BUDGET,
    DenyInput,
    _deny,
    (
        'Deny a request for budget, for a tool call or for a plan: {"request_id": "research-1-1", "finish": "partial", '
        '"by": "your name", "note": "why"}. With "partial", the agent delivers what it has, or continues without the '
        'tool call. With "cancel", the task is cancelled.'
    ),
    permission="approve",
)
DELIVERY = TaskSignalDefinition(
    DELIVER_NOW,
    DeliverInput,
    _deliver,
    (
        'End the task with what it has: {"by": "your name", "note": "why"}. All open requests are denied, and running '
        "agents are asked to submit their results."
    ),
    permission="approve",
)
PLAN = TaskSignalDefinition(
    REVIEW_PLAN,
    ReviewPlanInput,
    _review_plan,
    (
        "Send an edited plan in place of the plan that waits for approval. `waystation plan` stores the edited plan "
        "before it sends this message."
    ),
)
EDIT = TaskSignalDefinition(
    EDIT_CONTEXT,
    ContextEditInput,
    _edit,
    (
        "Change the context of a running agent when its current leg (a series of turns) ends: "
        '{"action": "pin", "agent": "research-1", "message": "m4", "by": "your name"}. Actions: "pin", "unpin" or '
        '"rewind", each with "message"; "restore" with "compaction", the id of a compaction; "compact".'
    ),
)
MESSAGE = TaskSignalDefinition(
    SEND_MESSAGE,
    TaskMessageInput,
    _send_message,
    'Send a message to all agents: {"text": "…", "by": "your name"}. Each agent receives it at its next turn.',
)
UPDATE = TaskSignalDefinition(
    UPDATE_DOCUMENTS,
    DocumentsUpdateInput,
    _update,
    "Use new versions of the documents, which `waystation documents` stores before it sends this message.",
)
SIGNALS = {signal.name: signal for signal in (APPROVAL, DENIAL, DELIVERY, PLAN, EDIT, MESSAGE, UPDATE)}
"""Kinds of messages that people send to a task, by name."""


def apply_signal(state: TaskState, sent: SignalEffect | TaskMessage | RejectedMessage) -> TaskState:
    """Return the state with the message's effect; a rejected message changes only the list of rejections."""
    match sent:
        case RejectedMessage():
            return state.after_answer(sent)
        case ApprovalRequest():
            return _apply_decision(state.after_answer(sent), sent)
        case AnswerBatch():
            return reduce(apply_signal, sent.results, state)
        case DeliveryOrder():
            state = reduce(apply_signal, (*sent.denied, sent.pending), state)
            return state.replace(delivery_requested=True, notes=merge_unique(state.notes, (DELIVERY_NOTE,)))
        case ContextEdit():
            return state.with_run(state.runs[sent.agent].with_edit(sent))
        case PlanEdit():
            return state.replace(plan_edit=sent)
        case PendingMessage(task_message=message) | (TaskMessage() as message):
            return state.replace(task_messages=_among(state.task_messages, message))
        case DocumentsUpdate():
            return state.replace(document_updates=_among(state.document_updates, sent))


def _apply_decision(state: TaskState, answer: ApprovalRequest) -> TaskState:
    match answer.decision:
        case "approved":
            if answer.about_plan:
                return state
            if answer.action is not None:
                return apply_action_decision(state, answer)
            return state.after_grant(answer.agent, answer.granted)
        case "denied":
            if answer.about_plan:
                ends = state.proposed_revision is None or answer.finish == "cancel"
                return state.replace(cancelled=state.cancelled or ends)
            if answer.action is not None:
                return apply_action_decision(state, answer)
            return state.after_denial(answer.agent)
        case "pending" | "expired" | "withdrawn":
            # No one decided. Whatever closed the request, a deadline or freed budget, has changed the state itself.
            return state


def reject_unstored(
    signal: str, state: TaskState, sent: TaskMessage | DocumentsUpdate, reason: str, now: datetime
) -> tuple[TaskState, RejectedMessage]:
    """Reject a message after all, because what it refers to is not in the store."""
    refused = RejectedMessage(signal=signal, reason=reason, at=now, answer_id=sent.answer_id)
    match sent:
        case TaskMessage():
            state = state.replace(task_messages=_others(state.task_messages, sent))
        case DocumentsUpdate():
            state = state.replace(document_updates=_others(state.document_updates, sent))
    return state.after_answer(refused), refused


def _next(known: Sequence[TaskMessage] | Sequence[DocumentsUpdate]) -> int:
    return 1 + max((one.number for one in known), default=0)


def _others(known: tuple[NumberedT, ...], one: NumberedT) -> tuple[NumberedT, ...]:
    return tuple(other for other in known if other.number != one.number)


def _among(known: tuple[NumberedT, ...], one: NumberedT) -> tuple[NumberedT, ...]:
    return tuple(sorted((*_others(known, one), one), key=lambda each: each.number))


def make_audit_entry_id(entry: AuditEntry) -> str:
    """Return the ID of an entry in a task's audit trail; the same entry has the same ID."""
    match entry:
        case ApprovalRequest():
            return short_hash("approval", entry.request_id, entry.decision)
        case RejectedMessage():
            one_of_several = (entry.request_id,) if entry.request_id else ()
            at = entry.at.astimezone(UTC).isoformat()
            return short_hash("refusal", entry.signal, entry.reason, at, *one_of_several)
        case ContextEdit():
            return short_hash("edit", entry.agent, entry.id, entry.state)
        case TaskMessage():
            return f"{TASK_MESSAGE_PREFIX}{entry.number}"
        case RecordedDocumentsUpdate():
            return f"{DOCUMENTS_UPDATE_PREFIX}{entry.number}"
        case PlaceholderResolution():
            return short_hash("resolution", entry.agent, entry.call_id, *entry.placeholders)


AnswerOutcome = Literal["approved", "denied", "done", "waiting", "refused", "not_needed", "unseen"]


class AnswerResult(Value):
    """The result of a message to a task."""

    outcome: AnswerOutcome
    """`unseen`: it was sent and will be read, but no worker has answered for it yet; `waiting`: an edit waits for its
    agent's leg to end; `not_needed`: the request was closed meanwhile because its agent got budget elsewhere, and the
    answer was for all open requests. The request itself then has the decision `withdrawn`.
    """
    reason: str = ""


class UpdateResult(AnswerResult):
    """What an Update answers: what became of the message that it brought."""

    each: dict[str, AnswerResult] = {}
    """By request id, of a message that answers several."""
    continues: bool = False
    """The task is about to continue as new, and waits for nothing: the same message, sent again with the same id, is
    answered by its next run.
    """

    @property
    def answer(self) -> AnswerResult:
        """What people see of it."""
        return AnswerResult(outcome=self.outcome, reason=self.reason)


CONTINUES = UpdateResult(
    outcome="unseen", reason="the task continues as new: send the message again, with the same id", continues=True
)
ENDED = UpdateResult(
    outcome="refused", reason="the task ended before it read the message, so the message has no effect"
)

MAX_REASON_CHARACTERS_EACH = 200
"""Characters of what is said of one of several requests: 1,000 of them are one payload, of 2 MB at most."""

FoundMessage = RejectedMessage | ApprovalRequest | TaskMessage | DocumentsUpdate | ContextEdit | PlanEdit
"""What a task's state has of a message."""


def find_messages(state: TaskState, answer_id: str) -> tuple[FoundMessage, ...]:
    """What the state has of the message that was sent with this id: several where it answers several requests, nothing
    where none came. A message that is sent again with its id is the same one, and has no effect of its own.
    """
    if not answer_id:
        return ()
    edits = (edit for run in state.all_runs for edit in run.context_edits)
    plans = () if state.plan_edit is None else (state.plan_edit,)
    # The message of a delivery comes before the requests that are denied for it: it says what became of the order.
    known = (*state.rejected_messages, *state.task_messages, *state.approvals, *state.document_updates, *edits, *plans)
    return tuple(one for one in known if one.answer_id == answer_id)


def build_update_result(found: Sequence[FoundMessage]) -> UpdateResult | None:
    """Build the result of a message from what the state has of it. None if part of the result is still missing.

    An edit of a context that waits for its agent's leg to end has the outcome `waiting`.
    """
    seen = [(one, _seen(one)) for one in found]
    results = [result for _, result in seen if result is not None]
    if not results or len(results) < len(seen):
        return None
    several = [(name, result) for one, result in seen if result is not None and (name := _request_id(one))]
    each = {name: _shortened(result) for name, result in several if len(seen) > 1}
    return UpdateResult(outcome=results[0].outcome, reason=results[0].reason, each=each)


def _request_id(one: FoundMessage) -> str:
    return one.request_id if isinstance(one, ApprovalRequest | RejectedMessage) else ""


def _shortened(result: AnswerResult) -> AnswerResult:
    return result.replace(reason=truncate_redacted(result.reason, MAX_REASON_CHARACTERS_EACH, " …"))


def _find_decision(request: ApprovalRequest) -> AnswerResult | None:
    """Return what a person decided; None if no person has."""
    match request.decision:
        case "approved" | "denied" as outcome:
            return AnswerResult(outcome=outcome, reason=request.note)
        case "pending" | "expired" | "withdrawn":
            return None


def _seen(sent: FoundMessage) -> AnswerResult | None:
    match sent:
        case RejectedMessage():
            return AnswerResult(outcome="refused", reason=sent.reason)
        case ApprovalRequest():
            return _find_decision(sent)
        case PlanEdit():
            return None
        case TaskMessage():
            return AnswerResult(outcome="done") if sent.text else None
        case DocumentsUpdate():
            return AnswerResult(outcome="done", reason=sent.text) if sent.stored else None
        case ContextEdit():
            return AnswerResult(outcome=sent.state, reason=sent.reason)


UNENCRYPTED_REASON = (
    "the message is not encrypted, and the workers of this server only accept messages encrypted with their "
    "key: send it with `waystation`, or in a UI that has the codec endpoint "
    "(docs/how-to/read-encrypted-workflows.md)"
)
"""Why a message has no effect."""


class DecryptedPayload(dict[str, JsonValue]):
    """A JSON object that was encrypted with a key of the workers. Only the payload converter creates one."""


def was_encrypted(sent: tuple[JsonValue, ...]) -> bool:
    """Return whether the sender has the key. Without any input nothing could show it."""
    return bool(sent) and all(isinstance(value, DecryptedPayload) for value in sent)


def single_payload(sent: tuple[JsonValue, ...]) -> JsonValue:
    """Return the signal's input as one value: None without any; several become a list, which no message of ours is."""
    return sent[0] if len(sent) == 1 else list(sent) or None


def parse_signal_input(model: type[ModelT], sent: tuple[JsonValue, ...]) -> ModelT | None:
    """Parse a message; return None if the input is not one."""
    try:
        return model.model_validate(single_payload(sent))
    except ValidationError:
        return None
