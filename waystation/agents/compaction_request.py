"""Requests to compact or edit the context of one agent run, and the policy that applies to each.

Numbers and references, safe for workflow history, except `ManualCompaction`.
"""

from dataclasses import dataclass
from typing import Literal

from waystation.agents.leg import AgentConfig
from waystation.context.compaction import CompactionOutcome, ContextEdit
from waystation.context.history import build_model_view
from waystation.context.policy import CompactionPolicy
from waystation.context.tokens import TokenEstimator, compute_correction_factor
from waystation.context.transcript import Compaction, Transcript
from waystation.kernel.amount import Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.value import Value


class EditRequest(Value):
    """Input of the activity `EditContext`."""

    run: RunRef
    config: AgentConfig
    limit: Limit
    """What the whole agent run may have spent; a summary is charged to it."""
    edit: ContextEdit
    token_ratio: float = 1.0
    """Ratio of the provider's count to our estimate for the run's last request."""
    known_records: int
    """Number of compactions of this run that the workflow knows to be committed."""
    skip_summary: bool = False
    """Whether the summariser has failed too often."""


class EditOutcome(Value):
    """Result of an edit."""

    state: Literal["done", "refused"]
    reason: str = ""
    compaction: CompactionOutcome | None = None
    """Set for a requested summary, even one that was rejected after it had cost something."""


class ManualCompaction(Value):
    """A summary that a person asks for, however full the context is. Not for workflow history: it holds their words."""

    edit_id: str
    """Makes the record and the charge distinct: a rejected summary may be requested again, and is paid for again."""
    instructions: str = ""
    """Instructions for the summary, redacted."""
    token_ratio: float = 1.0
    """Ratio of the provider's count to our estimate for the run's last request."""


class CompactionRequest(Value):
    """Request to compact one agent run's context."""

    run: RunRef
    config: AgentConfig
    limit: Limit
    """What the whole agent run may have spent; the summariser's call is charged to it."""
    request_tokens: int = 0
    """Tokens of the request that was too large, corrected by the provider's earlier counts; 0 if a person asked."""
    window_exceeded: bool = False
    """Whether the model said that its window was exceeded: it is smaller than its profile says."""
    known_records: int
    """Number of compactions of this run that the workflow knows to be committed. One more in the store was made by an
    earlier attempt at this very request.
    """
    skip_summary: bool = False
    """Whether the summariser has failed too often: then go on to the next stage."""


@dataclass(frozen=True)
class CompactionContext:
    """A request to compact, from a workflow or from a person."""

    request: CompactionRequest
    manual: ManualCompaction | None
    fixed_tokens: int
    """Estimated tokens of the agent's system prompt and tools."""

    @property
    def allows_summary(self) -> bool:
        """Whether a summary may be written at all."""
        return self.manual is not None or self.request.config.auto_compact

    def find_committed_compaction(self, transcript: Transcript) -> Compaction | None:
        """Return what an earlier attempt at the same request has committed."""
        return next(iter(transcript.compactions[self.request.known_records :]), None)

    def get_transcript_before(self, transcript: Transcript) -> Transcript:
        """Return the transcript as the workflow knew it when it made the request."""
        record = self.find_committed_compaction(transcript)
        if record is None:
            return transcript
        return transcript.replace(records=transcript.records[: transcript.records.index(record)])

    def build_estimator(self, transcript: Transcript) -> TokenEstimator:
        """Build an estimator with the correction of the leg's last request, the one that was too large."""
        if self.manual is not None:
            return TokenEstimator(fixed_tokens=self.fixed_tokens, token_ratio=self.manual.token_ratio)
        estimated = TokenEstimator(fixed_tokens=self.fixed_tokens).request(
            build_model_view(self.get_transcript_before(transcript))
        )
        return TokenEstimator(
            fixed_tokens=self.fixed_tokens,
            token_ratio=compute_correction_factor(estimated, self.request.request_tokens),
        )

    def resolve_policy(self, transcript: Transcript) -> CompactionPolicy:
        """Return the agent's policy.

        With too many messages, if a person asked, or if the model said that its window was exceeded, it treats the
        context as full.
        """
        terms, shown = self.request.config, build_model_view(transcript)
        if self.manual is None and not terms.has_too_many_messages(len(shown)):
            policy = terms.compaction_policy
            if not self.request.window_exceeded:
                return policy
            size = min(policy.trigger, self.build_estimator(transcript).request(shown))
            return policy.replace(trigger=size, target=size // 2)
        policy = terms.compaction_policy.for_too_many_messages(self.build_estimator(transcript).request(shown))
        return policy.replace(instructions=self.manual.instructions) if self.manual else policy
