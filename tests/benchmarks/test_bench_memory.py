"""The proof of memory, in its small form: what compactions hid is found again, by the pipeline that agents use."""

import pytest

from benchmarks.memory.conversations import build_dialogue
from benchmarks.memory.indexing import NO_EMBEDDER, RUN, cut_messages, cut_windows, indexing_dialogue
from waystation.memory.embedders.local import WordLlamaEmbedder
from waystation.memory.ports import Embedder
from waystation.testing.doubles import PlainRedactor

FLOOR, SINGLES = 0.75, 0.65
"""Recall at 2,000 tokens; 1.0 was measured, and 0.55 for one message a passage."""


@pytest.mark.parametrize("embedder", [WordLlamaEmbedder(), NO_EMBEDDER])
async def test_most_evidence_is_in_the_first_tokens_recalled(embedder: Embedder) -> None:
    conversation = build_dialogue(seed=1, facts=40)
    async with indexing_dialogue(conversation, PlainRedactor({}), embedder, cut_windows) as memory:
        found = [await memory.has_answer(question, 2_000) for question in conversation.questions]
        excerpts = await memory.recollection.find(RUN, conversation.questions[0].text, 2_000)
    assert sum(found) / len(found) >= FLOOR
    assert sum(one.tokens for one in excerpts) <= 2_000


async def test_single_messages_find_less() -> None:
    conversation = build_dialogue(seed=1, facts=40)
    async with indexing_dialogue(conversation, PlainRedactor({}), WordLlamaEmbedder(), cut_messages) as memory:
        found = [await memory.has_answer(question, 2_000) for question in conversation.questions]
    assert sum(found) / len(found) <= SINGLES


def test_a_conversation_is_the_same_from_the_same_seed() -> None:
    first, again, other = (build_dialogue(seed, facts=5) for seed in (3, 3, 4))
    assert (first.messages, first.questions) == (again.messages, again.questions)
    assert first.messages != other.messages
