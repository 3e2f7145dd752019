"""Port for metrics of tokens, cost, calls and compactions; no content and no IDs."""

from typing import Protocol

from waystation.context.compaction import CompactionOutcome
from waystation.context.transcript import Charge
from waystation.kernel.errors import ModelError
from waystation.models.ports import CallKind
from waystation.privacy.policy import TextDestination


class Meter(Protocol):
    """Metrics since this process started. Recording never fails and never blocks."""

    def record_model_reply(self, charge: Charge) -> None:
        """Record the cost of an answered model call; without a known price it counts as unpriced."""
        ...

    def record_model_failure(self, kind: CallKind, model: str, error: ModelError) -> None:
        """Record a model call that gave no reply."""
        ...

    def record_compaction(self, outcome: CompactionOutcome) -> None:
        """Record the end of a compaction."""
        ...

    def record_redactions(self, place: TextDestination, spans: int) -> None:
        """Record the number of private spans replaced in texts for this destination."""
        ...

    def set_pending_passages(self, count: int) -> None:
        """Set the number of passages in the outbox."""
        ...

    def set_paused_tasks(self, count: int) -> None:
        """Set the number of running tasks that wait for a budget decision."""
        ...

    def record_sampling_failure(self, gauge: str) -> None:
        """Record that a gauge could not be read and keeps its last value."""
        ...
