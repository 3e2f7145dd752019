"""Runs the compaction pipeline on a conversation that is in no store."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from waystation.context.compaction import CompactionStatus
from waystation.context.history import build_model_view, with_record
from waystation.context.pipeline import (
    CannotFitDecision,
    MaskDecision,
    NoopDecision,
    SummariseDecision,
    TruncateDecision,
    select_next_stage,
)
from waystation.context.policy import CompactionPolicy
from waystation.context.restoration import RestorableFile, find_covered_files, with_files
from waystation.context.stages import mask_tool_results
from waystation.context.strategies import STRATEGIES
from waystation.context.summary_validator import AcceptedSummary, RejectedSummary
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Compaction, SummaryRecord, Transcript
from waystation.context.units import build_layout
from waystation.kernel.value import Value


class MissingSummary(Value):
    """No summary: there was no summariser, or it failed."""

    reason: str


SummaryVerdict = AcceptedSummary | RejectedSummary | MissingSummary
SummaryWriter = Callable[[Transcript, SummariseDecision], Awaitable[SummaryVerdict]]


class StageAttempt(Value):
    """One stage that was tried. Tokens are of the whole request."""

    status: CompactionStatus
    rule: str = ""
    """The validation rule that a summary failed."""
    reason: str = ""
    """Why the stage failed, for a person."""
    tokens_before: int
    tokens_after: int
    compaction_id: str = ""


def _unchanged(_: RestorableFile) -> bool:
    return False


@dataclass
class Conversation:
    """A conversation, and what was done to compact it."""

    transcript: Transcript
    token_estimator: TokenEstimator
    policy: CompactionPolicy
    rereadable: frozenset[str]
    """Tools whose calls can be repeated."""
    readers: Mapping[str, str]
    """Tools that read files, each with the argument that names the file."""
    has_changed: Callable[[RestorableFile], bool] = _unchanged
    """Returns whether a file has changed since it was read."""
    attempts: list[StageAttempt] = field(default_factory=list[StageAttempt])
    notes: list[str] = field(default_factory=list[str])

    @property
    def tokens(self) -> int:
        """Tokens of the whole request, as the view has it now."""
        return self.token_estimator.request(build_model_view(self.transcript))

    @property
    def status(self) -> CompactionStatus:
        """The final status."""
        ends = [attempt.status for attempt in self.attempts]
        if ends and ends[-1] is CompactionStatus.CANNOT_FIT:
            return CompactionStatus.CANNOT_FIT
        made = [status for status in ends if status.made_room]
        return (made or ends or [CompactionStatus.NOOP])[-1]

    async def make_room(self, ask: SummaryWriter, offloaded: Callable[[Transcript], Transcript]) -> None:
        """Run stage after stage until the context is no longer full, or nothing helps.

        This ends: a stage either makes the view smaller, or is the last one, or rules out further summaries.
        """
        if self.tokens >= self.policy.trigger:
            self._offload(offloaded)
        summaries = True
        while (before := self.tokens) >= self.policy.trigger:
            rung = select_next_stage(
                self.transcript, self.token_estimator, self.policy, self.rereadable, skip_summary=not summaries
            )
            match rung:
                case NoopDecision():
                    self._attempt(rung.status, before)
                    return
                case CannotFitDecision():
                    self._cannot_fit(rung)
                    return
                case MaskDecision():
                    self._commit(CompactionStatus.MASKED, rung.record)
                case TruncateDecision():
                    self._commit(CompactionStatus.TRUNCATED, rung.record)
                case SummariseDecision():
                    summaries = await self._summarise(ask, rung)

    async def force_summary(self, ask: SummaryWriter) -> bool:
        """Compact manually, however full the context is. Returns whether there was anything to summarise.

        A summary that is refused leaves everything as it was.
        """
        forced = self.policy.for_too_many_messages(self.tokens)
        rung = select_next_stage(self.transcript, self.token_estimator, forced, frozenset())
        if isinstance(rung, SummariseDecision):
            await self._summarise(ask, rung)
        return isinstance(rung, SummariseDecision)

    def force_masking(self) -> None:
        """Mask what can be masked, however full the context is."""
        masks = mask_tool_results(self.transcript, build_layout(self.transcript), self.policy, self.rereadable)
        if masks is not None:
            self._commit(CompactionStatus.MASKED, masks.record)

    async def _summarise(self, ask: SummaryWriter, rung: SummariseDecision) -> bool:
        """Summarise. Returns whether the summary was accepted."""
        verdict = await ask(self.transcript, rung)
        match verdict:
            case AcceptedSummary():
                self._commit(CompactionStatus.COMPRESSED, self._record(rung, verdict))
                return True
            case RejectedSummary():
                self._attempt(verdict.status, self.tokens, rule=verdict.rule, reason=verdict.message)
            case MissingSummary():
                self._attempt(CompactionStatus.FAILED_SUMMARISER, self.tokens, reason=verdict.reason)
        return False

    def _record(self, rung: SummariseDecision, accepted: AcceptedSummary) -> SummaryRecord:
        record = rung.build_record(accepted, self.policy.strategy)
        if not STRATEGIES[self.policy.strategy].restores_files:
            return record
        files = [
            file.replace(changed=self.has_changed(file))
            for file in find_covered_files(self.transcript, record, self.readers)
        ]
        return with_files(self.transcript, record, files, self.token_estimator, self.policy.target)

    def _offload(self, offloaded: Callable[[Transcript], Transcript]) -> None:
        before, previewed = self.tokens, offloaded(self.transcript)
        if previewed is not self.transcript:
            self.transcript = previewed
            self._attempt(CompactionStatus.OFFLOADED, before)

    def _commit(self, status: CompactionStatus, record: Compaction) -> None:
        before = self.tokens
        self.transcript = with_record(self.transcript, record)
        self._attempt(status, before, compaction_id=record.id)

    def _attempt(self, status: CompactionStatus, before: int, **why: str) -> None:
        after = self.tokens
        self.attempts.append(StageAttempt(status=status, tokens_before=before, tokens_after=after, **why))

    def _cannot_fit(self, rung: CannotFitDecision) -> None:
        parts = {
            "system prompt and tools": rung.fixed_tokens,
            "the first request": rung.brief_tokens,
            "the latest request": rung.latest_message_tokens,
            "calls without results": rung.pending_call_tokens,
            "pins": rung.pinned_tokens,
        }
        named = ", ".join(f"{name} {tokens:,}" for name, tokens in parts.items() if tokens)
        reason = (
            f"the parts that cannot be made smaller ({named}) have {rung.min_tokens:,} tokens together, but the limit "
            f"is {rung.limit:,}"
        )
        self._attempt(CompactionStatus.CANNOT_FIT, self.tokens, reason=reason)
