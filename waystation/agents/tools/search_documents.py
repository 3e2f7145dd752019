"""The tool that searches the task's documents."""

import sys
from collections.abc import Sequence

from pydantic import Field

from waystation.agents.document_names import document_names
from waystation.agents.redacted_documents import RedactedDocuments
from waystation.agents.tools.tool import CallSite, ToolInput, TypedTool, page
from waystation.domain.documents import DocumentHit, ShownDocument
from waystation.domain.foreign_text import one_line, without_tags
from waystation.domain.projection import FIRST, urgent
from waystation.ports import DocumentSearch, DocumentStore, Redactor

ROUNDS = 5
"""In which documents are redacted, those of the best hits first, before the passages that there are by then must do."""


class SearchDocumentsInput(ToolInput):
    """What to look for."""

    query: str = Field(min_length=1, max_length=1_000, description="Key words.")
    limit: int = Field(default=10, ge=1, le=40)
    first_document: int = Field(default=1, ge=1, description="Number in the list of documents, to search a part of it.")
    last_document: int | None = Field(default=None, ge=1)


class SearchDocuments(TypedTool[SearchDocumentsInput]):
    """Full-text search, best passages first, with their line ranges."""

    name = "search_documents"
    description = (
        "Searches all documents by key words. Gives the best passages, each headed by the place it stands at, "
        "written as a citation: [document:first-last]."
    )
    rereadable = True
    originals = frozenset({"query"})
    urgency = urgent(FIRST)
    input_model = SearchDocumentsInput

    def __init__(
        self, search: DocumentSearch, documents: DocumentStore, redactor: Redactor, redacted: RedactedDocuments
    ) -> None:
        self._search, self._documents, self._redactor, self._redacted = search, documents, redactor, redacted

    async def run(self, arguments: SearchDocumentsInput, at: CallSite) -> str:
        """One block a passage."""
        hits = await self._found(arguments, at)
        if not hits:
            return "No passage matches. Try other words, or list_documents."
        blocks = [
            f"[{one_line(hit.name)}:{hit.first_line}-{hit.last_line}]\n{without_tags(hit.text)}\n" for hit in hits
        ]
        taken, whole = page(blocks, at.page_characters)
        return "\n".join(taken if whole else [*taken, f"{len(hits) - len(taken)} more passages; narrow the query"])

    async def _found(self, arguments: SearchDocumentsInput, at: CallSite) -> Sequence[DocumentHit]:
        """Only what is found in documents as they are shown: a hit on a word that was replaced would confirm it.

        Those in which something was found are redacted now, and searched again so.
        """
        last = arguments.last_document
        among = range(arguments.first_document, last + 1 if last is not None else sys.maxsize)
        # Originals have what placeholders stand for, and documents as they are shown have the placeholders.
        query = " ".join(dict.fromkeys(filter(None, (arguments.query, at.as_written("query")))))
        hits = await self._search.search(at.run.reader, query, arguments.limit, among)
        for _ in range(ROUNDS):
            if all(hit.shown for hit in hits):
                break
            await self._search.take(at.run.task_id, await self._shown(hits, at))
            hits = await self._search.search(at.run.reader, query, arguments.limit, among)
        return [hit for hit in hits if hit.shown]

    async def _shown(self, hits: Sequence[DocumentHit], at: CallSite) -> Sequence[ShownDocument]:
        documents = await self._documents.documents(at.run.task_id, at.run.reader)
        called = (await document_names(documents, self._redactor, at.run.tenant)).shown
        shown: list[ShownDocument] = []
        for blob, name in dict.fromkeys((hit.blob, hit.name) for hit in hits if not hit.shown):
            text = await self._redacted.text(blob, at.run.reader)
            at.notices.extend(await self._redacted.notes(text, name, at.run.tenant))
            shown.append(ShownDocument(blob=blob, name=name, called=called.get(name, name), text=text.text))
        return shown
