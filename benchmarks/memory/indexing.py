"""Indexes conversations through the path of compactions, and asks questions through that of agents."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.memory.conversations import Dialogue, Question
from waystation.context.transcript import Message
from waystation.kernel.refs import RunRef
from waystation.memory.embedders.local import NoEmbedder
from waystation.memory.indexing import MemoryRecall, embed_passages
from waystation.memory.passage_builder import make_passages, map_tool_names, render_message
from waystation.memory.passages import MemoryExcerpt, MemoryQuery, Passage, extract_turns, select_excerpts
from waystation.memory.ports import Embedder
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.privacy.policy import (
    RedactionResult,
    TextDestination,
    replace_placeholders_with_types,
    with_placeholders,
)
from waystation.privacy.ports import Redactor

RUN = RunRef(store_id="store", tenant="tenant", session="session", task_id="task-1", step_id="step-1", role="research")
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
Cut = Callable[[Sequence[Message], dict[str, str]], tuple[Passage, ...]]
"""Messages and their redacted renderings become passages."""


def cut_windows(messages: Sequence[Message], texts: dict[str, str]) -> tuple[Passage, ...]:
    """As compactions do it."""
    return make_passages(RUN, "c1", messages, texts, CREATED)


def cut_messages(messages: Sequence[Message], texts: dict[str, str]) -> tuple[Passage, ...]:
    """The baseline."""
    whole = make_passages(RUN, "c1", messages[:1], texts, CREATED)[0]
    return tuple(
        whole.replace(
            id=f"00000000-0000-5000-8000-{place:012x}",
            text=texts[message.id],
            content_hash=message.id,
            first_message=message.id,
            last_message=message.id,
            compaction="",
            place=place,
        )
        for place, message in enumerate(messages)
        if texts[message.id]
    )


class DenseOnlyRecall(MemoryRecall):
    """Without BM25."""

    async def search(self, query: MemoryQuery, tokens: int) -> tuple[MemoryExcerpt, ...]:
        """See `MemoryRecall`; the embedder sees the words, and the engine none."""
        (dense,) = await self.embedder.embed([replace_placeholders_with_types(query.text)])
        turns = extract_turns(await self.memory.search(query.replace(text="", dense=dense)))
        return select_excerpts(turns, [0.0] * len(turns), tokens)


@dataclass(frozen=True)
class IndexedDialogue:
    """A conversation in a memory of its own."""

    recollection: MemoryRecall
    evidence: dict[str, str]
    """By question: the words that answer it, redacted as their message was."""
    passages: int
    bytes: int
    """Of the passages' texts."""

    async def has_answer(self, question: Question, tokens: int) -> bool:
        """Whether so many tokens have the answer."""
        excerpts = await self.recollection.find(RUN, question.text, tokens)
        return any(self.evidence[question.text] in excerpt.text for excerpt in excerpts)


@asynccontextmanager
async def indexing_dialogue(
    dialogue: Dialogue,
    redactor: Redactor,
    embedder: Embedder,
    cut: Cut = cut_windows,
    kind: type[MemoryRecall] = MemoryRecall,
) -> AsyncGenerator[IndexedDialogue]:
    """The conversation, as if one compaction had hidden all of it."""
    names, messages = map_tool_names(dialogue.messages), dialogue.messages
    rendered = [render_message(message, names) for message in messages]
    redacted = await redactor.redact(rendered, TextDestination.COMPRESSED, RUN.tenant)
    texts = {message.id: item.text for message, item in zip(messages, redacted, strict=True)}
    places = {message.id: place for place, message in enumerate(messages)}
    evidence = {
        question.text: find_redacted_words(question.evidence, rendered[place], redacted[place])
        for question in dialogue.questions
        for place in [places[question.message]]
    }
    passages = cut(messages, texts)
    with TemporaryDirectory() as folder:
        memory = await QdrantEdgeMemory.open(Path(folder) / "memory", embedder.name, embedder.dimension)
        await memory.upsert(await embed_passages(embedder, passages))
        size = sum(len(passage.text.encode()) for passage in passages)
        yield IndexedDialogue(kind(memory, embedder, redactor), evidence, len(passages), size)
        await memory.aclose()


def find_redacted_words(words: str, text: str, redacted: RedactionResult) -> str:
    """The words as they stand in the redacted text: redacted by themselves they can become something else."""
    start = text.index(words)
    spans = [span for span in redacted.spans if span.end > start and span.start < start + len(words)]
    start, end = min([start, *(span.start for span in spans)]), max([start + len(words), *(span.end for span in spans)])
    moved = [span.replace(start=span.start - start, end=span.end - start) for span in spans]
    return with_placeholders(text[start:end], moved).text


NO_EMBEDDER = NoEmbedder()
