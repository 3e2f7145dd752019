"""Brings a task's documents into memory, slice by slice: redacted as summaries are, then cut, then into the outbox."""

from collections.abc import Sequence
from dataclasses import dataclass

from waystation.agents.archive import Archive
from waystation.agents.document_names import document_names
from waystation.domain.documents import Document, DocumentPassage
from waystation.domain.memory import Passage
from waystation.domain.privacy import Place
from waystation.domain.remembering import (
    Remembering,
    document_passage,
    documents_run,
    line_for_line,
    lines_of_slice,
)
from waystation.ports import Clock, DocumentCutter, DocumentOutbox, DocumentStore, Redactor


@dataclass(frozen=True)
class Librarian:
    """Remembers documents."""

    documents: DocumentStore
    outbox: DocumentOutbox
    redactor: Redactor
    cut: DocumentCutter
    archive: Archive
    clock: Clock

    async def next_slice(self, so_far: Remembering) -> Remembering:
        """One slice further; done where there is none, no room, or the task was forgotten meanwhile.

        The same slice again is the same passages. Those that memory does not take now wait in the outbox.
        Raises RedactionFailed, StoreError.
        """
        documents = await self.documents.documents(so_far.ref.task_id)
        if so_far.document == len(documents):
            return _ended(so_far, documents)
        document = documents[so_far.document]
        text = "" if document.removed else await self.documents.get_text(document.blob)
        lines = text.splitlines(keepends=True)
        end = lines_of_slice(lines, so_far.line, so_far.most_characters - so_far.characters)
        if so_far.line == end < len(lines):
            return _ended(so_far, documents)
        redacted, readable = await self._redacted(lines[so_far.line : end], so_far.ref.tenant)
        names = await document_names(documents, self.redactor, so_far.ref.tenant, place=Place.COMPRESSED)
        passages = self._passages(so_far, document.model_copy(update={"name": names.shown[document.name]}), redacted)
        if not await self.outbox.commit_document_passages(so_far.ref, so_far.slices, passages):
            return so_far.model_copy(update={"done": True})
        await self.archive.drain(documents_run(so_far.ref.task_id))
        characters = sum(map(len, lines[so_far.line : end]))
        withheld = 0 if readable else characters
        return _further(so_far, characters, withheld, len(passages), None if end == len(lines) else end)

    async def _redacted(self, lines: Sequence[str], tenant: str) -> tuple[str, bool]:
        """All at once and before it is cut, since what is private may go over several passages; and whether it is."""
        text = "".join(f"{line}\n" for line in "".join(lines).splitlines())
        (redacted,) = await self.redactor.redact([text], Place.COMPRESSED, tenant)
        return line_for_line(text, redacted), not redacted.unredacted

    def _passages(self, so_far: Remembering, document: Document, text: str) -> list[Passage]:
        created = self.clock()
        return [
            document_passage(so_far.ref, _moved(cut, so_far.line), document.blob, place, created)
            for place, cut in enumerate(self.cut(document.name, text), start=so_far.place)
        ]


def _moved(cut: DocumentPassage, lines: int) -> DocumentPassage:
    return cut._replace(first_line=cut.first_line + lines, last_line=cut.last_line + lines)


def _further(so_far: Remembering, characters: int, withheld: int, passages: int, line: int | None) -> Remembering:
    """After a slice; None for its last line: the document is done."""
    place = {"document": so_far.document + 1, "line": 0, "place": 0}
    if line is not None:
        place = {"line": line, "place": so_far.place + passages}
    counts = {
        "slices": so_far.slices + 1,
        "characters": so_far.characters + characters,
        "left_out": so_far.left_out + withheld,
        "passages": so_far.passages + passages,
    }
    return so_far.model_copy(update=place | counts)


def _ended(so_far: Remembering, documents: Sequence[Document]) -> Remembering:
    there = sum(document.characters for document in documents if not document.removed)
    beyond = max(0, there - so_far.characters)
    return so_far.model_copy(update={"left_out": so_far.left_out + beyond, "done": True})
