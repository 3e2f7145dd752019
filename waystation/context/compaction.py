"""What a compaction is asked to do and how it ended, and a person's change to the context of a running agent.

Numbers and references alone, safe for workflow history: so is what a hook is told of it.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Literal

from waystation.agents.leg import AgentConfig
from waystation.budgets.budget import RunUsage
from waystation.kernel.amount import Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.value import Value
from waystation.security.untrusted import LONGEST_NOTE, render_claimed_name, sanitize_line


class CompactionStatus(StrEnum):
    """Every way in which a compaction can end."""

    COMPRESSED = "COMPRESSED"
    OFFLOADED = "OFFLOADED"
    """Results that are too large for any context became previews. Runs do so when a tool returns."""
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
    """The hook before it failed, and may block."""

    @property
    def made_room(self) -> bool:
        """Whether the view is smaller than before."""
        return self in {
            CompactionStatus.COMPRESSED,
            CompactionStatus.OFFLOADED,
            CompactionStatus.MASKED,
            CompactionStatus.TRUNCATED,
        }


class CompactionOutcome(Value):
    """One compaction of one agent run. Token counts are of the whole request, system prompt and tools included."""

    compaction_id: str
    status: CompactionStatus
    strategy: str
    tokens_before: int
    tokens_after: int
    covered: int
    """Messages that the record hides."""
    passages: int
    """Passages made from what was hidden."""
    passages_waiting: int = 0
    """Of these, not yet in Qdrant: it or the embedder did not answer."""
    redactions: int = 0
    """Spans replaced before the summariser saw the text, and in the summary."""
    added: tuple[str, ...] = ()
    """What the check before commit wrote under the summary: kinds and counts."""
    removed: tuple[str, ...] = ()
    """What it took out of the summary: kinds and counts."""
    totals: RunUsage
    notes: tuple[str, ...] = ()


class CompactionTotals(Value):
    """Several compactions added up: what remains of those that are not listed any more."""

    count: int = 0
    made_room: int = 0
    """How many of them made the view smaller; the following is of these alone."""
    hidden_tokens: int = 0
    passages: int = 0
    redactions: int = 0

    @classmethod
    def from_outcomes(cls, outcomes: Iterable[CompactionOutcome]) -> "CompactionTotals":
        """The outcomes added up."""
        outcomes = tuple(outcomes)
        made = [outcome for outcome in outcomes if outcome.status.made_room]
        return cls(
            count=len(outcomes),
            made_room=len(made),
            hidden_tokens=sum(outcome.tokens_before - outcome.tokens_after for outcome in made),
            passages=sum(outcome.passages for outcome in made),
            redactions=sum(outcome.redactions for outcome in made),
        )

    def __add__(self, other: "CompactionTotals") -> "CompactionTotals":
        """Both added up."""
        return CompactionTotals(
            count=self.count + other.count,
            made_room=self.made_room + other.made_room,
            hidden_tokens=self.hidden_tokens + other.hidden_tokens,
            passages=self.passages + other.passages,
            redactions=self.redactions + other.redactions,
        )


class AgentCompaction(CompactionOutcome):
    """A compaction and the agent whose it was, as shown to people."""

    agent: str


class CompactionEvent(Value):
    """A compaction is about to be made, or has ended. Token counts are of the whole request."""

    event: Literal["before", "after"]
    trigger: Literal["manual", "auto"]
    """Whether a person asked for it, or the context was full."""
    task: str
    agent: str
    """The id of its step, like research-1."""
    run_id: str
    strategy: str
    tokens: int
    """Before it."""
    window: int
    status: CompactionStatus | None = None
    """This and the following: of one that has ended."""
    compaction_id: str | None = None
    """Empty where nothing was committed."""
    tokens_after: int | None = None
    covered: int | None = None
    """Messages that it hides."""
    notes: int | None = None
    """How many notes it left for people."""

    def with_outcome(self, outcome: CompactionOutcome) -> "CompactionEvent":
        """The same compaction after it was made."""
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
        """One line of JSON, with what is known."""
        return self.model_dump_json(exclude_none=True) + "\n"


ContextEditAction = Literal["compact", "pin", "unpin", "restore", "rewind"]
EDIT_PREFIX = "edit-"
TOO_LATE = "the agent had delivered before it could be carried out"


class ContextEdit(Value):
    """One change, carried out between two legs. References and numbers, no text from the work."""

    id: str
    """`edit-N`, counted in the agent run. What it commits derives its id from it, so that a retry commits it once."""
    agent: str
    action: ContextEditAction
    message: str = ""
    """Which one to pin or unpin, or to go back to."""
    keep: bool = True
    """Whether the message that is gone back to stays itself."""
    compaction: str = ""
    """Which one to restore: its id, or the beginning of it."""
    instructions: str = ""
    """Content hash of what the summary is to heed."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    note: str = ""
    answer_id: str = ""
    asked_at: datetime
    state: Literal["waiting", "done", "refused"] = "waiting"
    reason: str = ""
    """What came of it; where it was refused, why: then nothing was changed."""

    @property
    def short_description(self) -> str:
        """As it follows on the agent's name: `research-1: pin m4`."""
        match self.action:
            case "compact":
                return "compact with instructions" if self.instructions else "compact"
            case "pin" | "unpin":
                return f"{self.action} {self.message}"
            case "rewind":
                return f"rewind {'to' if self.keep else 'before'} {self.message}"
            case "restore":
                return f"restore {self.compaction}"

    @property
    def text(self) -> str:
        """Who asked for what, and what became of it, in one line."""
        asked = (
            f"{self.agent}: {sanitize_line(self.short_description)} ({self.id}), asked for by "
            f"{render_claimed_name(self.by)}"
        )
        claim = " (a name as given)" if self.by else ""
        note = f" [{sanitize_line(self.note, LONGEST_NOTE)}]" if self.note else ""
        became = {"waiting": "waits for the end of its leg", "done": "done", "refused": "refused"}[self.state]
        return f"{asked}{claim}{note}: {became}" + (f", {self.reason}" if self.reason else "")


class EditRequest(Value):
    """What the activity `EditContext` is asked to do."""

    run: RunRef
    terms: AgentConfig
    limit: Limit
    """What the agent run may have spent in all; a summary is charged to it."""
    edit: ContextEdit
    scale: float = 1.0
    """What the provider counted for the run's last request, over what was estimated."""
    known_records: int
    """Compactions of this run that the workflow knows to be committed."""
    give_up_summary: bool = False
    """The summariser failed too often."""


class EditOutcome(Value):
    """What became of it."""

    state: Literal["done", "refused"]
    reason: str = ""
    compaction: CompactionOutcome | None = None
    """Of a summary that was asked for, also where it was refused after it had cost something."""


class ManualCompaction(Value):
    """A summary that a person asks for, however full the context is. Not for workflow history: it holds their words."""

    edit_id: str
    """Makes its record and its charge its own: what was refused once may be asked for again, and is paid again."""
    instructions: str = ""
    """What the summary is to heed, redacted."""
    scale: float = 1.0
    """What the provider counted for the run's last request, over what was estimated."""


class CompactionRequest(Value):
    """Make room in one agent run's context."""

    run: RunRef
    terms: AgentConfig
    limit: Limit
    """What the agent run may have spent in all; the summariser's call is charged to it."""
    request_tokens: int = 0
    """The request that was too large, corrected by what the provider counted before; 0 where a person asked."""
    known_records: int
    """Compactions of this run that the workflow knows to be committed: one more in the store was made by an earlier
    attempt at this very request."""
    give_up_summary: bool = False
    """The summariser failed too often: go on to the next rung."""
