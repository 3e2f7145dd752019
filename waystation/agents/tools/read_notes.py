"""The tool that shows an agent its own notes."""

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, TypedTool, page
from waystation.domain.projection import FIRST, LATER, urgent
from waystation.ports import WorkStore


class ReadNotesInput(ToolInput):
    """Which part of the notes."""

    first: int = Field(default=1, ge=1)
    count: int = Field(default=50, ge=1, le=200)


class ReadNotes(TypedTool[ReadNotesInput]):
    """Notes in the order in which they were taken."""

    name = "read_notes"
    description = "Shows your own notes with their sources, page by page."
    urgency = urgent(LATER, FIRST)
    input_model = ReadNotesInput

    def __init__(self, work: WorkStore) -> None:
        self._work = work

    async def run(self, arguments: ReadNotesInput, at: CallSite) -> str:
        """One line a note."""
        notes = await self._work.notes(at.run.task_id, at.run.reader, at.run.run_id)
        start = arguments.first - 1
        lines = [
            f"{number}. [{note.document}:{note.first_line}-{note.last_line}] {' '.join(note.text.split())}"
            for number, note in enumerate(notes[start : start + arguments.count], arguments.first)
        ]
        if not lines:
            return f"You have {len(notes)} notes; none from number {arguments.first} on."
        taken, _ = page(lines, at.page_characters)
        shown = start + len(taken)
        return "\n".join([*taken, *([f"continues at note {shown + 1} of {len(notes)}"] if shown < len(notes) else [])])
