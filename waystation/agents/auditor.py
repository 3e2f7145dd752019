"""Audits what compactions did to an agent's context, and evaluates how well memory recalls what was compacted.

Texts are redacted as for the summariser, and memory is queried as agents query it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import fmean, median
from typing import Annotated

from pydantic import ConfigDict, Field, field_validator, model_validator

from waystation.agents.summariser import SummaryInput
from waystation.context.audit import (
    AuditItem,
    CompactionAudit,
    RedactedConversation,
    SearchableText,
    build_compaction_audits,
)
from waystation.context.history import build_model_view, get_effective_transcript, get_replacement
from waystation.context.summary import is_summary
from waystation.context.transcript import MaskRecord, Message, Text, Transcript
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.value import Value
from waystation.memory.indexing import EMBEDDING_BATCH, MemoryRecall, embed_passages
from waystation.memory.passage_builder import make_passages, map_tool_names, render_message
from waystation.memory.passages import MemoryExcerpt, MemoryQuery, Passage
from waystation.memory.ports import Embedder, PassageVectorStore
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.privacy.ports import Redactor, Vault


@dataclass(frozen=True)
class CompactionAuditor:
    """Auditor of the agents of one task."""

    redactor: Redactor
    passages: Sequence[Passage]
    """All passages that the store keeps of the task: no search finds anything else."""
    memory_recall: MemoryRecall | None
    """None: memory is not available, and the passages themselves are searched for exact text."""
    _searched: dict[str, SearchableText] = field(default_factory=dict[str, SearchableText], init=False)
    """By passage ID."""

    async def audit(self, task: TaskRef, transcript: Transcript) -> tuple[CompactionAudit, ...]:
        """Build one audit for each compaction in the agent's view.

        Raises:
            RedactionFailed: A text could not be redacted.
            MemoryUnavailable: Memory was given and does not answer.
        """
        found = build_compaction_audits(transcript, await self._redaction(task.tenant, transcript))
        lost = dict.fromkeys(item for audit in found for item in audit.lost)
        recallable = frozenset([item for item in lost if await self._recalls(task, item)])
        return tuple(audit.with_recalled(recallable) for audit in found)

    async def _redaction(self, tenant: str, transcript: Transcript) -> RedactedConversation:
        now = get_effective_transcript(transcript)
        left = [get_replacement(record) for record in now.compactions if not isinstance(record, MaskRecord)]
        heard = [message for message in (*now.messages, *left) if message.role == "user" and message.text]
        shown, names = build_model_view(now), map_tool_names(now.messages)
        groups = (
            [(message, render_message(message, names)) for message in now.messages],
            [(message, message.text) for message in heard],
            [(message, message.text if is_summary(message) else render_message(message, names)) for message in shown],
        )
        texts, said, seen = [await self._redacted(tenant, group) for group in groups]
        return RedactedConversation(
            texts=texts,
            user_messages={message.id: message.replace(blocks=(Text(text=said[message.id]),)) for message in heard},
            view=seen,
        )

    async def _redacted(self, tenant: str, rendered: Sequence[tuple[Message, str]]) -> dict[str, str]:
        redacted = await self.redactor.redact([text for _, text in rendered], TextDestination.COMPRESSED, tenant)
        return {message.id: item.text for (message, _), item in zip(rendered, redacted, strict=True)}

    async def _recalls(self, task: TaskRef, item: AuditItem) -> bool:
        """Return whether a recall query with the item's own words finds it. What is in no passage is not queried."""
        kept = any(self._holds(passage, item) for passage in self.passages)
        if not kept or self.memory_recall is None:
            return kept
        found = await self.memory_recall.find(task, item.text)
        return any(SearchableText(excerpt.text).contains_value(item.kind, item.text) for excerpt in found)

    def _holds(self, passage: Passage, item: AuditItem) -> bool:
        if passage.id not in self._searched:
            self._searched[passage.id] = SearchableText(passage.unlabelled_text)
        return self._searched[passage.id].contains_value(item.kind, item.text)


