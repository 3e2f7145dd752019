"""Events of tasks, numbered by the store in commit order; and the legs and answered calls derived from them.

Events hold references, no text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from waystation.agents.action_approvals import PlaceholderResolution
from waystation.agents.task_messages import TaskMessage
from waystation.documents.documents import RecordedDocumentsUpdate
from waystation.kernel.value import Value
from waystation.store.events import EventKind, UnnumberedEvent
from waystation.tasks.signals import make_audit_entry_id
from waystation.tasks.task import ApprovalRequest, AuditEntry, ContextEdit, RejectedMessage, TaskPhase


class TaskEvent(UnnumberedEvent):
    """A numbered event. Numbers of a tenant start at 1 and have no gaps."""

    number: int
    task_id: str
    at: datetime


def build_phase_event(phase: TaskPhase) -> UnnumberedEvent:
    """Build the event of a stored phase: the task ended, or was reopened by a rewind."""
    return UnnumberedEvent(kind="ended" if phase.over else "reopened", detail=phase.value)


class EventPage(Value):
    """Events in order, as far as they were read."""

    events: tuple[TaskEvent, ...]
    upto: int
    """Number up to which this reader has seen every event that it may see."""


def build_audit_event(entry: AuditEntry) -> UnnumberedEvent:
    """Build the event of an audit entry, with its ID."""
    match entry:
        case ApprovalRequest():
            kind: EventKind = "asked" if entry.decision == "pending" else "answered"
            told = UnnumberedEvent(kind=kind, agent=entry.agent, detail=entry.decision)
        case RejectedMessage():
            told = UnnumberedEvent(kind="refused", detail=entry.signal)
        case ContextEdit():
            told = UnnumberedEvent(kind="edited", agent=entry.agent, detail=entry.state)
        case TaskMessage():
            told = UnnumberedEvent(kind="messaged")
        case RecordedDocumentsUpdate():
            told = UnnumberedEvent(kind="updated")
        case PlaceholderResolution():
            told = UnnumberedEvent(kind="resolved", agent=entry.agent)
    return told.replace(reference=make_audit_entry_id(entry))


@dataclass(frozen=True)
class LegEvents:
    """An agent's events up to the end of a leg, or of the task."""

    agent: str
    ordinal: int
    """Number of the leg among the agent's legs, from 1."""
    before: tuple[TaskEvent, ...]
    """Events since the previous leg, such as compactions and people's answers."""
    at_work: tuple[TaskEvent, ...]
    """Events from when the leg was taken; empty if there was no leg."""
    closed: TaskEvent | None
    """The end of the leg or of the task; None while it is running."""

    @property
    def first_event_number(self) -> int:
        """Number of its first event; 0 if there was no leg."""
        return self.at_work[0].number if self.at_work else 0

    @property
    def last_event(self) -> TaskEvent:
        """Event at which its span ends. If the task's end closes the leg, this is the leg's own last event."""
        return self.closed if self.closed is not None and self.closed.kind == "left" else self.at_work[-1]


def iter_legs(agent: str, events: Sequence[TaskEvent]) -> Iterator[LegEvents]:
    """Yield the agent's legs, in order."""
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
    """Return whether only a leg does this. Compactors and people's edits take a run over, too."""
    turn = event.reference if event.kind == "called" else event.detail if event.kind == "replied" else ""
    return event.kind in {"given", "noted", "delivered", "left"} or turn.partition("-")[0] in {"turn", "search"}


@dataclass(frozen=True)
class AnsweredCall:
    """An answered model call."""

    event: TaskEvent
    key: str
    began: datetime
    attempts: int
    """Number of intents: one more than the attempts without an answer."""


def iter_answered_calls(events: Sequence[TaskEvent]) -> Iterator[AnsweredCall]:
    """Yield the answered calls of one agent run, by answer. Calls of one kind are sequential."""
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
