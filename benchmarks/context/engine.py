"""Compactions as agents get them, without platform and provider: compaction pipeline, summariser (a function),
validator.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.context.conversations import READ, REREADABLE
from waystation.context.constraints import (
    extract_recorded_decisions,
    extract_user_constraints,
    extract_user_requests,
    find_open_items,
)
from waystation.context.history import build_model_view, with_record
from waystation.context.pipeline import (
    CannotFitDecision,
    MaskDecision,
    NoopDecision,
    SummariseDecision,
    TruncateDecision,
    select_next_stage,
)
from waystation.context.policy import CompactionPolicy, StrategyName
from waystation.context.restoration import find_recently_read_files, with_files
from waystation.context.strategies import STRATEGIES
from waystation.context.summary import build_summary_message, is_compaction_message
from waystation.context.summary_validator import RejectedSummary, SummaryCheckInput, check_summary
from waystation.context.tokens import TokenEstimator, estimate_text
from waystation.context.transcript import Message, PinRecord, Record, SummaryRecord, Transcript
from waystation.memory.passage_builder import map_tool_names, render_message
from waystation.plugins.offline.summary import build_summary_response

FIXED = 6_000
"""Tokens of system prompt and tools."""
MEASURE = TokenEstimator(fixed_tokens=FIXED)
WINDOW = 200_000
Summariser = Callable[[str, int, int], str]
"""The summary of a conversation, within least and most tokens."""


def summarise_offline(conversation: str, least: int, most: int) -> str:
    """What the built-in offline model makes of it: what was asked, kept, read and searched, and key sentences."""
    question = (
        f"Summarise this conversation in {least} to {most} tokens.\n<conversation>\n{conversation}\n</conversation>"
    )
    return build_summary_response(question, 2 * most).text


def summarise_nothing(*_: object) -> str:
    """The worst case: a summary that says nothing."""
    return "The work went on as planned."


SUMMARISERS: dict[str, Summariser] = {"offline condensing": summarise_offline, "one that loses all": summarise_nothing}


class SummaryCall(NamedTuple):
    """Tokens of a call of the summariser."""

    input: int
    output: int


def build_policy(strategy: StrategyName = "window", window: int = WINDOW) -> CompactionPolicy:
    """The default but for the strategy: full at 75 % of the window, and half of that aimed for."""
    return CompactionPolicy(strategy=strategy, window=window, trigger=window * 3 // 4, target=window * 3 // 8)


@dataclass
class CompactedTranscript:
    """One agent's transcript under a policy."""

    transcript: Transcript
    policy: CompactionPolicy
    summariser: Summariser
    measure: TokenEstimator = MEASURE
    calls: list[SummaryCall] = field(default_factory=list[SummaryCall])

    def say(self, message: Message, *, pin: bool = False) -> None:
        """The conversation goes on."""
        self.transcript = self.transcript.with_message(message)
        if pin:
            self.record(PinRecord(id=f"p-{message.id}", message_id=message.id))

    def record(self, record: Record) -> None:
        """Something is done to it: a pin, a compaction."""
        self.transcript = with_record(self.transcript, record)

    @property
    def shown(self) -> tuple[Message, ...]:
        """What the model is sent."""
        return build_model_view(self.transcript)

    def make_room(self) -> int:
        """Compact as long as the context is full and something helps. How many records it took."""
        before = len(self.transcript.records)
        while self.measure.request(self.shown) >= self.policy.trigger and self.compact():
            pass
        return len(self.transcript.records) - before

    def compact(self, *, skip_summary: bool = False) -> bool:
        """The next rung that helps. Whether there is one."""
        rung = select_next_stage(self.transcript, self.measure, self.policy, REREADABLE, skip_summary=skip_summary)
        match rung:
            case NoopDecision() | CannotFitDecision():
                return False
            case MaskDecision() | TruncateDecision():
                self.record(rung.record)
                return True
            case SummariseDecision():
                return self._summarise(rung) or self.compact(skip_summary=True)

    def _summarise(self, rung: SummariseDecision) -> bool:
        """Whether the summary passed the check."""
        replaced = self.build_summary_input(rung)
        summary = self.summariser(replaced.text, *rung.summary_tokens)
        self.calls.append(SummaryCall(estimate_text(replaced.text), estimate_text(summary)))
        verdict = check_summary(summary, replaced)
        if isinstance(verdict, RejectedSummary):
            return False
        record = SummaryRecord(
            id=rung.compaction_id,
            strategy=self.policy.strategy,
            covered=rung.covered_ids,
            summary=build_summary_message(rung.compaction_id, verdict.text),
        )
        if STRATEGIES[self.policy.strategy].restores_files:
            said = {message.id: message for message in self.transcript.messages}
            originals = [said[name] for name in rung.covered_ids if name in said]
            files = find_recently_read_files(originals, {READ: "name"})
            record = with_files(self.transcript, record, files, self.measure, self.policy.target)
        self.record(record)
        return True

    def build_summary_input(self, rung: SummariseDecision) -> SummaryCheckInput:
        """What a summary is to stand for, and what must not be lost of it."""
        said, shown = self.transcript.messages, self.shown
        return SummaryCheckInput(
            text=render_messages(rung.middle, shown),
            tokens=rung.middle_tokens,
            target_tokens=rung.summary_tokens[1],
            max_constraint_tokens=self.policy.max_pinned_tokens,
            constraints=extract_user_constraints(rung.middle),
            requests=extract_user_requests(rung.middle),
            decisions=extract_recorded_decisions(rung.middle),
            open_work=find_open_items(rung.middle, shown),
            user_texts=tuple(message.text for message in said if message.role == "user" and message.text),
        )


def render_messages(middle: tuple[Message, ...], shown: tuple[Message, ...]) -> str:
    """The messages as a summariser reads them."""
    names = map_tool_names(shown)
    return "\n".join(
        message.text if is_compaction_message(message) else render_message(message, names) for message in middle
    )
