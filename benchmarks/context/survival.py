"""Measures what survives ten generations of compaction: in the view, and in memory for what the view does not show."""

import asyncio
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.budgets.tables import print_table
from benchmarks.context.conversations import OPEN_WORK, Conversation, build_long_conversation
from benchmarks.context.documents import build_document_conversation
from benchmarks.context.engine import SUMMARISERS, CompactedTranscript, build_policy
from benchmarks.context.kept import RetentionShares, all_text, compute_visible_share, measure_retention
from waystation.agents.auditor import NoOpRedactor
from waystation.context.message_rules import find_violations
from waystation.context.policy import StrategyName
from waystation.context.strategies import STRATEGIES
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Message, Transcript
from waystation.kernel.refs import RunRef
from waystation.memory.embedders.local import WordLlamaEmbedder
from waystation.memory.indexing import RECALLED_TOKENS, MemoryRecall, embed_passages
from waystation.memory.passage_builder import make_passages, map_tool_names, render_message
from waystation.memory.passages import MemoryQuery
from waystation.memory.qdrant.edge import QdrantEdgeMemory

GENERATIONS, WINDOW, MEASURE = 10, 32_000, TokenEstimator(fixed_tokens=2_000)
SEEDS = (1, 2)
ASKED = 100
"""Identifiers of each conversation that are looked for."""
RUN = RunRef(store_id="store", tenant="tenant", session="session", task_id="task-1", step_id="step-1", role="research")
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
CONVERSATIONS: dict[str, Callable[[int], Conversation]] = {
    "generated": build_long_conversation,
    "over documents": build_document_conversation,
}
HEAD = (
    "conversation", "summariser", "strategy", "compactions", "tokens said", "tokens of the view", "pins", "constraints",
    "open work", "latest request", "identifiers in view", "of the others, found by recall",
)  # fmt: skip


@dataclass
class HiddenPassageMemory:
    """Passages of what was hidden, in the memory that a worker has, without redaction."""

    memory: QdrantEdgeMemory
    embedder: WordLlamaEmbedder

    async def store_passages(self, record_id: str, messages: Sequence[Message]) -> None:
        """What a compaction hides for the first time."""
        names = map_tool_names(messages)
        texts = {message.id: render_message(message, names) for message in messages}
        passages = make_passages(RUN, record_id, messages, texts, CREATED)
        await self.memory.upsert(await embed_passages(self.embedder, passages))

    async def can_recall(self, identifier: str, sentence: str) -> bool:
        """Whether asking for the sentence without the identifier brings the identifier back."""
        return await self.can_recall_words(identifier, sentence.replace(identifier, " "))

    async def can_recall_words(self, words: str, question: str) -> bool:
        """Whether asking this brings these words back."""
        query = MemoryQuery(tenant=RUN.tenant, session=RUN.session, text=question, dense=None)
        recollection = MemoryRecall(self.memory, self.embedder, NoOpRedactor())
        return any(words in found.text for found in await recollection.search(query, RECALLED_TOKENS))


class SurvivalResult(NamedTuple):
    """After the last generation."""

    compactions: int
    said: int
    """Tokens of the whole conversation."""
    shown: int
    """Tokens of the view."""
    least: RetentionShares
    """Of each share, the least after any generation."""
    in_view: float
    recalled: float
    """Of the identifiers that were looked for and are not in the view."""


async def measure_survival(
    conversation: Conversation, engine: CompactedTranscript, recall: HiddenPassageMemory, seed: int
) -> SurvivalResult:
    """Ten generations: a tenth of the conversation is said, then the context is taken for full."""
    so_far, shares, policy = Conversation(pinned=conversation.pinned), list[RetentionShares](), engine.policy
    hidden, compactions = set[str](), 0
    for message in conversation.messages:
        so_far.messages.append(message)
        engine.say(message, pin=message.id in conversation.pinned)
        if len(so_far.messages) * GENERATIONS % len(conversation.messages) >= GENERATIONS:
            continue
        engine.policy = policy.for_too_many_messages(MEASURE.request(engine.shown))
        compactions += engine.compact()
        gone = {name for record in engine.transcript.compactions if record.type != "masked" for name in record.covered}
        await recall.store_passages(f"{compactions}", [said for said in so_far.messages if said.id in gone - hidden])
        hidden |= gone
        assert not find_violations(engine.shown, pending_allowed=True)
        shares.append(measure_retention(so_far, engine.shown, OPEN_WORK))
    there = all_text(engine.shown)
    lost = [item for item in conversation.planted.items() if item[0] not in there]
    asked = random.Random(seed).sample(lost, min(ASKED, len(lost)))
    found = [await recall.can_recall(*item) for item in asked]
    return SurvivalResult(
        compactions=compactions,
        said=MEASURE.request(conversation.messages),
        shown=MEASURE.request(engine.shown),
        least=RetentionShares(*map(min, zip(*shares, strict=True))),
        in_view=compute_visible_share(conversation.planted, engine.shown),
        recalled=sum(found) / len(found) if found else 1.0,
    )


async def _survivors(kind: str, summariser: str, strategy: StrategyName) -> list[SurvivalResult]:
    """One for each seed, each with a memory of its own."""
    survivors: list[SurvivalResult] = []
    for seed in SEEDS:
        conversation, embedder = CONVERSATIONS[kind](seed), WordLlamaEmbedder()
        with tempfile.TemporaryDirectory() as folder:
            memory = await QdrantEdgeMemory.open(Path(folder) / "memory", embedder.name, embedder.dimension)
            engine = CompactedTranscript(
                Transcript(run_id=RUN.run_id),
                build_policy(strategy, WINDOW),
                SUMMARISERS[summariser],
                measure=MEASURE,
            )
            survivors.append(await measure_survival(conversation, engine, HiddenPassageMemory(memory, embedder), seed))
            await memory.aclose()
    return survivors


async def _all() -> list[tuple[object, ...]]:
    return [
        (kind, summariser, f"`{strategy}`", *_row(await _survivors(kind, summariser, strategy)))
        for kind in CONVERSATIONS
        for summariser in SUMMARISERS
        for strategy in STRATEGIES
    ]


def _row(survivors: Sequence[SurvivalResult]) -> Sequence[object]:
    """The least of what must not be lost, the mean of the rest."""
    least = RetentionShares(*map(min, zip(*(survivor.least for survivor in survivors), strict=True)))
    assert least.is_complete, least
    sizes = [(survivor.compactions, survivor.said, survivor.shown) for survivor in survivors]
    shares = [(survivor.in_view, survivor.recalled) for survivor in survivors]
    return (
        *(f"{fmean(size):,.0f}" for size in zip(*sizes, strict=True)),
        *(f"{part:.0%}" for part in (*least, *map(fmean, zip(*shares, strict=True)))),
    )


def prove() -> None:
    """Print the table. Raises AssertionError where a view is illegal or loses what it must not."""
    print_table(f"{GENERATIONS} generations of compaction, window {WINDOW:,}", HEAD, asyncio.run(_all()))
