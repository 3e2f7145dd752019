"""Conversations over real documents: an agent reads the descriptions of installed packages, page by page."""

import random
from collections.abc import Iterator
from importlib.metadata import distribution

from benchmarks.context.conversations import OPEN_WORK, PINNED_REMARK, REMARKS, Conversation
from waystation.context.constraints import extract_identifiers
from waystation.plugins.offline.language import extract_stems, split_sentences

PACKAGES = (
    "anthropic",
    "pydantic",
    "qdrant-client",
    "typer",
    "hypothesis",
    "temporalio",
    "rich",
    "httpx2",
    "numpy",
    "bm25s",
)
"""Each has a long description of prose, code and links; together some 100,000 tokens."""
PAGE = 60
"""Lines of a page."""
NOTES = 2
"""Sentences of a page that the agent says it takes note of."""
REMARK_EVERY = 12
"""Turns."""
MIN_STEMS = 4
QUESTION = (
    "What do these packages promise, and what do they need? Never quote more than a line. "
    "Do not install anything before I have seen the list. Every claim must name its package."
)


def build_document_conversation(seed: int) -> Conversation:
    """The same from the same seed, as long as the packages are. It ends while a call waits for its result."""
    chance, conversation = random.Random(seed), Conversation()
    conversation.user(QUESTION)
    notes = "\n".join(OPEN_WORK)
    for turn, (name, line, page) in enumerate(_pages(chance), 1):
        conversation.call(notes, name=name, first_line=line)
        conversation.result(page)
        conversation.planted.update(_identified(page))
        told = [sentence for sentence in split_sentences(page) if 40 < len(sentence) < 300]
        notes = f"Of {name}: {' '.join(chance.sample(told, min(NOTES, len(told))))}"
        if turn % REMARK_EVERY == 0:
            place = turn // REMARK_EVERY - 1
            conversation.user(REMARKS[place % len(REMARKS)], pin=place == PINNED_REMARK)
    conversation.call(notes, name="the end", first_line=1)
    return conversation


def _identified(page: str) -> Iterator[tuple[str, str]]:
    """The identifiers of a page, each with its line; only of lines that say enough to ask for them by the rest."""
    for line in page.splitlines():
        for identifier in (found for kind in extract_identifiers(line).values() for found in kind):
            if len(extract_stems(line.replace(identifier, " "))) >= MIN_STEMS:
                yield identifier, line


def _pages(chance: random.Random) -> Iterator[tuple[str, int, str]]:
    """Name, first line and text of each page."""
    for package in chance.sample(PACKAGES, len(PACKAGES)):
        lines = str(distribution(package).metadata["Description"] or "").splitlines()
        for first in range(0, len(lines), PAGE):
            yield (
                package,
                first + 1,
                "\n".join(f"{first + n}| {line}" for n, line in enumerate(lines[first : first + PAGE], 1)),
            )
