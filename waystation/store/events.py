"""What a transaction tells of what it does, before the store has given it a number."""

from typing import Literal

from waystation.kernel.value import Value

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


class UnnumberedEvent(Value):
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
