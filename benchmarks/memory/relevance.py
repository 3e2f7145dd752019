"""On which scale an embedder's vectors stand: cosines of texts that belong together, and of texts that do not."""

import asyncio
from itertools import product

import numpy as np

from benchmarks.budgets.tables import show
from benchmarks.memory.conversations import Dialogue, dialogue
from benchmarks.memory.indexing import windows
from waystation.memory.embedders.local import WordLlamaEmbedder
from waystation.memory.memory import CALIBRATED, LEAST_RELEVANCE
from waystation.memory.passages import render
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


def cosines(
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


async def vectors(embedder: Embedder, texts: list[str]) -> dict[str, tuple[float, ...]]:
    """By text, of those that have one."""
    made = zip(texts, await embedder.embed(texts), strict=True)
    return {text: vector for text, vector in made if vector is not None}


async def measured(embedder: Embedder) -> tuple[list[float], list[float]]:
    """The cosines of what belongs together, and of what does not."""
    related, unrelated = list[float](), list[float]()
    strangers = await vectors(embedder, [form.format(what=what) for form, what in product(ASKED, SUBJECTS)])
    for seed in SEEDS:
        conversation = dialogue(seed)
        texts = {message.id: render(message, {}) for message in conversation.messages}
        passages = await vectors(embedder, [passage.indexed for passage in windows(conversation.messages, texts)])
        own = await vectors(embedder, [question.text for question in conversation.questions])
        related += cosines(conversation, own, passages, own=True)
        unrelated += cosines(conversation, strangers, passages, own=False)
    return related, unrelated


def prove() -> None:
    """Print the table."""
    embedder = WordLlamaEmbedder()
    rows: list[tuple[object, ...]] = []
    scale = CALIBRATED[embedder.name]
    for pairs, found in zip(("related", "unrelated"), asyncio.run(measured(embedder)), strict=True):
        points = [f"{value:.2f}" for value in np.percentile(found, POINTS)]
        shown = sum(scale.relevance(value) >= LEAST_RELEVANCE for value in found) / len(found)
        rows.append((embedder.name, pairs, f"{len(found):,}", *points, f"{np.mean(found):.3f}", f"{shown:.1%}"))
    show("Cosines, and what is shown of it at a relevance of 0.3", HEAD, rows)
