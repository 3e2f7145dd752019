"""First lines of a task's documents as agents may see them, for a planner that reads no document."""

from collections.abc import Sequence

from waystation.documents.documents import Document, parse_place_marker
from waystation.documents.redacted_documents import RedactedDocumentStore, build_document_names
from waystation.kernel.errors import RedactionBlockedError, TextRedactionError
from waystation.kernel.scopes import TaskScope
from waystation.kernel.value import Value
from waystation.privacy.policy import find_cut_position
from waystation.privacy.ports import Redactor

MAX_PREVIEWED_DOCUMENTS = 40
MAX_PREVIEW_CHARACTERS = 300
"""Maximum characters of one preview."""
MAX_TOTAL_CHARACTERS = 8_000
"""Maximum characters of all previews of a task: about 2,000 tokens."""
MAX_READ_CHARACTERS = 200_000
"""Maximum characters of the previewed documents together. They are redacted whole, as everywhere, and a plan should not
wait for more. Agents read the same redacted texts later, so nothing is redacted twice.
"""
_BETWEEN_LINES = " / "


class DocumentPreview(Value):
    """Heading and first lines of a document, on one line."""

    name: str
    """Name that agents know."""
    text: str


async def build_document_previews(
    documents: Sequence[Document], redacted: RedactedDocumentStore, redactor: Redactor, task: TaskScope
) -> tuple[DocumentPreview, ...]:
    """Build the previews of the first documents, in their order, within the limits above.

    A document that is too large for what is left, or that cannot be shown, has none.

    Args:
        documents: The task's documents.
        redacted: Their redacted texts.
        redactor: Redactor of their names.
        task: The task.

    Raises:
        RedactionFailed: A name could not be redacted, or nothing can be.
        StoreError: The store does not answer.
    """
    chosen: list[Document] = []
    room = MAX_READ_CHARACTERS
    for document in documents:
        if not document.removed and document.characters <= room and len(chosen) < MAX_PREVIEWED_DOCUMENTS:
            chosen.append(document)
            room -= document.characters
    names = (await build_document_names(chosen, redactor, task.tenant)).shown_names
    characters = min(MAX_PREVIEW_CHARACTERS, MAX_TOTAL_CHARACTERS // max(1, len(chosen)))
    previews: list[DocumentPreview] = []
    for document in chosen:
        try:
            shown = await redacted.get_redacted_text(document.blob, task)
        except (TextRedactionError, RedactionBlockedError):
            continue  # agents that read it try again; a plan does without
        if not shown.withheld and (text := select_first_lines(shown.lines, characters)):
            previews.append(DocumentPreview(name=names[document.name], text=text))
    return tuple(previews)


def select_first_lines(lines: Sequence[str], characters: int) -> str:
    """Join the first lines that have words, cut to a number of characters; empty if there are none.

    A page's or sheet's marker is no line of the document.
    """
    taken = ""
    for line in lines:
        words = " ".join(line.split())
        if parse_place_marker(line) is not None or not any(map(str.isalnum, words)):
            continue
        taken += (_BETWEEN_LINES if taken else "") + words
        if len(taken) > characters:
            return f"{taken[: find_cut_position(taken, characters)].rstrip()} …"
    return taken
