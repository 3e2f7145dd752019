"""Events: what happened to tasks, numbered by the store in the order of its commits. References, no text.

What they tell of an agent's legs, and of the model calls that were answered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from waystation.agents.action_approvals import PlaceholderResolution
from waystation.context.transcript import Charge, Compaction, Message, PromptPrefixRecord, Record, RewindRecord
from waystation.documents.documents import RecordedDocumentsUpdate
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.store.events import EventKind, UnnumberedEvent
from waystation.tasks.signals import make_audit_entry_id
from waystation.tasks.task import ApprovalRequest, AuditEntry, ContextEdit, RejectedMessage, TaskMessage, TaskPhase


class TaskEvent(UnnumberedEvent):
    """One event. Numbers of a tenant begin with 1 and have no gaps."""

    number: int
    task_id: str
    at: datetime


def build_phase_event(phase: TaskPhase) -> UnnumberedEvent:
    """How a task stands was stored: it is over, or goes on by a rewind."""
    return UnnumberedEvent(kind="ended" if phase.over else "reopened", detail=phase.value)


class EventPage(Value):
    """Events in their order, as far as they were read."""

    events: tuple[TaskEvent, ...]
    upto: int
    """Nothing that this reader may see has a number up to here and is not among them, or before them."""


def build_charge_event(kind: EventKind, charge: Charge, message: Message | None = None) -> UnnumberedEvent:
    """A charge, with the message that it paid for or without."""
    usage: Usage = charge.usage
    return UnnumberedEvent(
        kind=kind,
        reference=charge.key if message is None else message.id,
        detail=charge.kind,
        tokens=usage.total,
        context=usage.prompt_tokens if charge.kind == "turn" else 0,
        micro_usd=charge.cost_micro_usd or 0,
    )


def build_record_event(record: Record) -> UnnumberedEvent | None:
    """Something was done to a conversation. None where it only says what is sent."""
    if isinstance(record, PromptPrefixRecord):
        return None
    kind: EventKind = "edited"
    if isinstance(record, Compaction):
        kind = "compacted"
    elif isinstance(record, RewindRecord):
        kind = "rewound"
    return UnnumberedEvent(kind=kind, reference=record.id, detail=record.type)


def build_audit_event(entry: AuditEntry) -> UnnumberedEvent:
    """An entry of the audit trail, by its id there."""
    match entry:
        case ApprovalRequest():
            kind: EventKind = "asked" if entry.decision == "pending" else "answered"
            told = UnnumberedEvent(kind=kind, agent=entry.agent, detail=entry.decision)
        case RejectedMessage():
            told = UnnumberedEvent(kind="refused", detail=entry.signal)
        case ContextEdit():
            told = UnnumberedEvent(kind="edited", agent=entry.agent, detail=entry.state)
        case TaskMessage():
            told = UnnumberedEvent(kind="told")
        case RecordedDocumentsUpdate():
            told = UnnumberedEvent(kind="updated")
        case PlaceholderResolution():
            told = UnnumberedEvent(kind="resolved", agent=entry.agent)
    return told.replace(reference=make_audit_entry_id(entry))


@dataclass(frozen=True)
class LegEvents:
    """A stretch of an agent's events that ends with a leg's end, or the task's."""

    agent: str
    ordinal: int
    """Among the agent's stretches with a leg, from 1."""
    before: tuple[TaskEvent, ...]
    """Since the leg before: its context was made smaller, people answered."""
    at_work: tuple[TaskEvent, ...]
    """From when the leg was taken; none where there was none."""
    closed: TaskEvent | None
    """Its end, or the task's; None while it is at work."""

    @property
    def first_event_number(self) -> int:
        """Of the event that it began with; 0 where there was no leg."""
        return self.at_work[0].number if self.at_work else 0

    @property
    def last_event(self) -> TaskEvent:
        """The event that its span ends at: what the task's end closes, has ended before."""
        return self.closed if self.closed is not None and self.closed.kind == "left" else self.at_work[-1]


def iter_legs(agent: str, events: Sequence[TaskEvent]) -> Iterator[LegEvents]:
    """The agent's stretches, in order."""
    stretch: list[TaskEvent] = []
    ordinal = 1
    for event in events:
        if event.kind == "ended" or event.agent == agent:
            stretch.append(event)
        if event.kind == "ended" or (event.agent == agent and event.kind == "left"):
            leg = _leg(agent, ordinal, stretch, event)
            yield leg
            stretch, ordinal = [], ordinal + bool(leg.at_work)
    yield _leg(agent, ordinal, stretch, None)


def _leg(agent: str, ordinal: int, stretch: Sequence[TaskEvent], closed: TaskEvent | None) -> LegEvents:
    own = [event for event in stretch if event.agent == agent]
    worked = next((place for place, event in enumerate(own) if _is_work(event)), len(own))
    begun = max((place for place in range(worked) if own[place].kind == "taken"), default=worked)
    at_work = own[begun:] if worked < len(own) else []
    return LegEvents(agent, ordinal, tuple(own[: len(own) - len(at_work)]), tuple(at_work), closed)


def _is_work(event: TaskEvent) -> bool:
    """Whether only a leg does it. Condensers and people's edits take a run over, too."""
    turn = event.reference if event.kind == "called" else event.detail if event.kind == "replied" else ""
    return event.kind in {"given", "noted", "delivered", "left"} or turn.partition("-")[0] in {"turn", "search"}


@dataclass(frozen=True)
class AnsweredCall:
    """A model call that was answered."""

    event: TaskEvent
    key: str
    began: datetime
    attempts: int
    """How often it was announced: one more than got no answer."""


def iter_answered_calls(events: Sequence[TaskEvent]) -> Iterator[AnsweredCall]:
    """Of one agent run, in the order of their answers. Those of a kind are made one after the other."""
    asked: dict[str, list[TaskEvent]] = {}
    newest: dict[str, str] = {}
    for event in events:
        if event.kind == "called":
            asked.setdefault(event.reference, []).append(event)
            newest[event.reference.partition("-")[0]] = event.reference
        elif event.kind in {"replied", "charged"}:
            key = event.reference if event.kind == "charged" else newest.get(event.detail, event.reference)
            times = asked.get(key, [event])
            yield AnsweredCall(event, key, times[-1].at, len(times))
