"""A person's change to the context of a running agent: what was asked for, how it is handed on, what became of it."""

from datetime import datetime
from typing import Literal

from waystation.domain.amount import Limit
from waystation.domain.compaction.outcome import CompactionOutcome
from waystation.domain.leg import AgentTerms, RunRef
from waystation.domain.value import Value

Action = Literal["compact", "pin", "unpin", "restore", "rewind"]
EDIT_PREFIX = "edit-"
TOO_LATE = "the agent had delivered before it could be carried out"


class ContextEdit(Value):
    """One change, carried out between two legs. References and numbers, no text from the work."""

    id: str
    """`edit-N`, counted in the agent run. What it commits derives its id from it, so that a retry commits it once."""
    agent: str
    action: Action
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
    def what(self) -> str:
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
        asked = f"{self.agent}: {self.what} ({self.id}), asked for by {self.by or 'nobody named'}"
        claim = " (a name as given)" if self.by else ""
        note = f" [{self.note}]" if self.note else ""
        became = {"waiting": "waits for the end of its leg", "done": "done", "refused": "refused"}[self.state]
        return f"{asked}{claim}{note}: {became}" + (f", {self.reason}" if self.reason else "")


class EditRequest(Value):
    """What the activity `EditContext` is asked to do."""

    run: RunRef
    terms: AgentTerms
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
