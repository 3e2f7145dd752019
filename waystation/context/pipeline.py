"""The compaction pipeline: selects the next stage, each one only if the one before does not make enough room.

Also decides whether a summary may be tried again after failures, and how a long middle is split for the summariser.
"""

from collections.abc import Sequence
from typing import Literal

from waystation.context.compaction import CompactionStatus
from waystation.context.history import get_effective_transcript
from waystation.context.policy import CompactionPolicy, StrategyName
from waystation.context.stages import compute_compaction_id, mask_tool_results, truncate_oldest_units
from waystation.context.strategies import STRATEGIES
from waystation.context.summary import FRAME_TOKENS, LEDGER_SHARE, build_summary_message, compute_ledger_token_limit
from waystation.context.summary_validator import AcceptedSummary
from waystation.context.tokens import TokenEstimator, estimate_message, estimate_messages, estimate_text
from waystation.context.transcript import (
    MaskRecord,
    Message,
    SummaryFailureRecord,
    SummaryRecord,
    Transcript,
    TruncationRecord,
)
from waystation.context.units import TranscriptLayout, build_layout
from waystation.kernel.value import Value

MIN_SUMMARY_LIMIT = 800
"""Maximum length in tokens of the summary of a small middle. The minimum is half of it."""
SUMMARY_LIMIT_RANGE, WINDOW_TOKENS_PER_SUMMARY_TOKEN = (2_000, 6_000), 25
"""Range of the maximum length in tokens of the summary of a large middle: 1/25 of the working window within it, so that
an agent with a window of 150,000 tokens may keep 6,000.
"""
MIN_SUMMARY_TOKENS = 64
"""A middle whose summary may have fewer tokens than this is not worth a model call."""
CONDENSED_SHARE, MAX_SUMMARY_SHARE = 10, 3
"""A summary has about 1/10 of its middle's tokens, and never more than 1/3."""


class _Decision(Value):
    tokens_before: int
    """Tokens of the whole request."""


class NoopDecision(_Decision):
    """There is nothing to do."""

    status: Literal[CompactionStatus.NOOP, CompactionStatus.NOOP_LITTLE_TO_GAIN]


class MaskDecision(_Decision):
    """Commit this record, which alone brings the request under the target."""

    record: MaskRecord
    tokens_after: int


class SummariseDecision(_Decision):
    """Have the middle summarised, validate the summary, and commit it."""

    compaction_id: str
    middle: tuple[Message, ...]
    """Messages that the summary replaces: whole units, including earlier summaries."""
    middle_tokens: int
    """Plain estimate without the provider's correction, which the summary's size is compared with."""
    summary_tokens: tuple[int, int]
    """Minimum and maximum tokens to ask for."""

    @property
    def covered_ids(self) -> tuple[str, ...]:
        """IDs of the middle, for the record."""
        return tuple(message.id for message in self.middle)

    def build_record(self, accepted: AcceptedSummary, strategy: StrategyName) -> SummaryRecord:
        """Build the record with a validated summary."""
        return SummaryRecord(
            id=self.compaction_id,
            strategy=strategy,
            covered=self.covered_ids,
            summary=build_summary_message(self.compaction_id, accepted.text),
            added=accepted.added,
            removed=accepted.removed,
        )


class TruncateDecision(_Decision):
    """Commit this record."""

    record: TruncationRecord
    tokens_after: int


class CannotFitDecision(_Decision):
    """No stage helps: these parts cannot be made smaller.

    Sizes are tokens; 0 if there is no such part, or if it is the same as the part before.
    """

    limit: int
    """Limit that the request must stay under."""
    fixed_tokens: int
    """System prompt and tools."""
    brief_tokens: int
    latest_message_tokens: int
    """The user's latest message."""
    pending_call_tokens: int
    """Calls that wait for their results."""
    pinned_tokens: int = 0

    @property
    def min_tokens(self) -> int:
        """Tokens of all parts together."""
        return (
            self.fixed_tokens
            + self.brief_tokens
            + self.latest_message_tokens
            + self.pending_call_tokens
            + self.pinned_tokens
        )

    @property
    def text(self) -> str:
        """The sizes in a sentence for people."""
        calls = f"calls without results {self.pending_call_tokens:,}, " if self.pending_call_tokens else ""
        return (
            f"These parts cannot be made smaller: system prompt and tools {self.fixed_tokens:,} tokens, task brief "
            f"{self.brief_tokens:,}, latest request {self.latest_message_tokens:,}, {calls}pins "
            f"{self.pinned_tokens:,}; the limit for all of them is {self.limit:,}."
        )


