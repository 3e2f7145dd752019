"""Brings a task's documents into memory, slice by slice: redacted as summaries are, then cut, then into the outbox.

What an earlier end of the task, or another task of its session, has brought in is taken as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from waystation.agents.archive import Archive
from waystation.agents.document_names import document_names
from waystation.agents.redacted_documents import RedactedDocuments
from waystation.domain.documents import Document, DocumentPassage
from waystation.domain.memory import Passage
from waystation.domain.ownership import OfTask
from waystation.domain.privacy import Place
from waystation.domain.redaction import line_for_line
from waystation.domain.remembering import (
    Remembering,
    document_passage,
    documents_run,
    line_after,
    lines_of_slice,
    passage_id,
)
from waystation.domain.task import TaskRef
from waystation.ports import Clock, DocumentCutter, DocumentOutbox, DocumentStore, Redactor

ASKED_AT_ONCE = 100
"""Passages."""


@dataclass(frozen=True)
class Librarian:
    """Remembers documents."""

    documents: DocumentStore
    outbox: DocumentOutbox
    redactor: Redactor
    redacted: RedactedDocuments
    cut: DocumentCutter
    archive: Archive
    clock: Clock

    async def next_slice(self, so_far: Remembering) -> Remembering:
        """One slice further; done where there is none, no room, or the task was forgotten meanwhile.

        The same slice again is the same passages. Those that memory does not take now wait in the outbox.
        Raises RedactionFailed, StoreError.
        """
        ref = so_far.ref
        documents = await self.documents.documents(ref.task_id, ref.reader)
        names = await document_names(documents, self.redactor, ref.tenant, place=Place.COMPRESSED)
        if not so_far.slices and not await self.outbox.begin_documents(ref, names.shown):
            return so_far.model_copy(update={"done": True})
        if so_far.document == len(documents):
            return _ended(so_far, documents)
        document = names.as_shown[so_far.document]
        lines = await self._lines(document, ref)
        so_far = so_far.reading(document.blob)
        if lines and not so_far.line and (there := await self._there(ref, document)):
            await self.archive.drain(documents_run(ref.task_id))
            line = line_after(there, lines)
            return so_far.further(len(there), _size(lines[:line])).at_line(line, lines, document.blob)
        end = lines_of_slice(lines, so_far.line, so_far.most_characters - so_far.characters)
        if so_far.line == end < len(lines):
            return _ended(so_far, documents)
        redacted, readable = await self._redacted(document, ref.reader, slice(so_far.line, end))
        passages = self._passages(so_far, document, redacted)
        if not await self.outbox.commit_document_passages(ref, passages):
            return so_far.model_copy(update={"done": True})
        await self.archive.drain(documents_run(ref.task_id))
        size = _size(lines[so_far.line : end])
        return so_far.further(len(passages), size, 0 if readable else size).at_line(end, lines, document.blob)

    async def _lines(self, document: Document, ref: TaskRef) -> Sequence[str]:
        text = "" if document.removed else await self.documents.get_text(document.blob, ref.reader)
        return text.splitlines(keepends=True)

    async def _there(self, ref: TaskRef, document: Document) -> Sequence[Passage]:
        """The passages that the first lines of this version became already, in their order."""
        there: list[Passage] = []
        while True:
            places = range(len(there), len(there) + ASKED_AT_ONCE)
            ids = [passage_id(ref, document.name, document.blob, place) for place in places]
            known = {
                passage.id: passage for passage in await self.outbox.passages_with(ids, ref.reader.recalling("session"))
            }
            there += [known[one] for one in takewhile(known.__contains__, ids)]
            if len(there) < places.stop:
                return there

    async def _redacted(self, document: Document, task: OfTask, lines: slice) -> tuple[str, bool]:
        """These lines, of the document as agents see it, without what memory must not have either; and whether they are
        readable.

        What goes over many lines was replaced in the whole document. What is left for memory are names, which stand in
        a sentence: they are looked for slice by slice, since that takes ten times as long.
        """
        shown = await self.redacted.text(document.blob, task)
        text = "".join(f"{line}\n" for line in shown.lines[lines])
        (redacted,) = await self.redactor.redact([text], Place.COMPRESSED, task.tenant)
        return line_for_line(text, redacted), not (redacted.unredacted or shown.withheld)

    def _passages(self, so_far: Remembering, document: Document, text: str) -> list[Passage]:
        created = self.clock()
        return [
            document_passage(so_far.ref, _moved(cut, so_far.line), document.blob, place, created)
            for place, cut in enumerate(self.cut(document.name, text), start=so_far.place)
        ]


def _moved(cut: DocumentPassage, lines: int) -> DocumentPassage:
    return cut._replace(first_line=cut.first_line + lines, last_line=cut.last_line + lines)


def _size(lines: Sequence[str]) -> int:
    return sum(map(len, lines))


def _ended(so_far: Remembering, documents: Sequence[Document]) -> Remembering:
    there = sum(document.characters for document in documents if not document.removed)
    beyond = max(0, there - so_far.characters)
    return so_far.model_copy(update={"left_out": so_far.left_out + beyond, "done": True})
