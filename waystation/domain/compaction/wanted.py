"""What a request for room means on a transcript: by which policy and measure, and whether it is carried out already."""

from dataclasses import dataclass

from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.request import CompactionRequest, Manual
from waystation.domain.compaction.tokens import Measure, correction
from waystation.domain.compaction.view import view
from waystation.domain.transcript import Compaction, Transcript


@dataclass(frozen=True)
class Wanted:
    """A request for room, of a workflow or by way of it of a person."""

    request: CompactionRequest
    manual: Manual | None
    fixed: int
    """Estimated tokens of the agent's system prompt and tools."""

    @property
    def summaries(self) -> bool:
        """Whether a summary may be written at all."""
        return self.manual is not None or self.request.terms.auto_compact

    def done(self, transcript: Transcript) -> Compaction | None:
        """What an earlier attempt at the same request has committed."""
        return next(iter(transcript.compactions[self.request.known_records :]), None)

    def before(self, transcript: Transcript) -> Transcript:
        """The transcript as the workflow knew it when it asked."""
        record = self.done(transcript)
        if record is None:
            return transcript
        return transcript.model_copy(update={"records": transcript.records[: transcript.records.index(record)]})

    def measure(self, transcript: Transcript) -> Measure:
        """Corrected as the leg's last request was, which was found too large."""
        if self.manual is not None:
            return Measure(fixed=self.fixed, scale=self.manual.scale)
        estimated = Measure(fixed=self.fixed).request(view(self.before(transcript)))
        return Measure(fixed=self.fixed, scale=correction(estimated, self.request.request_tokens))

    def policy(self, transcript: Transcript) -> Policy:
        """That of the agent; where its messages are too many, or a person asked, full as it is."""
        terms, shown = self.request.terms, view(transcript)
        if self.manual is None and not terms.crowded(len(shown)):
            return terms.policy
        policy = terms.policy.for_crowd(self.measure(transcript).request(shown))
        return policy.model_copy(update={"instructions": self.manual.instructions}) if self.manual else policy