CompactionDecision = NoopDecision | MaskDecision | SummariseDecision | TruncateDecision | CannotFitDecision


def select_next_stage(
    transcript: Transcript,
    measure: TokenEstimator,
    policy: CompactionPolicy,
    rereadable: frozenset[str],
    *,
    skip_summary: bool = False,
) -> CompactionDecision:
    """Select the next compaction stage.

    Args:
        transcript: The conversation.
        measure: Token estimator.
        policy: The agent's compaction policy.
        rereadable: Names of the tools whose calls can be repeated.
        skip_summary: Whether no summary can be had.
    """
    shown = build_layout(transcript)
    before = measure.scale_estimate(measure.fixed_tokens + shown.tokens)
    if before <= policy.target:
        return NoopDecision(tokens_before=before, status=CompactionStatus.NOOP)
    full = before >= policy.trigger
    unfit = _unfit(shown, measure, policy)
    return (
        _mask(transcript, shown, policy, measure, rereadable)
        or (unfit if unfit.min_tokens >= policy.trigger else None)
        or (None if skip_summary else _summarise(transcript, shown, policy, measure))
        or (_truncate(transcript, shown, policy, measure) if full or skip_summary else None)
        or (unfit if full else NoopDecision(tokens_before=before, status=CompactionStatus.NOOP_LITTLE_TO_GAIN))
    )


