"""Measures recall of known evidence in the first tokens that a question returns."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.budgets.tables import print_table
from benchmarks.memory.conversations import build_dialogue
from benchmarks.memory.indexing import NO_EMBEDDER, Cut, DenseOnlyRecall, cut_messages, cut_windows, indexing_dialogue
from waystation.context.tokens import estimate_messages
from waystation.memory.embedders.local import WordLlamaEmbedder
from waystation.memory.indexing import MemoryRecall
from waystation.memory.ports import Embedder
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.ports import Redactor
from waystation.testing.doubles import PlainRedactor

SEEDS = (4, 5, 6)
"""Sizes and weights were chosen on 1 to 3."""
BUDGETS = (1_000, 2_000)
KEY = bytes(32)
HEAD = ("passages", "search", "redacted", "questions", "passages made", *(f"recall at {n:,} tokens" for n in BUDGETS))


class MemoryVariant(NamedTuple):
    """How memory is built and asked."""

    passages: str
    search: str
    cut: Cut
    embedder: Embedder
    kind: type[MemoryRecall]


def build_variants() -> tuple[MemoryVariant, ...]:
    """The baseline and ours, by words, by meaning and by both."""
    static = WordLlamaEmbedder()
    return tuple(
        MemoryVariant(name, search, cut, embedder, kind)
        for name, cut in (("one message each", cut_messages), ("the product's windows", cut_windows))
        for search, embedder, kind in (
            ("BM25", NO_EMBEDDER, MemoryRecall),
            ("static dense", static, DenseOnlyRecall),
            ("both", static, MemoryRecall),
        )
    )


async def measure_recall(way: MemoryVariant, redactor: Redactor, seeds: Sequence[int]) -> tuple[list[float], int, int]:
    """Recall for each budget, questions, passages."""
    hits, asked, made = [0] * len(BUDGETS), 0, 0
    for seed in seeds:
        conversation = build_dialogue(seed)
        async with indexing_dialogue(conversation, redactor, way.embedder, way.cut, way.kind) as memory:
            made += memory.passages
            asked += len(conversation.questions)
            for place, tokens in enumerate(BUDGETS):
                hits[place] += sum([await memory.has_answer(question, tokens) for question in conversation.questions])
    return [hit / asked for hit in hits], asked, made


async def _all() -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    presidio = PresidioRedactor(KEY)
    try:
        for way in build_variants():
            redactors: list[tuple[str, Redactor]] = [("no", PlainRedactor({}, {}))]
            if way.search == "both":
                redactors.append(("yes", presidio))
            for redacted, redactor in redactors:
                recall, asked, made = await measure_recall(way, redactor, SEEDS)
                rows.append((way.passages, way.search, redacted, asked, f"{made:,}", *(f"{r:.2f}" for r in recall)))
    finally:
        presidio.close()
    return rows


def prove() -> None:
    """Print the table."""
    tokens = sum(estimate_messages(build_dialogue(seed).messages) for seed in SEEDS) // len(SEEDS)
    print_table(f"Recall, {len(SEEDS)} conversations of some {tokens:,} tokens", HEAD, asyncio.run(_all()))
