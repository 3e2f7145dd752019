"""How the documents of a task come into memory: slice by slice, each a stretch of whole lines, in their order."""

import uuid
from collections.abc import Sequence
from datetime import datetime

from waystation.domain.documents import Document, DocumentPassage
from waystation.domain.memory import Passage, content_hash
from waystation.domain.task import TaskRef
from waystation.domain.value import Value

SLICE_CHARACTERS = 40_000
"""About a second of work: so long a worker that stops waits for it, and so much a crash repeats."""
MOST_NAMED = 5
"""Documents in a sentence."""
DOCUMENTS_ID = "documents/"
"""In the place of a step's id: the slash makes it none."""
_NAMESPACE = uuid.UUID("0d6a7a52-2f6e-5b0b-8f43-5f0f5f3c1c77")


class Remembering(Value):
    """How far the documents of a task have come: references and numbers, no text."""

    ref: TaskRef
    most_characters: int
    """Of all documents together. What goes beyond is left out."""
    slices: int = 0
    """That are done."""
    document: int = 0
    """Number of the document in which the next slice begins."""
    blob: str = ""
    """Content hash of the version that its first lines were read in; empty: none were read."""
    line: int = 0
    """Number of its first line, from 0."""
    place: int = 0
    """Passages of that document so far."""
    characters: int = 0
    """In the slices so far."""
    left_out: int = 0
    """Characters that memory does not get: beyond the limit, or not to be redacted. Known at the end."""
    passages: int = 0
    done: bool = False

    def reading(self, blob: str) -> "Remembering":
        """In this version of the document: from its first line where the lines before were another version's."""
        if self.blob in {"", blob}:
            return self
        return self.model_copy(update={"blob": "", "line": 0, "place": 0})

    def further(self, passages: int, characters: int, withheld: int = 0) -> "Remembering":
        """After a slice, or what stands for it, in the same document."""
        counts = {
            "slices": self.slices + 1,
            "place": self.place + passages,
            "characters": self.characters + characters,
            "left_out": self.left_out + withheld,
            "passages": self.passages + passages,
        }
        return self.model_copy(update=counts)

    def at_line(self, line: int, lines: Sequence[str], blob: str) -> "Remembering":
        """At this line of a version with these lines; after the last one, at the first of the next document."""
        if line < len(lines):
            return self.model_copy(update={"line": line, "blob": blob})
        return self.model_copy(update={"document": self.document + 1, "blob": "", "line": 0, "place": 0})


class Beyond(Value):
    """Documents that do not all reach memory, since the terms let no more into it."""

    partly: str | None
    """Name of the one of which memory gets the first lines."""
    wholly: tuple[str, ...]
    """Names of those of which it gets nothing, in their order."""
    all_characters: int
    most: int

    @property
    def sentence(self) -> str:
        """For whoever hands them in, with the setting that decides."""
        return (
            f"Memory takes {self.most:,} characters of a task's documents (WAYSTATION_REMEMBERED_CHARACTERS), and "
            f"these have {self.all_characters:,}: later tasks do not recall {self.named}. This task's agents read all."
        )

    @property
    def named(self) -> str:
        """The first of them by name, and how many more."""
        names = [*([f"the end of {self.partly}"] if self.partly else []), *self.wholly]
        more = len(names) - MOST_NAMED
        return ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")

    @property
    def lines(self) -> tuple[str, ...]:
        """One for each, as a list has them."""
        return (*([f"- {self.partly}: the end of it"] if self.partly else []), *(f"- {name}" for name in self.wholly))


def beyond(documents: Sequence[Document], most: int) -> Beyond | None:
    """What of the documents does not reach memory under terms that let so many characters into it; None: all does.

    They come in their order, and none after the first that does not fit. Terms of 0 let no document into memory, and
    nobody who chose them needs to be told.
    """
    there = [document for document in documents if not document.removed]
    total = sum(document.characters for document in there)
    if not most or total <= most:
        return None
    room = most
    for number, document in enumerate(there):
        if document.characters > room:
            first, rest = document.name, tuple(one.name for one in there[number + 1 :])
            wholly = tuple(one.name for one in there[number:]) if not room else rest
            return Beyond(
                partly=first if room else None,
                wholly=wholly,
                all_characters=total,
                most=most,
            )
        room -= document.characters
    return None


def line_after(there: Sequence[Passage], lines: Sequence[str]) -> int:
    """The line, from 0, after the passages that the first lines became earlier, and after blank lines."""
    line = there[-1].last_line
    while line < len(lines) and not lines[line].strip():
        line += 1
    return line


def lines_of_slice(lines: Sequence[str], first: int, room: int) -> int:
    """The line before which a slice that begins at `first` ends, counted from 0.

    It ends at a blank line where there is one in time, so that no paragraph is parted, and never has more characters
    than there is room for. The same number as `first`: there is no room for a single line.
    """
    size = 0
    for number in range(first, len(lines)):
        size += len(lines[number])
        if size > room:
            return number
        if size >= 2 * SLICE_CHARACTERS or (size >= SLICE_CHARACTERS and not lines[number].strip()):
            return number + 1
    return len(lines)


def document_passage(ref: TaskRef, cut: DocumentPassage, blob: str, place: int, created: datetime) -> Passage:
    """A piece of a document as memory keeps it, headed by its source: a citation, with the heading above it."""
    said = "\n".join(filter(None, (cut.heading, cut.text)))
    return Passage(
        id=passage_id(ref, cut.name, blob, place),
        tenant=ref.tenant,
        session=ref.session,
        task_id=ref.task_id,
        run_id=documents_run(ref.task_id),
        step_id="",
        kind="document",
        document=cut.name,
        blob=blob,
        first_line=cut.first_line,
        last_line=cut.last_line,
        text=f"[{cut.name}:{cut.first_line}-{cut.last_line}]\n{said}",
        content_hash=content_hash(said),
        created=created,
        place=place,
    )


def passage_id(ref: TaskRef, name: str, blob: str, place: int) -> str:
    """The same for all tasks of a session that have this version of a document under this name."""
    return str(uuid.uuid5(_NAMESPACE, "\0".join((ref.tenant, ref.session, name, blob, str(place)))))


def documents_run(task_id: str) -> str:
    """Under which the store keeps the passages of a task's documents, beside those of its agents."""
    return f"{task_id}/{DOCUMENTS_ID}"