def compute_summary_token_range(middle_tokens: int, window: int) -> tuple[int, int]:
    """Return minimum and maximum tokens of the summary of a middle of this size, for an agent with this window."""
    lowest, highest = SUMMARY_LIMIT_RANGE
    limit = min(max(window // WINDOW_TOKENS_PER_SUMMARY_TOKEN, lowest), highest)
    most = min(max(middle_tokens // CONDENSED_SHARE, MIN_SUMMARY_LIMIT), limit, middle_tokens // MAX_SUMMARY_SHARE)
    return most // 2, most


def _mask(
    transcript: Transcript,
    layout: TranscriptLayout,
    policy: CompactionPolicy,
    measure: TokenEstimator,
    rereadable: frozenset[str],
) -> MaskDecision | None:
    """Return None if masking would not bring the request under the target, or would save too little."""
    masks = mask_tool_results(transcript, layout, policy, rereadable)
    if masks is None:
        return None
    before = measure.scale_estimate(measure.fixed_tokens + layout.tokens)
    after = measure.scale_estimate(measure.fixed_tokens + layout.tokens - masks.saved_tokens)
    if after > policy.target or before - after < policy.min_saving_tokens:
        return None
    return MaskDecision(tokens_before=before, record=masks.record, tokens_after=after)


def _summarise(
    transcript: Transcript, layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator
) -> SummariseDecision | None:
    """Return None if the saving is not worth a model call, or if what stays leaves no space for a summary."""
    everything = measure.scale_estimate(layout.tokens)
    middle = STRATEGIES[policy.strategy].select_units
    covered = middle(layout, policy, measure, _largest(compute_summary_token_range(everything, policy.window), measure))
    tokens = sum(unit.tokens for unit in covered)
    stays = measure.scale_estimate(measure.fixed_tokens + layout.tokens - tokens)
    wanted = compute_summary_token_range(measure.scale_estimate(tokens), policy.window)
    length = _fitting(wanted, stays, measure, policy)
    if (
        length[1] < MIN_SUMMARY_TOKENS
        or measure.scale_estimate(tokens) - _largest(length, measure) < policy.min_saving_tokens
    ):
        return None
    messages = tuple(message for unit in covered for message in unit.messages)
    return SummariseDecision(
        tokens_before=measure.scale_estimate(measure.fixed_tokens + layout.tokens),
        compaction_id=compute_compaction_id(transcript, [message.id for message in messages], policy),
        middle=messages,
        middle_tokens=tokens,
        summary_tokens=length,
    )


def _largest(length: tuple[int, int], measure: TokenEstimator) -> int:
    """Return the maximum tokens of a summary of this length in the view, with its ledger and its frame."""
    return length[1] + measure.scale_estimate(compute_ledger_token_limit(length[1]) + FRAME_TOKENS)


def _fitting(length: tuple[int, int], stays: int, measure: TokenEstimator, policy: CompactionPolicy) -> tuple[int, int]:
    """Return the length, or a shorter one that does not fill the context again. `stays`: tokens besides the summary."""
    if policy.too_many_messages or stays + _largest(length, measure) < policy.trigger:
        return length
    room = policy.trigger - stays - measure.scale_estimate(FRAME_TOKENS) - 2  # rounding takes less than two
    most = max(0, int(room / (1 + measure.token_ratio / LEDGER_SHARE)))
    return most // 2, most


def _truncate(
    transcript: Transcript, layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator
) -> TruncateDecision | None:
    """Return None if the context would still be full."""
    record = truncate_oldest_units(transcript, layout, policy, measure)
    if record is None:
        return None
    gone = frozenset(record.covered)
    left = sum(unit.tokens for unit in layout.units if unit.message_ids[0] not in gone)
    after = measure.scale_estimate(measure.fixed_tokens + left + estimate_message(record.marker))
    if after >= policy.trigger and not policy.too_many_messages:
        return None
    before = measure.scale_estimate(measure.fixed_tokens + layout.tokens)
    return TruncateDecision(tokens_before=before, record=record, tokens_after=after)


def _unfit(layout: TranscriptLayout, measure: TokenEstimator, policy: CompactionPolicy) -> CannotFitDecision:
    def size(index: int | None, *named: int | None) -> int:
        return 0 if index is None or index in named else measure.scale_estimate(layout.units[index].tokens)

    named = {layout.brief, layout.latest, layout.pending_index}

    return CannotFitDecision(
        tokens_before=measure.scale_estimate(measure.fixed_tokens + layout.tokens),
        limit=policy.trigger,
        fixed_tokens=measure.scale_estimate(measure.fixed_tokens),
        brief_tokens=size(layout.brief),
        latest_message_tokens=size(layout.latest, layout.brief),
        pending_call_tokens=size(layout.pending_index, layout.brief, layout.latest),
        pinned_tokens=sum(size(index) for index in layout.pinned - named),
    )


MAX_FAILED_SUMMARIES = 3
"""Maximum failed summaries in a row; after that, only a person can ask for one."""
GROWTH_PERCENT = 25
"""Percentage of the failed middle by which the conversation must grow before the next attempt, which would otherwise be
the same.
"""


def get_summary_skip_reason(transcript: Transcript) -> str | None:
    """Return why no summary is tried now, in words for a person; None if one may be.

    A successful summary, also a manual one, ends the row. Failures that were rewound no longer count.
    """
    failed = _failed_in_a_row(transcript)
    if len(failed) >= MAX_FAILED_SUMMARIES:
        return (
            f"No summary was requested, because the last {len(failed)} attempts failed. "
            "`waystation compact` requests a summary."
        )
    if failed and (missing := _missing_growth(transcript, failed[-1])) > 0:
        return (
            "No summary was requested, because the last attempt failed. The next attempt follows "
            f"when the conversation has grown by another {missing:,} tokens."
        )
    return None


def _failed_in_a_row(transcript: Transcript) -> list[SummaryFailureRecord]:
    failed: list[SummaryFailureRecord] = []
    for record in get_effective_transcript(transcript).records:
        if isinstance(record, SummaryRecord):
            failed = []
        elif isinstance(record, SummaryFailureRecord):
            failed.append(record)
    return failed


def _missing_growth(transcript: Transcript, failed: SummaryFailureRecord) -> int:
    """Return the tokens (plain estimate) by which the conversation must still grow."""
    later = {message.id for message in transcript.messages[failed.after :]}
    grown = estimate_messages(
        [message for message in get_effective_transcript(transcript).messages if message.id in later]
    )
    return failed.middle_tokens * GROWTH_PERCENT // 100 - grown


def split_into_parts(texts: Sequence[str], room: int) -> tuple[str, ...]:
    """Join the texts by line ends, in order, into as few parts of at most `room` tokens as possible.

    A text that alone exceeds the room is cut by characters. Returns one part if everything fits.
    """
    parts: list[str] = []
    part: list[str] = []
    size = 0
    for piece in (piece for text in texts for piece in _pieces(text, room)):
        tokens = estimate_text(piece) + 1
        if part and size + tokens > room:
            parts.append("\n".join(part))
            part, size = [], 0
        part.append(piece)
        size += tokens
    return (*parts, "\n".join(part))


def compute_part_token_range(length: tuple[int, int], parts: int, room: int) -> tuple[int, int]:
    """Return minimum and maximum tokens of each part's summary.

    All of them fit the room together, so that joining them takes one more call, and never parts again.
    """
    most = max(1, min(length[1], room // parts))
    return min(length[0], most), most


def _pieces(text: str, room: int) -> list[str]:
    size = estimate_text(text) + 1
    if size <= room:
        return [text]
    # By halves: the number of tokens per character may vary within a text.
    half = len(text) // 2
    return [*_pieces(text[:half], room), *_pieces(text[half:], room)] if half else [text]
