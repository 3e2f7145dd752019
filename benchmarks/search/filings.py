"""Pages of FinanceBench (github.com/patronus-ai/financebench) among the first five that a search shows.

FINANCEBENCH names a clone of it, with or without a work tree. Without one it is cloned into the folder for temporary
files; nothing of it is kept in this repository. Filings that the clone lacks are left out with their questions.
"""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, TypeAdapter

from benchmarks.search.measure import Hit, OpenedSearch, ProductSearch, Search, Stopwatch, Texts, open_search
from benchmarks.search.plain import PlainSearch
from waystation.documents.document_loading import load_documents
from waystation.documents.documents import find_line_place
from waystation.memory.embedders.local import WordLlamaEmbedder

SOURCE = "https://github.com/patronus-ai/financebench"
QUESTIONS = "data/financebench_open_source.jsonl"
PAGES = 5
_HITS = 200
"""Passages of a search, to find five pages among them."""


class Evidence(BaseModel):
    """A page that a question's answer stands on."""

    doc_name: str
    evidence_page_num: int
    """Counted from 0."""


class FilingQuestion(BaseModel):
    """A question about filings of companies."""

    question: str
    evidence: list[Evidence]

    @property
    def pages(self) -> set[tuple[str, str]]:
        """Documents and their pages as `[page N]` numbers them."""
        return {(f"{one.doc_name}.pdf", f"page {one.evidence_page_num + 1}") for one in self.evidence}


class Filings(NamedTuple):
    """Questions whose filings are all there, and those filings."""

    questions: Sequence[FilingQuestion]
    texts: Texts


def load_filings() -> Filings:
    """Read the questions, and the texts of their filings, which are kept in the folder for temporary files."""
    cache = Path(tempfile.gettempdir()) / "waystation-financebench"
    cache.mkdir(exist_ok=True)
    source = Path(os.environ.get("FINANCEBENCH", cache / "clone"))
    if not source.exists():
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", SOURCE, source], check=True)
    lines = (_read(source, QUESTIONS) or b"").decode().splitlines()
    asked = [TypeAdapter(FilingQuestion).validate_json(line) for line in lines]
    names = sorted({name for one in asked for name, _ in one.pages})
    texts = {name: text for name in names if (text := _load_text(source, name, cache)) is not None}
    return Filings([one for one in asked if all(name in texts for name, _ in one.pages)], texts)


def _read(source: Path, path: str) -> bytes | None:
    """Return a file of the newest commit; None if the clone does not have it."""
    found = subprocess.run(["git", "-C", source, "cat-file", "blob", f"HEAD:{path}"], capture_output=True, check=False)
    return found.stdout if found.returncode == 0 else None


def _load_text(source: Path, name: str, cache: Path) -> str | None:
    text = cache / f"{name}.txt"
    if not text.exists():
        content = _read(source, f"pdfs/{name}")
        if content is None:
            return None
        (cache / name).write_bytes(content)
        text.write_text(load_documents([cache / name]).documents[0].text, encoding="utf-8")
        (cache / name).unlink()
    return text.read_text(encoding="utf-8")


def find_first_pages(hits: Sequence[Hit], lines: Mapping[str, Sequence[str]], count: int) -> list[tuple[str, str]]:
    """Return the first pages on which passages begin, each once."""
    pages = ((hit.name, find_line_place(lines[hit.name], hit.first_line) or "") for hit in hits)
    return list(dict.fromkeys(pages))[:count]


def prove() -> None:
    """Print recall and times, before and after."""
    asyncio.run(_prove())


async def _prove() -> None:
    filings = load_filings()
    characters = sum(map(len, filings.texts.values()))
    print(
        f"\n{len(filings.questions)} questions, {len(filings.texts)} whole filings, {characters / 1e6:.1f} MB of text"
    )
    print("\n| search | all filings | the filing itself | CPU ms a query | CPU s to index a MB |")
    print("| --- | --- | --- | --- | --- |")
    embedder = WordLlamaEmbedder()
    embedder.embed_words(["index"])  # loads the model
    builders: dict[str, Callable[[Texts], Search]] = {
        "words (before)": PlainSearch,
        "words, meaning, names": partial(ProductSearch, embedder=embedder),
    }
    for name, build in builders.items():
        opened = await open_search(build, filings.texts)
        watch = Stopwatch()
        every = await _measure(filings, opened, watch)
        own = await _measure(filings, opened, Stopwatch(), in_filing=True)
        times = f"{watch.mean_ms:.0f} | {opened.seconds_a_megabyte:.2f}"
        print(f"| {name} | {every:.3f} | {own:.3f} | {times} |", flush=True)
    print(f"\nShare of the evidence pages among the first {PAGES} pages found; questions are queries as they are.")


async def _measure(filings: Filings, opened: OpenedSearch, watch: Stopwatch, *, in_filing: bool = False) -> float:
    lines = {name: text.splitlines() for name, text in filings.texts.items()}
    shares: list[float] = []
    for one in filings.questions:
        document = next(iter(sorted(one.pages)))[0] if in_filing else ""
        found = await watch.time(lambda one=one, document=document: opened.search.search(one.question, _HITS, document))
        shares.append(len(one.pages & {*find_first_pages(found, lines, PAGES)}) / len(one.pages))
    return sum(shares) / len(shares)
