"""Audits what compactions did to an agent's context: redacted as for the summariser, and asking memory as agents do.

Conversations go into a memory by the pipeline of compactions, and questions are asked by the one of agents.

How well memory finds again what it was given: conversations, questions about them, and the measures.
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
from waystation.memory.passages import Excerpt, MemoryQuery, Passage
from waystation.memory.ports import Embedder, PassageVectorStore
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.privacy.ports import Redactor, Vault


@dataclass(frozen=True)
class CompactionAuditor:
    """Audits agents of one task."""

    redactor: Redactor
    passages: Sequence[Passage]
    """What the store keeps of the task: what is not in them, no search finds."""
    recollection: MemoryRecall | None
    """None: memory is not to be had, and the passages themselves are searched by exact text."""
    _searched: dict[str, SearchableText] = field(default_factory=dict[str, SearchableText], init=False)
    """By passage id."""

    async def audit(self, task: TaskRef, transcript: Transcript) -> tuple[CompactionAudit, ...]:
        """One audit for each compaction that stands in the agent's view.

        Raises RedactionFailed, and MemoryUnavailable where memory was given and does not answer.
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
            said={message.id: message.replace(blocks=(Text(text=said[message.id]),)) for message in heard},
            view=seen,
        )

    async def _redacted(self, tenant: str, rendered: Sequence[tuple[Message, str]]) -> dict[str, str]:
        redacted = await self.redactor.redact([text for _, text in rendered], TextDestination.COMPRESSED, tenant)
        return {message.id: item.text for (message, _), item in zip(rendered, redacted, strict=True)}

    async def _recalls(self, task: TaskRef, item: AuditItem) -> bool:
        """Whether what agents recall by these very words has them. Nothing is asked that is in no passage."""
        kept = any(self._holds(passage, item) for passage in self.passages)
        if not kept or self.recollection is None:
            return kept
        found = await self.recollection.find(task, item.text)
        return any(SearchableText(excerpt.text).contains_value(item.kind, item.text) for excerpt in found)

    def _holds(self, passage: Passage, item: AuditItem) -> bool:
        if passage.id not in self._searched:
            self._searched[passage.id] = SearchableText(passage.unlabelled_text)
        return self._searched[passage.id].contains_value(item.kind, item.text)


_ROLES = {"user", "assistant"}
MessageId = Annotated[str, Field(pattern=r"^[^\s\[\]]+$")]
"""It stands in brackets before what was said."""


class _Line(Value):
    """Of a file. Fields that are not known are not looked at; ids may be numbers."""

    model_config = ConfigDict(coerce_numbers_to_str=True, extra="ignore")


class EvalMessage(_Line):
    """What somebody said."""

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
            raise ValueError("it is no moment in ISO 8601, like 2026-09-01T08:00") from None

    @model_validator(mode="after")
    def _said_by_somebody(self) -> "EvalMessage":
        if not self.role and not self.speaker:
            raise ValueError("role or speaker is missing")
        return self

    @property
    def transcript_message(self) -> Message:
        """As an agent's transcript would have it: who is neither user nor assistant is named in the text."""
        speaker = self.speaker or ("" if self.role in _ROLES else self.role)
        said = f"{speaker}: {self.text}" if speaker else self.text
        return Message(id=self.id, role="assistant" if self.role == "assistant" else "user", blocks=(Text(text=said),))


class EvalQuestion(_Line):
    """What is asked later, and which messages answer it."""

    id: str
    text: str = Field(min_length=1)
    relevant: tuple[str, ...] = Field(min_length=1)


class _Recall(Value):
    """Within so many tokens."""

    tokens: int
    recall: float
    """Share of a question's relevant messages of which a part is there; the mean over the questions."""


class RecallMetrics(Value):
    """What came of all questions."""

    recall: tuple[_Recall, ...]
    mrr: float
    """Mean of one over the rank of the first stretch that has a relevant message, 0 where none has."""
    median_ms: float
    """Of a question: redacted, embedded, searched, and the best chosen."""
    missed: tuple[str, ...]
    """Questions that do not have all of their messages within the most tokens."""


class _Answer(Value):
    """What one question brought back."""

    question: EvalQuestion
    shown: Mapping[int, tuple[frozenset[str], ...]]
    """By number of tokens: the messages of each stretch, best first."""
    milliseconds: float

    def compute_recall(self, tokens: int) -> float:
        """From 0 to 1."""
        relevant, shown = set(self.question.relevant), set[str]().union(*self.shown[tokens])
        return len(relevant & shown) / len(relevant)

    def compute_reciprocal_rank(self, tokens: int) -> float:
        """From 0 to 1."""
        relevant = set(self.question.relevant)
        return next((1 / rank for rank, ids in enumerate(self.shown[tokens], 1) if ids & relevant), 0.0)


def get_excerpt_message_ids(excerpt: Excerpt, places: Mapping[str, int]) -> frozenset[str]:
    """Ids of the messages of which the excerpt has a part; `places` has their order."""
    spans = [(places[first], places[last]) for first, last in (turn.message_ids for turn in excerpt.turns)]
    return frozenset(name for name, place in places.items() if any(first <= place <= last for first, last in spans))


def compute_recall_metrics(answers: Sequence[_Answer], budgets: Sequence[int]) -> RecallMetrics:
    """The means over all questions, of which there is one at least."""
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
    """The lines of each session, in the order in which both come."""
    sessions: dict[str, list[EvalMessage]] = {}
    for line in lines:
        sessions.setdefault(line.session, []).append(line)
    return sessions


def find_session_end(lines: Sequence[EvalMessage], place: int, start: datetime) -> datetime:
    """When a session was over; of sessions without times a later one ended later."""
    times = [line.time if line.time.tzinfo else line.time.replace(tzinfo=start.tzinfo) for line in lines if line.time]
    return max(times, default=start.replace(microsecond=place % 1_000_000))


EVALUATION_RUN = RunRef(
    store_id="trial", tenant="trial", session="", task_id="trial", step_id="session", role="research"
)
EVALUATION_START = datetime(2026, 1, 1, tzinfo=UTC)
"""Of sessions that do not say when they were."""


class NoOpRedactor:
    """A `Redactor` that replaces nothing: what redaction costs is seen beside it."""

    async def redact(self, texts: Sequence[str], place: TextDestination, tenant: str) -> tuple[RedactionResult, ...]:  # noqa: ARG002
        """The texts as they are."""
        return tuple(RedactionResult(text=text) for text in texts)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class RecallEvaluation:
    """One conversation in a memory that has nothing else."""

    memory: PassageVectorStore
    embedder: Embedder
    redactor: Redactor
    clock: Callable[[], float]
    """Seconds that only ever grow."""
    vault: Vault | None = None
    """What the redactor's placeholders stand for."""
    shows_names: bool = False

    async def index(self, lines: Sequence[EvalMessage]) -> tuple[Passage, ...]:
        """Each session as if one compaction had hidden all of it. Raises MemoryUnavailable, RedactionFailed."""
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
        """What the question brings back within each number of tokens. Raises as `index` does."""
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
