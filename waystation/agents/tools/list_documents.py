"""The tool that names the task's documents."""

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, TypedTool, page
from waystation.domain.documents import REMOVED, Document
from waystation.domain.foreign_text import one_line
from waystation.domain.procedures import evidence
from waystation.domain.projection import FIRST, SOON, urgent
from waystation.ports import DocumentStore


class ListDocumentsInput(ToolInput):
    """Which part of the list."""

    first: int = Field(default=1, ge=1, description="Number of the first document to name.")
    count: int = Field(default=100, ge=1, le=200)


class ListDocuments(TypedTool[ListDocumentsInput]):
    """Names, lines and sizes of the documents."""

    name = "list_documents"
    description = "Names the documents of this task with their length, page by page."
    rereadable = True
    urgency = urgent(FIRST, SOON)
    input_model = ListDocumentsInput

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def run(self, arguments: ListDocumentsInput, at: CallSite) -> str:
        """One line a document, and where to go on."""
        documents = evidence(await self._documents.documents(at.run.task_id, at.run.reader))
        start = arguments.first - 1
        lines = [_line(document) for document in documents[start : start + arguments.count]]
        taken, _ = page(lines, at.page_characters)
        shown = start + len(taken)
        if not taken:
            return f"There are {len(documents)} documents; none from number {arguments.first} on."
        rest = [f"continues at number {shown + 1} of {len(documents)}"] if shown < len(documents) else []
        return "\n".join([*taken, *rest])


def _line(document: Document) -> str:
    size = f"{document.lines:,} lines, {document.characters:,} characters"
    return f"{one_line(document.name)} ({REMOVED if document.removed else size})"
