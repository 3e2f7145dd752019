"""Search by meaning and by names, with the bundled embedder."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.documents.test_documents_search import Shelf, places
from tests.support.scopes import make_task_scope
from waystation.documents import search_vectors
from waystation.documents.documents import DocumentMatch, ShownDocument
from waystation.documents.search import HybridDocumentSearch
from waystation.documents.search_terms import extract_name_terms, extract_query_name_terms, split_identifier
from waystation.documents.search_vectors import PassageEmbedder, PassageText
from waystation.kernel.errors import MemoryUnavailable
from waystation.memory.embedders.local import WordLlamaEmbedder

SCOPE = make_task_scope("task-1")
EMBEDDER = WordLlamaEmbedder()
HARBOUR = {
    "boats.md": "# People\n\nThe physician has an automobile.\n\n# Sheds\n\nPaint is kept in the shed.",
    "tides.md": "# Sheds\n\nThe cost of the building is high.\n\n# Bar\n\nThe sandbank moves.",
}
FILINGS = {
    f"{company}_{year}_10K.pdf": f"[page 1]\nConsolidated balance sheet\n{'Assets 5 7 9. ' * 40}\n\n[page 2]\nNotes"
    for company in ("EBAY", "AMERICANEXPRESS", "PG_E")
    for year in (2022, 2023)
}


async def search(texts: dict[str, str], query: str, limit: int = 10) -> tuple[DocumentMatch, ...]:
    return await HybridDocumentSearch(Shelf(texts), EMBEDDER).search(SCOPE, query, limit)


@pytest.mark.parametrize(
    ("query", "place"),
    [("a doctor who owns a car", ("boats.md", 1, 3)), ("price of a house", ("tides.md", 1, 3))],
)
async def test_a_passage_is_found_that_says_the_same_in_other_words(query: str, place: tuple[str, int, int]) -> None:
    assert places(await search(HARBOUR, query))[0] == place
    by_words = await HybridDocumentSearch(Shelf(HARBOUR)).search(SCOPE, query, 10)
    assert place not in places(by_words)[:1]


@pytest.mark.parametrize("query", ["zebra", "quantum chromodynamics", "", "the and of"])
async def test_what_means_nothing_of_the_kind_finds_nothing(query: str) -> None:
    assert await search(HARBOUR, query) == ()


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("What were the assets of eBay in FY2023?", "EBAY_2023_10K.pdf"),
        ("American Express assets, 2022", "AMERICANEXPRESS_2022_10K.pdf"),
        ("PG&E 10-K for 2023", "PG_E_2023_10K.pdf"),
    ],
)
async def test_the_document_that_a_question_names_comes_first(query: str, name: str) -> None:
    assert (await search(FILINGS, query))[0].name == name


async def test_a_document_is_found_by_its_title() -> None:
    texts = {"1.md": "# Lease of the boathouse\n\nIt ends in May.", "2.md": "# Insurance\n\nIt ends in June."}
    assert [hit.name for hit in await search(texts, "boathouse")] == ["1.md"]


async def test_a_table_is_found_by_the_first_lines_of_its_page() -> None:
    rows = "\n".join(f"Row {number} 17 18 19" for number in range(30))
    texts = {"a.pdf": f"[page 1]\nStatement of cash flows\n{rows}\n\n[page 2]\nLetter to owners\n{rows}"}
    found = places(await search(texts, "cash flows", 3))
    assert {*found} == {("a.pdf", 1, 12), ("a.pdf", 13, 24), ("a.pdf", 25, 32)}


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("fetchPage", ["fetch", "Page"]),
        ("FY2018", ["FY", "2018"]),
        ("10K", ["10"]),
        ("eBay", ["Bay"]),
        ("HTTP", []),
        ("7f3a2c91d04e", []),
        ("2018", []),
    ],
)
def test_identifiers_are_split_at_digits_and_capitals(word: str, parts: list[str]) -> None:
    assert split_identifier(word) == parts


def test_names_are_split_at_separators_and_keep_their_digits() -> None:
    assert {"ebay", "2023", "10k", "10"} == extract_name_terms("EBAY_2023-10K")
    assert "americanexpress" in extract_query_name_terms("How does American Express pay?")


async def test_words_of_a_text_that_was_redacted_are_no_longer_found_by_meaning() -> None:
    texts = {"a.md": "The physician has an automobile."}
    found = HybridDocumentSearch(Shelf(texts), EMBEDDER)
    assert await found.search(SCOPE, "doctor", 5)
    shown = ShownDocument(blob="a.md", name="a.md", shown_name="a.md", text="[REDACTED] paints the shed.")
    await found.index_redacted_texts("task-1", [shown])
    assert await found.search(SCOPE, "doctor", 5) == ()


class MissingEmbedder:
    def embed_words(self, words: Sequence[str]) -> NDArray[np.float32]:
        raise MemoryUnavailable("the model cannot be loaded")


async def test_without_a_model_words_still_find() -> None:
    found = HybridDocumentSearch(Shelf(HARBOUR), MissingEmbedder())
    assert places(await found.search(SCOPE, "sandbank", 1)) == [("tides.md", 5, 7)]


class CountingEmbedder:
    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed_words(self, words: Sequence[str]) -> NDArray[np.float32]:
        self.embedded += words
        return np.array([[len(word), 1] for word in words], dtype=np.float32).reshape(-1, 2)


def test_each_word_is_embedded_once_until_the_cache_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_vectors, "MAX_CACHED_WORDS", 3)
    words = CountingEmbedder()
    embedder = PassageEmbedder(words)
    first = embedder.embed_passages([PassageText((), ("Sand", "bar", "sand"))])
    embedder.embed_query(["bar"])
    assert words.embedded == ["sand", "bar"]
    embedder.embed_passages([PassageText((), ("tide", "table"))])
    again = embedder.embed_passages([PassageText((), ("Sand", "bar", "sand"))])
    assert words.embedded == ["sand", "bar", "tide", "table", "sand", "bar"]
    assert first.windows.tobytes() == again.windows.tobytes()


def test_a_long_passage_is_as_near_as_the_nearest_of_its_overlapping_windows() -> None:
    embedder = PassageEmbedder(EMBEDDER)
    words = ["paint"] * 100 + ["physician"] * 20 + ["shed"] * 100
    vectors = embedder.embed_passages([PassageText((), words), PassageText((), ["paint"])])
    assert vectors.passages.tolist().count(0) > 1
    assert vectors.passages.tolist().count(1) == 1
    near, far = vectors.compute_similarities(embedder.embed_query(["doctor"]))
    assert near > far
