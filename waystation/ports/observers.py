"""Ports to those who are told of the work: hooks, notices, and what counts it.

The port to what a team wants to know of compactions, or to have a say in: its hooks.

The port to people who are not looking: where notices go.

The port to what counts the work: tokens, money, calls and compactions, without content and without ids.
"""

from typing import Literal, Protocol

from waystation.domain.compaction.outcome import CompactionEvent, CompactionOutcome
from waystation.domain.errors import ModelError
from waystation.domain.notices import Notice
from waystation.domain.privacy import Place
from waystation.domain.transcript import Charge


class CompactionHook(Protocol):
    """A command or an address of the team's."""

    async def call(self, event: CompactionEvent) -> None:
        """Tell it, once, and wait until it has ended.

        Raises:
            HookFailed: it could not be told, did not end in time, or reports a failure. The message names the hook, and
                repeats nothing that it said.
        """
        ...


class Notifier(Protocol):
    """Tells of one event of a task."""

    async def send(self, notice: Notice, link: str | None) -> None:
        """Deliver it, once or, where the answer is lost, again; `delivery_id` tells repeats. `link`: the task's page.

        Raises:
            WebhookUnavailable: worth another attempt.
            WebhookRefused: another attempt changes nothing.
        """
        ...


CallKind = Literal["turn", "summary", "plan", "review", "search"]


class Meter(Protocol):
    """Counts since this process started. Counting never fails and never waits."""

    def answered(self, charge: Charge) -> None:
        """A model call was answered, and cost this; without a known price it counts as unpriced."""
        ...

    def failed(self, kind: CallKind, model: str, error: ModelError) -> None:
        """A model call gave no reply."""
        ...

    def compacted(self, outcome: CompactionOutcome) -> None:
        """A compaction ended."""
        ...

    def redacted(self, place: Place, spans: int) -> None:
        """So many private stretches were replaced in texts on their way there."""
        ...

    def passages_waiting(self, count: int) -> None:
        """So many passages are in the outbox now."""
        ...

    def tasks_paused(self, count: int) -> None:
        """So many running tasks wait for an answer about money now."""
        ...

    def not_sampled(self, gauge: str) -> None:
        """A gauge keeps its last value, because what it shows could not be read."""
        ...
