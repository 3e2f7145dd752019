"""The ladder: which rung makes room in a context that is full. Each one only where the one before is not enough."""

from typing import Literal

from waystation.domain.compaction.gate import Accepted
from waystation.domain.compaction.identity import compaction_id
from waystation.domain.compaction.mask import masking
from waystation.domain.compaction.outcome import Status
from waystation.domain.compaction.policy import Policy, Strategy
from waystation.domain.compaction.strategies import STRATEGIES
from waystation.domain.compaction.summary import FRAME_TOKENS, ledger_room, summary_message
from waystation.domain.compaction.tokens import Measure, estimate_message
from waystation.domain.compaction.truncate import truncation
from waystation.domain.compaction.units import Layout, layout
from waystation.domain.messages import Message
from waystation.domain.transcript import Masked, Summarised, Transcript, Truncated
from waystation.domain.value import Value

LEAST_SUMMARY, MOST_SUMMARY = 800, 2_000
"""Tokens: the upper end of a summary's length, for a small and for a large middle. The lower end is half of it."""
SMALLEST_SUMMARY = 64
"""A middle whose summary may have fewer tokens than these is not worth a model call."""
CONDENSED_SHARE, LARGEST_SHARE = 10, 3
"""A summary has about a tenth of its middle's tokens, and never more than a third."""


class _Rung(Value):
    tokens_before: int
    """Tokens of the whole request."""


class Nothing(_Rung):
    """There is nothing to do."""

    status: Literal[Status.NOOP, Status.NOOP_LITTLE_TO_GAIN]


class Mask(_Rung):
    """Commit this record: it alone brings the request under the target."""

    record: Masked
    tokens_after: int


class Summarise(_Rung):
    """Have the middle summarised, check the summary, and commit it."""

    compaction_id: str
    middle: tuple[Message, ...]
    """What the summary is to stand for: whole units, earlier summaries included."""
    middle_tokens: int
    """Plain estimate, without the provider's correction: what the check compares the summary with."""
    summary_tokens: tuple[int, int]
    """Least and most tokens to ask for."""

    @property
    def covered(self) -> tuple[str, ...]:
        """Ids of the middle, for the record."""
        return tuple(message.id for message in self.middle)

    def record(self, accepted: Accepted, strategy: Strategy) -> Summarised:
        """With the summary that passed the check."""
        return Summarised(
            id=self.compaction_id,
            strategy=strategy,
            covered=self.covered,
            summary=summary_message(self.compaction_id, accepted.text),
            added=accepted.added,
            removed=accepted.removed,
        )


class Truncate(_Rung):
    """Commit this record."""

    record: Truncated
    tokens_after: int


class CannotFit(_Rung):
    """No rung helps: what is named here cannot be made smaller. Tokens each; 0 where there is no such part, or where
    it is one with the part before.
    """

    limit: int
    """The request has to stay under this."""
    fixed: int
    """System prompt and tools."""
    contract: int
    latest: int
    """The latest message of the user."""
    pending: int
    """Calls that wait for their results."""
    pinned: int = 0

    @property
    def least(self) -> int:
        """All parts together."""
        return self.fixed + self.contract + self.latest + self.pending + self.pinned

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"These parts cannot be made smaller: system prompt and tools {self.fixed:,} tokens, contract "
            f"{self.contract:,}, latest request {self.latest:,}, pins {self.pinned:,}; limit {self.limit:,}."
        )


Rung = Nothing | Mask | Summarise | Truncate | CannotFit


def next_rung(
    transcript: Transcript, measure: Measure, policy: Policy, rereadable: frozenset[str], *, skip_summary: bool = False
) -> Rung:
    """What to do now.

    `rereadable` names the tools whose calls can be repeated; `skip_summary`: no summariser is to be had.
    """
    shown = layout(transcript)
    before = measure.part(measure.fixed + shown.tokens)
    if before <= policy.target:
        return Nothing(tokens_before=before, status=Status.NOOP)
    full = before >= policy.trigger
    unfit = _unfit(shown, measure, policy)
    return (
        _mask(transcript, shown, policy, measure, rereadable)
        or (unfit if unfit.least >= policy.trigger else None)
        or (None if skip_summary else _summarise(transcript, shown, policy, measure))
        or (_truncate(transcript, shown, policy, measure) if full or skip_summary else None)
        or (unfit if full else Nothing(tokens_before=before, status=Status.NOOP_LITTLE_TO_GAIN))
    )


def summary_length(middle_tokens: int) -> tuple[int, int]:
    """Least and most tokens of a summary of so many."""
    most = min(max(middle_tokens // CONDENSED_SHARE, LEAST_SUMMARY), MOST_SUMMARY, middle_tokens // LARGEST_SHARE)
    return most // 2, most


def _mask(
    transcript: Transcript, shown: Layout, policy: Policy, measure: Measure, rereadable: frozenset[str]
) -> Mask | None:
    """None where it would not bring the request under the target, or save too little."""
    masks = masking(transcript, shown, policy, rereadable)
    if masks is None:
        return None
    before = measure.part(measure.fixed + shown.tokens)
    after = measure.part(measure.fixed + shown.tokens - masks.saved)
    if after > policy.target or before - after < policy.least_saving:
        return None
    return Mask(tokens_before=before, record=masks.record, tokens_after=after)


def _summarise(transcript: Transcript, shown: Layout, policy: Policy, measure: Measure) -> Summarise | None:
    """None where the saving would be too small for a model call."""
    everything = measure.part(shown.tokens)
    middle = STRATEGIES[policy.strategy].middle
    covered = middle(shown, policy, measure, _largest(summary_length(everything)))
    tokens = sum(unit.tokens for unit in covered)
    length = summary_length(measure.part(tokens))
    if length[1] < SMALLEST_SUMMARY or measure.part(tokens) - _largest(length) < policy.least_saving:
        return None
    messages = tuple(message for unit in covered for message in unit.messages)
    return Summarise(
        tokens_before=measure.part(measure.fixed + shown.tokens),
        compaction_id=compaction_id(transcript, [message.id for message in messages], policy),
        middle=messages,
        middle_tokens=tokens,
        summary_tokens=length,
    )


def _largest(length: tuple[int, int]) -> int:
    """What a summary of this length may take in the view: with its ledger and its frame."""
    return length[1] + ledger_room(length[1]) + FRAME_TOKENS


def _truncate(transcript: Transcript, shown: Layout, policy: Policy, measure: Measure) -> Truncate | None:
    record = truncation(transcript, shown, policy, measure)
    if record is None:
        return None
    gone = frozenset(record.covered)
    left = sum(unit.tokens for unit in shown.units if unit.ids[0] not in gone)
    return Truncate(
        tokens_before=measure.part(measure.fixed + shown.tokens),
        record=record,
        tokens_after=measure.part(measure.fixed + left + estimate_message(record.marker)),
    )


def _unfit(shown: Layout, measure: Measure, policy: Policy) -> CannotFit:
    def size(index: int | None, *named: int | None) -> int:
        return 0 if index is None or index in named else measure.part(shown.units[index].tokens)

    named = {shown.contract, shown.latest, shown.pending}

    return CannotFit(
        tokens_before=measure.part(measure.fixed + shown.tokens),
        limit=policy.trigger,
        fixed=measure.part(measure.fixed),
        contract=size(shown.contract),
        latest=size(shown.latest, shown.contract),
        pending=size(shown.pending, shown.contract, shown.latest),
        pinned=sum(size(index) for index in shown.pinned - named),
    )
