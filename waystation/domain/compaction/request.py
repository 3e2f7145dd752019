"""What the activity `CompressAndStoreContext` is asked to do: references and numbers."""

from waystation.domain.amount import Limit
from waystation.domain.leg import AgentTerms, RunRef
from waystation.domain.value import Value


class Manual(Value):
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
    terms: AgentTerms
    limit: Limit
    """What the agent run may have spent in all; the summariser's call is charged to it."""
    request_tokens: int = 0
    """The request that was too large, corrected by what the provider counted before; 0 where a person asked."""
    known_records: int
    """Compactions of this run that the workflow knows to be committed: one more in the store was made by an earlier
    attempt at this very request."""
    give_up_summary: bool = False
    """The summariser failed too often: go on to the next rung."""
