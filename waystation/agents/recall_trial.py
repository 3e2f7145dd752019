"""Conversations go into a memory by the pipeline of compactions, and questions are asked by the one of agents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from waystation.agents.archive import BATCH, embedded
from waystation.agents.recollection import Recollection
from waystation.agents.summariser import Middle
from waystation.domain.leg import RunRef
from waystation.domain.memory import MemoryQuery, Passage
from waystation.domain.messages import Message
from waystation.domain.passages import make_passages
from waystation.domain.privacy import Place
from waystation.domain.recall import Answer, Line, Question, by_session, ended_at, messages_of
from waystation.domain.redaction import Redacted
from waystation.domain.transcript import Transcript
from waystation.ports import Embedder, PassagePoints, Redactor

RUN = RunRef(store_id="trial", tenant="trial", session="", task_id="trial", step_id="session", role="research")
START = datetime(2026, 1, 1, tzinfo=UTC)
"""Of sessions that do not say when they were."""


class NoRedaction:
    """A `Redactor` that replaces nothing: what redaction costs is seen beside it."""

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:  # noqa: ARG002
        """The texts as they are."""
        return tuple(Redacted(text=text) for text in texts)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class RecallTrial:
    """One conversation in a memory that has nothing else."""

    memory: PassagePoints
    embedder: Embedder
    redactor: Redactor
    clock: Callable[[], float]
    """Seconds that only ever grow."""

    async def index(self, lines: Sequence[Line]) -> tuple[Passage, ...]:
        """Each session as if one compaction had hidden all of it. Raises MemoryUnavailable, RedactionFailed."""
        passages = tuple(
            [
                passage
                for place, said in enumerate(by_session(lines).values())
                for passage in await self._passages(
                    RUN.model_copy(update={"session": str(place), "step_id": f"session-{place + 1}"}),
                    [line.message for line in said],
                    ended_at(said, place, START),
                )
            ]
        )
        for first in range(0, len(passages), BATCH):
            await self.memory.upsert(await embedded(self.embedder, passages[first : first + BATCH]))
        return passages

    async def ask(self, question: Question, budgets: Sequence[int], places: dict[str, int]) -> Answer:
        """What the question brings back within each number of tokens. Raises as `index` does."""
        recollection = Recollection(self.memory, self.embedder, self.redactor)
        query = MemoryQuery(tenant=RUN.tenant, session=None, text=question.text, dense=None)
        start = self.clock()
        shown = {tokens: await recollection.search(query, tokens) for tokens in budgets}
        milliseconds = (self.clock() - start) * 1_000 / len(budgets)
        messages = {
            tokens: tuple(messages_of(excerpt, places) for excerpt in excerpts) for tokens, excerpts in shown.items()
        }
        return Answer(question=question, shown=messages, milliseconds=milliseconds)

    async def _passages(self, run: RunRef, messages: Sequence[Message], ended: datetime) -> tuple[Passage, ...]:
        transcript = Transcript(run_id=run.run_id, messages=tuple(messages))
        middle, _ = await Middle.redacted(messages, transcript, self.redactor, run.tenant)
        return make_passages(run, "compaction-1", messages, middle.texts, ended)
