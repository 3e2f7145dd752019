"""Outcomes of compactions, and people's edits of the context of a running agent.

Everything here is numbers and references, safe for workflow history and for hooks.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Literal, Self

from waystation.budgets.budget import RunUsage
from waystation.kernel.identifiers import Identifier
from waystation.kernel.value import Value
from waystation.security.untrusted import MAX_NOTE_CHARACTERS, render_claimed_name, sanitize_line


class CompactionStatus(StrEnum):
    """All possible outcomes of a compaction."""

    COMPRESSED = "COMPRESSED"
    OFFLOADED = "OFFLOADED"
    """Results too large for any context became previews. Agent runs do this when a tool returns."""
    MASKED = "MASKED"
    """Old, re-readable tool results became placeholders, and that was enough."""
    NOOP = "NOOP"
    NOOP_LITTLE_TO_GAIN = "NOOP_LITTLE_TO_GAIN"
    FAILED_EMPTY_SUMMARY = "FAILED_EMPTY_SUMMARY"
    FAILED_INFLATED = "FAILED_INFLATED"
    FAILED_CHECK = "FAILED_CHECK"
    FAILED_SUMMARISER = "FAILED_SUMMARISER"
    FAILED_TOKEN_COUNT = "FAILED_TOKEN_COUNT"
    TRUNCATED = "TRUNCATED"
    CANNOT_FIT = "CANNOT_FIT"
    BLOCKED = "BLOCKED"
    """The hook before the compaction failed, and is allowed to block."""

    @property
    def made_room(self) -> bool:
        """Whether the view became smaller."""
        return self in {
            CompactionStatus.COMPRESSED,
            CompactionStatus.OFFLOADED,
            CompactionStatus.MASKED,
            CompactionStatus.TRUNCATED,
        }


class CompactionOutcome(Value):
    """One compaction of one agent run. Token counts are of the whole request, with system prompt and tools."""

    compaction_id: Identifier
    status: CompactionStatus
    strategy: Identifier
    tokens_before: int
    tokens_after: int
    covered: int
    """Number of messages that the record hides."""
    passages: int
    """Number of passages made from the hidden messages."""
    passages_waiting: int = 0
    """Number of those not yet in Qdrant, because it or the embedder did not answer."""
    redactions: int = 0
    """Number of spans replaced before the summariser saw the text, and in the summary."""
    added: tuple[str, ...] = ()
    """What the check before commit added below the summary: kinds and counts."""
    removed: tuple[str, ...] = ()
    """What the check before commit removed from the summary: kinds and counts."""
    totals: RunUsage
    notes: tuple[str, ...] = ()


class CompactionTotals(Value):
    """Totals of the compactions that are no longer listed one by one."""

    count: int = 0
    effective_count: int = 0
    """Number of those that made the view smaller; the fields below count these alone."""
    hidden_tokens: int = 0
    passages: int = 0
    redactions: int = 0

    @classmethod
    def from_outcomes(cls, outcomes: Iterable[CompactionOutcome]) -> "CompactionTotals":
        """Return the totals of these outcomes."""
        outcomes = tuple(outcomes)
        made = [outcome for outcome in outcomes if outcome.status.made_room]
        return cls(
            count=len(outcomes),
            effective_count=len(made),
            hidden_tokens=sum(outcome.tokens_before - outcome.tokens_after for outcome in made),
            passages=sum(outcome.passages for outcome in made),
            redactions=sum(outcome.redactions for outcome in made),
        )

    def __add__(self, other: "CompactionTotals") -> "CompactionTotals":
        """Return the sum of both."""
        return CompactionTotals(
            count=self.count + other.count,
            effective_count=self.effective_count + other.effective_count,
            hidden_tokens=self.hidden_tokens + other.hidden_tokens,
            passages=self.passages + other.passages,
            redactions=self.redactions + other.redactions,
        )


class AgentCompaction(CompactionOutcome):
    """A compaction and its agent, as shown to people."""

    agent: Identifier

    @classmethod
    def from_outcome(cls, agent: str, outcome: CompactionOutcome) -> Self:
        """Build it from the outcome that the agent's run reports."""
        return cls(
            agent=agent,
            compaction_id=outcome.compaction_id,
            status=outcome.status,
            strategy=outcome.strategy,
            tokens_before=outcome.tokens_before,
            tokens_after=outcome.tokens_after,
            covered=outcome.covered,
            passages=outcome.passages,
            passages_waiting=outcome.passages_waiting,
            redactions=outcome.redactions,
            added=outcome.added,
            removed=outcome.removed,
            totals=outcome.totals,
            notes=outcome.notes,
        )


