"""Events of a transaction, before the store has numbered them."""

from typing import Literal

from waystation.kernel.value import Value

EventKind = Literal[
    "submitted",
    "admitted",
    "planned",
    "taken",
    "called",
    "throttled",
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
    "messaged",
    "updated",
    "refused",
    "resolved",
    "ended",
    "reopened",
    "forgotten",
]
"""Of a task: submitted, admitted under a title, planned (by the version), ended (in the phase), reopened, forgotten.
Of an agent: taken over by an attempt, called its model, waited for its provider's rate limit, replied, was given
results or words, charged without a message, compacted, edited or rewound by a person, left off at the end of a leg,
noted, delivered. Of people: asked, answered, messaged, updated documents, was refused; and a tool's arguments were
resolved.
"""


class UnnumberedEvent(Value):
    """An event without a number. No field holds text of conversations or documents."""

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