_ROLES = {"user", "assistant"}
MessageId = Annotated[str, Field(pattern=r"^[^\s\[\]]+$")]
"""It precedes the message in square brackets."""


class _Line(Value):
    """A line of an evaluation file. Unknown fields are ignored; IDs may be numbers."""

    model_config = ConfigDict(coerce_numbers_to_str=True, extra="ignore")


class EvalMessage(_Line):
    """One message of a conversation."""

    id: MessageId
    role: str = ""
    speaker: str = ""
    text: str
    time: datetime | None = None
    session: str = ""

    @field_validator("time", mode="before")
    @classmethod
    def _iso_8601(cls, time: object) -> datetime | None:
        if time is None or isinstance(time, datetime):
            return time
        try:
            return datetime.fromisoformat(time if isinstance(time, str) else "")
        except ValueError:
            raise ValueError("write an ISO 8601 time, like 2026-09-01T08:00") from None

    @model_validator(mode="after")
    def _said_by_somebody(self) -> "EvalMessage":
        if not self.role and not self.speaker:
            raise ValueError("role or speaker is missing")
        return self

    @property
    def transcript_message(self) -> Message:
        """The message as in an agent's transcript: a speaker other than user and assistant is named in the text."""
        speaker = self.speaker or ("" if self.role in _ROLES else self.role)
        said = f"{speaker}: {self.text}" if speaker else self.text
        return Message(id=self.id, role="assistant" if self.role == "assistant" else "user", blocks=(Text(text=said),))


class EvalQuestion(_Line):
    """A later question, and the messages that answer it."""

    id: str
    text: str = Field(min_length=1)
    relevant: tuple[str, ...] = Field(min_length=1)


class _Recall(Value):
    """Recall within a number of tokens."""

    tokens: int
    recall: float
    """Share of a question's relevant messages that are at least partly returned; mean over the questions (0 to 1)."""


class RecallMetrics(Value):
    """Metrics over all questions."""

    recall: tuple[_Recall, ...]
    mrr: float
    """Mean of 1 / rank of the first excerpt that has a relevant message, 0 if none has."""
    median_ms: float
    """Median time per question in milliseconds: redact, embed, search, and choose the best."""
    missed: tuple[str, ...]
    """IDs of questions that miss some of their messages within the largest number of tokens."""


class _Answer(Value):
    """Result of one question."""

    question: EvalQuestion
    shown: Mapping[int, tuple[frozenset[str], ...]]
    """By number of tokens: the message IDs of each excerpt, best first."""
    milliseconds: float

    def compute_recall(self, tokens: int) -> float:
        """Return the recall within a number of tokens (0 to 1)."""
        relevant, shown = set(self.question.relevant), set[str]().union(*self.shown[tokens])
        return len(relevant & shown) / len(relevant)

    def compute_reciprocal_rank(self, tokens: int) -> float:
        """Return the reciprocal rank within a number of tokens (0 to 1)."""
        relevant = set(self.question.relevant)
        return next((1 / rank for rank, ids in enumerate(self.shown[tokens], 1) if ids & relevant), 0.0)


def get_excerpt_message_ids(excerpt: MemoryExcerpt, places: Mapping[str, int]) -> frozenset[str]:
    """Return the IDs of the messages that the excerpt contains a part of; `places` has their order."""
    spans = [(places[first], places[last]) for first, last in (turn.message_ids for turn in excerpt.turns)]
    return frozenset(name for name, place in places.items() if any(first <= place <= last for first, last in spans))


def compute_recall_metrics(answers: Sequence[_Answer], budgets: Sequence[int]) -> RecallMetrics:
    """Compute the means over all questions, at least one."""
    most = max(budgets)
    return RecallMetrics(
        recall=tuple(
            _Recall(tokens=tokens, recall=fmean(answer.compute_recall(tokens) for answer in answers))
            for tokens in budgets
        ),
        mrr=fmean(answer.compute_reciprocal_rank(most) for answer in answers),
        median_ms=median(answer.milliseconds for answer in answers),
        missed=tuple(answer.question.id for answer in answers if answer.compute_recall(most) < 1),
    )


