"""The tool that reads a document in pieces, with line numbers."""

from difflib import get_close_matches

from pydantic import Field

from waystation.agents.redacted_documents import RedactedDocuments
from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool, page, shown_lines
from waystation.domain.documents import REMOVED, Document, named
from waystation.domain.foreign_text import one_line, without_tags
from waystation.domain.procedures import evidence
from waystation.domain.projection import FIRST, urgent
from waystation.domain.redaction import whole_until
from waystation.ports import DocumentStore

LINES_A_PAGE = 200
LINE_CHARACTERS = 2_000
"""A longer line is cut here: one line must not fill the window."""


class ReadDocumentInput(ToolInput):
    """Which lines of which document."""

    name: str = Field(description="The document's name, exactly as list_documents or a citation gives it.")
    first_line: int = Field(default=1, ge=1)
    last_line: int | None = Field(default=None, ge=1)


class ReadDocument(TypedTool[ReadDocumentInput]):
    """A stretch of lines."""

    name = "read_document"
    description = (
        f"Reads up to {LINES_A_PAGE} numbered lines of a document. Cite what you use as [document:first-last]."
    )
    rereadable = True
    originals = frozenset({"name"})
    urgency = urgent(FIRST)
    input_model = ReadDocumentInput

    def __init__(self, documents: DocumentStore, redacted: RedactedDocuments) -> None:
        self._documents, self._redacted = documents, redacted

    async def run(self, arguments: ReadDocumentInput, at: CallSite) -> str:
        """A header, numbered lines, and where to go on."""
        document = find(arguments.name, await self._documents.documents(at.run.task_id, at.run.reader))
        if arguments.first_line > document.lines:
            raise ToolRefused(
                f"{one_line(document.name)} has {document.lines} lines; there is no line {arguments.first_line}."
            )
        if arguments.last_line is not None and arguments.last_line < arguments.first_line:
            raise ToolRefused("last_line is before first_line.")
        lines = await shown_lines(self._redacted, document.blob, document.name, at)
        last = min(arguments.last_line or document.lines, arguments.first_line + LINES_A_PAGE - 1, document.lines)
        # Before they are numbered: a tag may begin on one line and end on another.
        shown_ones = without_tags("\n".join(map(_cut, lines[arguments.first_line - 1 : last]))).split("\n")
        numbered = [f"{number}| {line}" for number, line in enumerate(shown_ones, arguments.first_line)]
        taken, _ = page(numbered, at.page_characters)
        shown = arguments.first_line + len(taken) - 1
        header = f"{one_line(document.name)}, lines {arguments.first_line}-{shown} of {document.lines}"
        wanted = min(arguments.last_line or document.lines, document.lines)
        return "\n".join([header, *taken, *([f"continues at line {shown + 1}"] if shown < wanted else [])])


FILE_READERS = {ReadDocument.name: "name"}
"""The tools that read files, each with the argument that names the file."""


def find(name: str, documents: tuple[Document, ...]) -> Document:
    """The document of that name.

    Raises:
        ToolRefused: there is none, which names the closest ones; or it was removed.
    """
    if document := named(name, documents):
        called = one_line(document.name)
        if document.procedure:
            raise ToolRefused(f"{called} is a procedure, and no evidence to read or cite; read_skill shows it.")
        if document.removed:
            raise ToolRefused(f"{called} was {REMOVED}: it is no evidence any more. Go on without it.")
        return document
    close = get_close_matches(name, [document.name for document in evidence(documents)], n=3)
    hint = f"Did you mean {', '.join(map(one_line, close))}?" if close else "list_documents names them all."
    raise ToolRefused(f"There is no document {name!r}. {hint}")


def _cut(line: str) -> str:
    if len(line) <= LINE_CHARACTERS:
        return line
    return f"{line[: whole_until(line, LINE_CHARACTERS)]} … ({len(line):,} characters in all)"
