"""How a compaction ended: numbers and references, safe for workflow history."""

from enum import StrEnum

from waystation.domain.budget import RunTotals
from waystation.domain.value import Value


class Status(StrEnum):
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
        return self in {Status.COMPRESSED, Status.OFFLOADED, Status.MASKED, Status.TRUNCATED}


class CompactionOutcome(Value):
    """One compaction of one agent run. Token counts are of the whole request, system prompt and tools included."""

    compaction_id: str
    status: Status
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
    totals: RunTotals
    notes: tuple[str, ...] = ()


class AgentCompaction(CompactionOutcome):
    """A compaction and the agent whose it was, as shown to people."""

    agent: str
