"""Facts of the shipped question set among the first five passages: for its questions, and for them in other words."""

import asyncio
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.search.measure import OpenedSearch, ProductSearch, Stopwatch, Texts, open_search
from benchmarks.search.plain import PlainSearch
from waystation.documents.document_loading import load_documents, write_package_documents
from waystation.memory.embedders.local import WordLlamaEmbedder
from waystation.plugins.evaluation.question_sets import find_question_set, load_question_set
from waystation.plugins.evaluation.scores import GoldQuestion, QuestionSet

PASSAGES = 5
PARAPHRASES = Path(__file__).with_name("paraphrases.toml")
KINDS = ("as written", "in other words", "in other words, unnamed")


def load_paraphrases() -> dict[str, list[str]]:
    """Return two paraphrases for each question, by its id."""
    return tomllib.loads(PARAPHRASES.read_text(encoding="utf-8"))


def build_queries(question: GoldQuestion, paraphrases: dict[str, list[str]]) -> Sequence[str]:
    """Return the question in each of `KINDS`."""
    return (question.question, *paraphrases[question.id])


def compute_fact_recall(question: GoldQuestion, shown: Sequence[str]) -> float:
    """Return the share of a question's facts that stand in the texts shown."""
    text = _squeeze(" ".join(shown))
    return sum(any(_squeeze(one) in text for one in fact) for fact in question.facts) / len(question.facts)


def _squeeze(text: str) -> str:
    return " ".join(text.casefold().split())


def load_package_texts() -> Texts:
    """Return the descriptions of all installed packages."""
    with tempfile.TemporaryDirectory() as folder:
        write_package_documents(Path(folder) / "packages")
        return {one.name: one.text for one in load_documents([Path(folder) / "packages"]).documents}


def prove() -> None:
    """Print recall and times, before and after."""
    asyncio.run(_prove())


async def _prove() -> None:
    gold = load_question_set(find_question_set("packages"))
    every = load_package_texts()
    own = {name: text for name, text in every.items() if name.removesuffix(".md") in gold.packages}
    print("\n| documents | search | " + " | ".join(KINDS) + " | CPU ms a query | CPU s to index a MB |")
    print("| --- | --- |" + " --- |" * (len(KINDS) + 2))
    embedder = WordLlamaEmbedder()
    embedder.embed_words(["index"])  # loads the model
    for texts in (own, every):
        for name, opened in (
            ("words (before)", await open_search(PlainSearch, texts)),
            ("words, meaning, names", await open_search(lambda given: ProductSearch(given, embedder), texts)),
        ):
            watch = Stopwatch()
            recall = [f"{await _measure(gold, kind, opened, watch):.3f}" for kind in range(len(KINDS))]
            times = f"{watch.mean_ms:.1f} | {opened.seconds_a_megabyte:.2f}"
            print(f"| {len(texts)} | {name} | {' | '.join(recall)} | {times} |", flush=True)
    print(f"\nShare of the facts of {len(gold.questions)} questions that stand in the first {PASSAGES} passages.")


async def _measure(gold: QuestionSet, kind: int, opened: OpenedSearch, watch: Stopwatch) -> float:
    paraphrases = load_paraphrases()
    shares: list[float] = []
    for question in gold.questions:
        query = build_queries(question, paraphrases)[kind]
        found = await watch.time(lambda query=query: opened.search.search(query, PASSAGES))
        shares.append(compute_fact_recall(question, [one.text for one in found]))
    return sum(shares) / len(shares)
