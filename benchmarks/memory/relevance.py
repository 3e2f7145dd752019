"""Measures the scale of an embedder's vectors: cosines of related texts, and of unrelated ones."""

import asyncio
from itertools import product

import numpy as np

from benchmarks.budgets.tables import print_table
from benchmarks.memory.conversations import Dialogue, build_dialogue
from benchmarks.memory.indexing import cut_windows
from waystation.memory.embedders.local import WordLlamaEmbedder
from waystation.memory.passage_builder import render_message
from waystation.memory.passages import COSINE_SCALES, MIN_RELEVANCE
from waystation.memory.ports import Embedder

SEEDS = (1, 2, 3)
ASKED = (
    "Which {what} do the packages carry, and what needs attention before shipping?",
    "Find what the documents say about {what}.",
    "Compare the {what} of both releases, and say which is safer.",
    "How has the {what} changed since last year?",
)
SUBJECTS = (
    "licences", "parser of dates", "index of the database", "antibiotics", "pension rules", "orbit of the satellite",
    "grammar of old Norse", "sourdough", "garbage collector", "harvest of wheat", "copyright of songs", "vaccine",
)  # fmt: skip
"""None of them comes up in the conversations."""
POINTS = (5, 25, 50, 75, 95)
HEAD = ("embedder", "pairs", "how many", *(f"{point} %" for point in POINTS), "mean", "shown")


def compute_cosines(
    conversation: Dialogue, asked: dict[str, tuple[float, ...]], passages: dict[str, tuple[float, ...]], *, own: bool
) -> list[float]:
    """Of each question of the conversation with the passages that answer it; or of any question with any passage."""
    if not own:
        matrix = np.array([*passages.values()])
        return [float(value) for vector in asked.values() for value in matrix @ np.array(vector)]
    return [
        float(np.dot(asked[question.text], vector))
        for question in conversation.questions
        for text, vector in passages.items()
        if question.evidence in text
    ]


async def embed_texts(embedder: Embedder, texts: list[str]) -> dict[str, tuple[float, ...]]:
    """By text, of those that have one."""
    made = zip(texts, await embedder.embed(texts), strict=True)
    return {text: vector for text, vector in made if vector is not None}


async def measure_cosines(embedder: Embedder) -> tuple[list[float], list[float]]:
    """The cosines of what belongs together, and of what does not."""
    related, unrelated = list[float](), list[float]()
    strangers = await embed_texts(embedder, [form.format(what=what) for form, what in product(ASKED, SUBJECTS)])
    for seed in SEEDS:
        conversation = build_dialogue(seed)
        texts = {message.id: render_message(message, {}) for message in conversation.messages}
        passages = await embed_texts(
            embedder, [passage.index_text for passage in cut_windows(conversation.messages, texts)]
        )
        own = await embed_texts(embedder, [question.text for question in conversation.questions])
        related += compute_cosines(conversation, own, passages, own=True)
        unrelated += compute_cosines(conversation, strangers, passages, own=False)
    return related, unrelated


def prove() -> None:
    """Print the table."""
    embedder = WordLlamaEmbedder()
    rows: list[tuple[object, ...]] = []
    scale = COSINE_SCALES[embedder.name]
    for pairs, found in zip(("related", "unrelated"), asyncio.run(measure_cosines(embedder)), strict=True):
        points = [f"{value:.2f}" for value in np.percentile(found, POINTS)]
        shown = sum(scale.relevance(value) >= MIN_RELEVANCE for value in found) / len(found)
        rows.append((embedder.name, pairs, f"{len(found):,}", *points, f"{np.mean(found):.3f}", f"{shown:.1%}"))
    print_table("Cosines, and what is shown of it at a relevance of 0.3", HEAD, rows)
