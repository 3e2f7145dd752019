"""The tool that searches the task's documents."""

import sys

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, TypedTool, page
from waystation.domain.foreign_text import one_line
from waystation.domain.projection import FIRST, urgent
from waystation.ports import DocumentSearch


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

    def __init__(self, search: DocumentSearch) -> None:
        self._search = search

    async def run(self, arguments: SearchDocumentsInput, at: CallSite) -> str:
        """One block a passage."""
        last = arguments.last_document
        among = range(arguments.first_document, last + 1 if last is not None else sys.maxsize)
        hits = await self._search.search(at.run.task_id, arguments.query, arguments.limit, among)
        if not hits:
            return "No passage matches. Try other words, or list_documents."
        blocks = [f"[{one_line(hit.name)}:{hit.first_line}-{hit.last_line}]\n{hit.text}\n" for hit in hits]
        taken, whole = page(blocks, at.page_characters)
        return "\n".join(taken if whole else [*taken, f"{len(hits) - len(taken)} more passages; narrow the query"])
