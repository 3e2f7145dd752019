"""The port to what counts tokens, money, calls and compactions, without content and without ids."""

from typing import Protocol

from waystation.context.compaction import CompactionOutcome
from waystation.context.transcript import Charge
from waystation.kernel.errors import ModelError
from waystation.models.ports import CallKind
from waystation.privacy.policy import TextDestination


class Meter(Protocol):
    """Counts since this process started. Counting never fails and never waits."""

    def record_model_reply(self, charge: Charge) -> None:
        """A model call was answered, and cost this; without a known price it counts as unpriced."""
        ...

    def record_model_failure(self, kind: CallKind, model: str, error: ModelError) -> None:
        """A model call gave no reply."""
        ...

    def record_compaction(self, outcome: CompactionOutcome) -> None:
        """A compaction ended."""
        ...

    def record_redactions(self, place: TextDestination, spans: int) -> None:
        """So many private stretches were replaced in texts on their way there."""
        ...

    def set_pending_passages(self, count: int) -> None:
        """So many passages are in the outbox now."""
        ...

    def set_paused_tasks(self, count: int) -> None:
        """So many running tasks wait for an answer about money now."""
        ...

    def record_sampling_failure(self, gauge: str) -> None:
        """A gauge keeps its last value, because what it shows could not be read."""
        ...
