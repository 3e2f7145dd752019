"""The baseline: BM25 over the product's passages, each with the name of its document and its heading. This is what
document search was before it knew meaning and names.
"""

import bm25s

from benchmarks.search.measure import Texts
from waystation.documents.documents import DocumentPassage
from waystation.documents.search import split_into_passages
from waystation.documents.search_terms import extract_terms


class PlainSearch:
    """Of a few documents. The index is built at once."""

    def __init__(self, texts: Texts) -> None:
        """`texts`: by name."""
        self._passages = [passage for name, text in texts.items() for passage in split_into_passages(name, text)]
        terms = [extract_terms(f"{one.name}\n{one.heading}\n{one.text}") for one in self._passages]
        self._bm25 = bm25s.BM25()
        self._bm25.index(terms, show_progress=False)  # pyright: ignore[reportUnknownMemberType] partly typed library

    async def search(self, query: str, limit: int, document: str = "") -> list[DocumentPassage]:
        """Return the best passages, of one document only if it is named."""
        wanted = list(dict.fromkeys(extract_terms(query)))
        scores: list[float] = self._bm25.get_scores(wanted).tolist()  # pyright: ignore[reportUnknownMemberType]
        hits = [
            (-score, passage.name, passage.first_line, number)
            for number, (score, passage) in enumerate(zip(scores, self._passages, strict=True))
            if score > 0 and document in {"", passage.name}
        ]
        return [self._passages[number] for *_, number in sorted(hits)[:limit]]