def group_by_session(lines: Sequence[EvalMessage]) -> dict[str, list[EvalMessage]]:
    """Group lines by session, keeping the order of both."""
    sessions: dict[str, list[EvalMessage]] = {}
    for line in lines:
        sessions.setdefault(line.session, []).append(line)
    return sessions


def find_session_end(lines: Sequence[EvalMessage], place: int, start: datetime) -> datetime:
    """Return when a session ended; of sessions without times, a later one ended later."""
    times = [line.time if line.time.tzinfo else line.time.replace(tzinfo=start.tzinfo) for line in lines if line.time]
    return max(times, default=start.replace(microsecond=place % 1_000_000))


EVALUATION_RUN = RunRef(
    store_id="trial", tenant="trial", session="", task_id="trial", step_id="session", role="research"
)
EVALUATION_START = datetime(2026, 1, 1, tzinfo=UTC)
"""Start time of sessions without times."""


class NoOpRedactor:
    """A `Redactor` that replaces nothing, as a baseline for the cost of redaction."""

    async def redact(
        self,
        texts: Sequence[str],
        destination: TextDestination,  # noqa: ARG002
        tenant: str,  # noqa: ARG002
    ) -> tuple[RedactionResult, ...]:
        """Return the texts unchanged."""
        return tuple(RedactionResult(text=text) for text in texts)

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class RecallEvaluation:
    """Evaluation of one conversation in a memory that holds nothing else."""

    memory: PassageVectorStore
    embedder: Embedder
    redactor: Redactor
    clock: Callable[[], float]
    """Monotonic clock, in seconds."""
    vault: Vault | None = None
    """Originals of the redactor's placeholders."""
    shows_names: bool = False

    async def index(self, lines: Sequence[EvalMessage]) -> tuple[Passage, ...]:
        """Index each session as if one compaction had hidden all of it.

        Raises:
            MemoryUnavailable: Memory does not answer.
            RedactionFailed: A text could not be redacted.
        """
        passages = tuple(
            [
                passage
                for place, said in enumerate(group_by_session(lines).values())
                for passage in await self._passages(
                    EVALUATION_RUN.replace(session=str(place), step_id=f"session-{place + 1}"),
                    [line.transcript_message for line in said],
                    find_session_end(said, place, EVALUATION_START),
                )
            ]
        )
        for first in range(0, len(passages), EMBEDDING_BATCH):
            await self.memory.upsert(await embed_passages(self.embedder, passages[first : first + EMBEDDING_BATCH]))
        return passages

    async def answer_question(self, question: EvalQuestion, budgets: Sequence[int], places: dict[str, int]) -> _Answer:
        """Return what the question finds within each number of tokens. Raises as `index` does."""
        recollection = MemoryRecall(
            self.memory, self.embedder, self.redactor, vault=self.vault, shows_names=self.shows_names
        )
        query = MemoryQuery(tenant=EVALUATION_RUN.tenant, session=None, text=question.text, dense=None)
        start = self.clock()
        shown = {tokens: await recollection.search(query, tokens) for tokens in budgets}
        milliseconds = (self.clock() - start) * 1_000 / len(budgets)
        messages = {
            tokens: tuple(get_excerpt_message_ids(excerpt, places) for excerpt in excerpts)
            for tokens, excerpts in shown.items()
        }
        return _Answer(question=question, shown=messages, milliseconds=milliseconds)

    async def _passages(self, run: RunRef, messages: Sequence[Message], ended: datetime) -> tuple[Passage, ...]:
        transcript = Transcript(run_id=run.run_id, messages=tuple(messages))
        middle, _ = await SummaryInput.build_redacted(messages, transcript, self.redactor, run.tenant)
        return make_passages(run, "compaction-1", messages, middle.texts, ended)