class CompactionEvent(Value):
    """A compaction that is about to start or has ended, as sent to hooks. Token counts are of the whole request."""

    event: Literal["before", "after"]
    trigger: Literal["manual", "auto"]
    """Whether a person asked for it, or the context was full."""
    task: str
    agent: str
    """ID of its step, such as research-1."""
    run_id: str
    strategy: str
    tokens: int
    """Tokens before the compaction."""
    window: int
    status: CompactionStatus | None = None
    """This and the fields below are set after the compaction."""
    compaction_id: str | None = None
    """Empty if nothing was committed."""
    tokens_after: int | None = None
    covered: int | None = None
    """Number of messages that it hides."""
    notes: int | None = None
    """Number of notes for people."""

    def with_outcome(self, outcome: CompactionOutcome) -> "CompactionEvent":
        """Return the event for after the compaction."""
        return self.replace(
            event="after",
            tokens=outcome.tokens_before,
            status=outcome.status,
            compaction_id=outcome.compaction_id,
            tokens_after=outcome.tokens_after,
            covered=outcome.covered,
            notes=len(outcome.notes),
        )

    @property
    def json_line(self) -> str:
        """The event as one line of JSON, without unset fields."""
        return self.model_dump_json(exclude_none=True) + "\n"


ContextEditAction = Literal["compact", "pin", "unpin", "restore", "rewind"]
EDIT_PREFIX = "edit-"
TOO_LATE_REASON = "the agent delivered its result before the edit could be carried out"


class ContextEdit(Value):
    """A person's edit of a context, applied between two legs. References and numbers, no text from the work."""

    id: Identifier
    """`edit-N`, counted in the agent run. IDs of what it commits derive from it, so that a retry commits once."""
    agent: Identifier
    action: ContextEditAction
    message: Identifier = ""
    """ID of the message to pin, unpin or rewind to."""
    keep_message: bool = True
    """Whether the message that is rewound to stays."""
    compaction: Identifier = ""
    """ID, or its beginning, of the compaction to restore."""
    instructions: str = ""
    """Content hash of the instructions for the summary."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    note: str = ""
    answer_id: Identifier = ""
    requested_at: datetime
    state: Literal["waiting", "done", "refused"] = "waiting"
    reason: str = ""
    """Result; for a refused edit, why nothing was changed."""

    @property
    def short_description(self) -> str:
        """The edit as shown after the agent's name: `research-1: pin m4`."""
        match self.action:
            case "compact":
                return "compact with instructions" if self.instructions else "compact"
            case "pin" | "unpin":
                return f"{self.action} {self.message}"
            case "rewind":
                return f"rewind {'to' if self.keep_message else 'before'} {self.message}"
            case "restore":
                return f"restore {self.compaction}"

    @property
    def text(self) -> str:
        """Who asked for what, and the result, in one line."""
        asked = (
            f"{self.agent}: {sanitize_line(self.short_description)} ({self.id}), requested by "
            f"{render_claimed_name(self.by)}"
        )
        claim = " (name not verified)" if self.by else ""
        note = f" [{sanitize_line(self.note, MAX_NOTE_CHARACTERS)}]" if self.note else ""
        became = {
            "waiting": "waits until the agent's current series of turns ends",
            "done": "done",
            "refused": "refused",
        }[self.state]
        return f"{asked}{claim}{note}: {became}" + (f", {self.reason}" if self.reason else "")
