"""Events: what happened to tasks, numbered by the store in the order of its commits. References, no text."""

from datetime import datetime
from typing import Literal

from waystation.domain.budget import Usage
from waystation.domain.documents import KeptUpdate
from waystation.domain.signals import entry_id
from waystation.domain.task import Approval, AuditEntry, ContextEdit, Refusal, Resolution, TaskPhase, Telling
from waystation.domain.transcript import Charge, Compaction, Message, Record, Rewound
from waystation.domain.value import Value

EventKind = Literal[
    "submitted",
    "admitted",
    "planned",
    "taken",
    "called",
    "replied",
    "given",
    "charged",
    "compacted",
    "edited",
    "rewound",
    "left",
    "noted",
    "delivered",
    "asked",
    "answered",
    "told",
    "updated",
    "refused",
    "resolved",
    "ended",
    "reopened",
    "forgotten",
]
"""Of a task: submitted, admitted under a title, planned (by the version), ended (in the phase), reopened, forgotten.
Of an agent: taken over by an attempt, called its model, replied, was given results or words, charged without a message,
compacted, edited or rewound by a person, left off at the end of a leg, noted, delivered. Of people: asked, answered,
told, updated documents, was refused; and a tool's arguments were resolved.
"""


class Happening(Value):
    """What is to be told, before it has a number. No field holds words of anybody's."""

    kind: EventKind
    agent: str = ""
    """Id of the step, or of a subagent; empty where the task as a whole is meant."""
    reference: str = ""
    """Id of the message, the record, the charge, the note or the entry of the audit trail; number of the leg, the plan
    or the attempt.
    """
    detail: str = ""
    """Type of the record, how the leg ended, the decision, the phase: words of our own."""
    tokens: int = 0
    """Spent, of all four kinds together."""
    context: int = 0
    """Tokens of the request that was answered."""
    micro_usd: int = 0
    """Spent; 0 where the price is not known, too."""


class TaskEvent(Happening):
    """One event. Numbers of a tenant begin with 1 and have no gaps."""

    number: int
    task_id: str
    at: datetime


def ended(phase: TaskPhase) -> Happening:
    """How a task stands was stored: it is over, or goes on by a rewind."""
    return Happening(kind="ended" if phase.over else "reopened", detail=phase.value)


class EventPage(Value):
    """Events in their order, as far as they were read."""

    events: tuple[TaskEvent, ...]
    upto: int
    """Nothing that this reader may see has a number up to here and is not among them, or before them."""


def charged(kind: EventKind, charge: Charge, message: Message | None = None) -> Happening:
    """A charge, with the message that it paid for or without."""
    usage: Usage = charge.usage
    return Happening(
        kind=kind,
        reference=charge.key if message is None else message.id,
        detail=charge.kind,
        tokens=usage.total,
        context=usage.prompt if charge.kind == "turn" else 0,
        micro_usd=charge.cost_micro_usd or 0,
    )


def recorded(record: Record) -> Happening:
    """Something was done to a conversation."""
    kind: EventKind = "edited"
    if isinstance(record, Compaction):
        kind = "compacted"
    elif isinstance(record, Rewound):
        kind = "rewound"
    return Happening(kind=kind, reference=record.id, detail=record.type)


def entered(entry: AuditEntry) -> Happening:
    """An entry of the audit trail, by its id there."""
    match entry:
        case Approval():
            kind: EventKind = "asked" if entry.decision == "pending" else "answered"
            told = Happening(kind=kind, agent=entry.agent, detail=entry.decision)
        case Refusal():
            told = Happening(kind="refused", detail=entry.signal)
        case ContextEdit():
            told = Happening(kind="edited", agent=entry.agent, detail=entry.state)
        case Telling():
            told = Happening(kind="told")
        case KeptUpdate():
            told = Happening(kind="updated")
        case Resolution():
            told = Happening(kind="resolved", agent=entry.agent)
    return told.model_copy(update={"reference": entry_id(entry)})
