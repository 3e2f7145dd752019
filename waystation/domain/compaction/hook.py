"""What a hook is told of a compaction: references and numbers, nothing of the conversation."""

from typing import Literal

from waystation.domain.compaction.outcome import CompactionOutcome, Status
from waystation.domain.value import Value


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
    status: Status | None = None
    """This and the following: of one that has ended."""
    compaction_id: str | None = None
    """Empty where nothing was committed."""
    tokens_after: int | None = None
    covered: int | None = None
    """Messages that it hides."""
    notes: int | None = None
    """How many notes it left for people."""

    def ended(self, outcome: CompactionOutcome) -> "CompactionEvent":
        """The same compaction after it was made."""
        return self.model_copy(
            update={
                "event": "after",
                "tokens": outcome.tokens_before,
                "status": outcome.status,
                "compaction_id": outcome.compaction_id,
                "tokens_after": outcome.tokens_after,
                "covered": outcome.covered,
                "notes": len(outcome.notes),
            }
        )

    @property
    def body(self) -> str:
        """One line of JSON, with what is known."""
        return self.model_dump_json(exclude_none=True) + "\n"
