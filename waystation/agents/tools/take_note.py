"""The tool that keeps a note with its source. Notes survive every compaction."""

from pydantic import Field

from waystation.agents.redacted_documents import RedactedDocuments
from waystation.agents.tools.read_document import find
from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool, shown_lines
from waystation.domain.projection import FIRST, SOON, urgent
from waystation.domain.web import page_lines
from waystation.domain.web_pages import kept_pages
from waystation.domain.work import Note
from waystation.ports import DocumentStore, WorkStore


class TakeNoteInput(ToolInput):
    """A note and where it stands."""

    text: str = Field(min_length=1, max_length=4_000, description="What is worth keeping; quote it where you can.")
    document: str
    first_line: int = Field(ge=1)
    last_line: int = Field(ge=1)


class TakeNote(TypedTool[TakeNoteInput]):
    """Keeps a note."""

    name = "take_note"
    description = "Keeps a note with its source. Notes are never compressed away; read_notes shows them."
    originals = frozenset({"document"})
    permission = "note"
    urgency = urgent(FIRST, verifying=SOON)
    input_model = TakeNoteInput

    def __init__(self, documents: DocumentStore, redacted: RedactedDocuments, work: WorkStore) -> None:
        self._documents, self._redacted, self._work = documents, redacted, work

    async def run(self, arguments: TakeNoteInput, at: CallSite) -> str:
        """The note's number. The call's id is the note's, so that a repeated call keeps one note."""
        name, lines = await self._source(arguments.document, at)
        if not arguments.first_line <= arguments.last_line <= lines:
            raise ToolRefused(
                f"Lines {arguments.first_line}-{arguments.last_line} are not in {name}, which has {lines} lines."
            )
        found = arguments.model_copy(update={"document": name})
        note = Note(id=f"{at.run.run_id}/{at.call_id}", run_id=at.run.run_id, **found.model_dump())
        await self._work.add_note(at.fence, at.run.task_id, note)
        notes = await self._work.notes(at.run.task_id, at.run.reader, at.run.run_id)
        return f"note {len(notes)} kept"

    async def _source(self, name: str, at: CallSite) -> tuple[str, int]:
        """A page that the agent has fetched, or a document: what it is called, and its lines. Raises ToolRefused."""
        if fetched := kept_pages(at.transcript.messages).get(name):
            return name, len(page_lines(await shown_lines(self._redacted, fetched.blob, name, at)))
        document = find(name, await self._documents.documents(at.run.task_id, at.run.reader))
        return document.name, document.lines
