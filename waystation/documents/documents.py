"""A task's documents: named texts that are searched, and cited by lines and places; and updates of them while it runs.

Agents share out documents by number and cite them by name and lines, so a number means the same document throughout a
task: an update moves none, new ones are appended, and removed ones keep their numbers.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, final

from pydantic import ConfigDict, Field, computed_field

from waystation.kernel.errors import BadInput
from waystation.kernel.identifiers import Identifier
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

MAX_TASK_DOCUMENTS = 5_000
"""Maximum documents of a task including removed ones: agents know each by its name, and each worker redacts all names
once for the tools that list, read and search them, which takes minutes.
"""

MAX_PLACE_CHARACTERS = 120
"""Maximum characters of a place."""

REMOVED_NAME = "removed while the task ran"
"""Shown to agents instead of the name of such a document, which keeps its number."""

CELL_SEPARATOR = " | "
"""Between the cells of a row of a sheet, or of a table that was recognised."""

RECOGNISED_FROM_PICTURE = "recognised from a picture"
"""Part of the places of text that was recognised (OCR)."""
_RECOGNITION_NOTE = compile_bounded(rf" \({RECOGNISED_FROM_PICTURE}, confidence 0\.\d\d\)")

_MARKER = compile_bounded(r"\[((?:page|slide|sheet|chapter|section|attachment) [^\[\]:\s][^\[\]:\n]*)\]")
_ENDS_A_MARKER = str.maketrans("[]:", "()-")


DocumentDate = Annotated[str, Field(pattern=r"^(?:\d{4}-\d{2}-\d{2})?$")]
"""A day in ISO 8601, or empty."""


class Document(Value):
    """One document of a task. `blob` is the content hash of its text; `name` is its path as the person gave it."""

    name: str
    blob: str
    lines: int
    characters: int
    source: str = ""
    """Content hash of the file that the text was read from; empty if there was none."""
    removed: bool = False
    """Whether it was removed: it keeps its number, and is not read any more."""
    date: DocumentDate = ""
    """Day that the document states for itself, in ISO 8601; empty if it states none."""
    file_name: str = ""
    """Path of its file as the person gave it, if the name differs because a citation cannot have it; otherwise empty.
    Agents do not see it.
    """

    @property
    def date_suffix(self) -> str:
        """Appended to its size in lists, so that readers know which of two documents is newer."""
        return f", dated {self.date}" if self.date else ""


class DocumentMatch(Value):
    """Lines of a document that match a query. Line numbers start at 1, both ends included."""

    name: str
    first_line: int
    last_line: int
    text: str
    score: float
    blob: str = ""
    """Content hash of the version that was searched."""
    is_redacted: bool = False
    """Whether the text is of the redacted document, not of the original."""
    first_character: int = 0
    """For a part of one long line, the position at which it begins, from 1; 0 for whole lines."""

    @property
    def citation_suffix(self) -> str:
        """Appended to its citation; empty for whole lines."""
        last = self.first_character + len(self.text) - 1
        return f" characters {self.first_character:,}-{last:,} of this line" if self.first_character else ""


class ShownDocument(NamedTuple):
    """A document as agents may see it, line by line."""

    blob: str
    """Content hash of the original."""
    name: str
    """Name as submitted."""
    shown_name: str
    """Name as agents know it."""
    text: str


class DocumentPassage(NamedTuple):
    """Lines of one document, counted from 1, both ends included."""

    name: str
    heading: str
    """The nearest heading above, if the passage does not start with its own."""
    first_line: int
    last_line: int
    text: str
    first_character: int = 0
    """For a part of one long line, the position at which it begins, from 1; 0 for whole lines."""


class SkippedItem(Value):
    """A file, folder or part of a file that is in no document, or only in doubt, with the reason."""

    name: str
    reason: str


@final
class DocumentNameIndex:
    """Positions of documents in a sequence, by name; built once for many look-ups."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._names = [document.name for document in documents]

    def find_position(self, name: str) -> int | None:
        """Return the position of the document with this name, from 0; or else of the only one whose name has the same
        letters and digits in any case: a placeholder is restored as its value was spelled at its first occurrence.
        """
        if (exactly := self._exactly.get(name)) is not None:
            return exactly
        alike = self._alike.get(_letters(name), ())
        return alike[0] if len(alike) == 1 else None

    @cached_property
    def _exactly(self) -> dict[str, int]:
        """Positions by the name as submitted: of the first document, if several have the same name."""
        return {name: index for index, name in reversed([*enumerate(self._names)])}

    @cached_property
    def _alike(self) -> dict[str, list[int]]:
        """Positions by the letters and digits of the name, in lower case."""
        alike: dict[str, list[int]] = {}
        for index, name in enumerate(self._names):
            alike.setdefault(_letters(name), []).append(index)
        return alike


def find_document_by_name(name: str, documents: Sequence[Document]) -> Document | None:
    """Return the document with this name, as `DocumentNameIndex` finds it; None if there is none."""
    found = DocumentNameIndex(documents).find_position(name)
    return None if found is None else documents[found]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def render_place_marker(place: str) -> str:
    """Render the line that says where in the original the lines below it are: `[page 3]`, `[sheet Costs]`.

    It belongs to the converted text and is not content of the document. It has no colon, so it is never a citation.
    """
    words = " ".join(place.translate(_ENDS_A_MARKER).split())
    return f"[{words if len(words) <= MAX_PLACE_CHARACTERS else words[: MAX_PLACE_CHARACTERS - 1] + '…'}]"


def parse_place_marker(line: str) -> str | None:
    """Return the place in a marker line; None if it is a line of the document."""
    marker = _MARKER.fullmatch(line)
    return marker[1] if marker else None


def is_recognised_place(place: str) -> bool:
    """Whether the text at this place was recognised from a picture, so that some of its characters may be wrong."""
    return _RECOGNITION_NOTE.search(place) is not None


def get_plain_place(place: str) -> str:
    """Return the place without the note that its text was recognised: `page 3`."""
    return _RECOGNITION_NOTE.sub("", place)


def join_with_place_markers(parts: Iterable[tuple[str, str]]) -> str:
    """Join parts in order, each a place (empty for none) and its text.

    Parts without text leave no marker, and consecutive parts with the same place share one.

    A line of a part that looks like a marker is indented by a space: a document cannot claim places that it does not
    have.
    """
    blocks: list[str] = []
    before = ""
    for place, text in parts:
        lines = [f" {line}" if parse_place_marker(line) else line.rstrip() for line in text.splitlines()]
        if body := "\n".join(lines).strip("\n"):
            blocks.append(f"{render_place_marker(place)}\n{body}" if place not in {"", before} else body)
            before = place
    return "\n\n".join(blocks)


def find_line_place(lines: Sequence[str], line_number: int) -> str | None:
    """Return the place of a line, counted from 1: the nearest marker at or above it. None if there is none."""
    above = (parse_place_marker(line) for line in reversed(lines[:line_number]))
    return next((place for place in above if place), None)


MAX_COMPARED_LINE_PAIRS = 2_500
"""Maximum product of the lines of both versions between two common unique lines; a larger range counts as one
change.
"""
_MAX_COMPARED_IN_TOTAL = 200_000

_Kind = Literal["changed", "added", "removed"]


class DocumentSet(Value):
    """A new list of documents, as stored. Their texts are stored separately."""

    documents: tuple[Document, ...] = ()
    missing: tuple[str, ...] = ()
    """Names of the task's documents that are no longer there."""


class DocumentChange(Value):
    """What an update did to one document. Its JSON includes the kind, which is derived again when it is read."""

    model_config = ConfigDict(extra="ignore")

    position: int
    """Position among the task's documents, from 0."""
    name: str
    before: Identifier = ""
    """Content hash of the earlier version; empty if there was none."""
    after: Identifier = ""
    """Content hash of the new version; empty if it was removed."""

    @computed_field
    @property
    def kind(self) -> _Kind:
        """Kind of the change."""
        if not self.before:
            return "added"
        return "changed" if self.after else "removed"


class DocumentsUpdate(Value):
    """One update of a task's documents: a reference and numbers, no names."""

    number: int
    """Number in the task, from 1. In a forked task, the updates of the first task come before its own."""
    document_set: Identifier
    """Content hash of the `DocumentSet` in the store."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    answer_id: Identifier = ""
    updated_at: datetime
    stored: bool = False
    """Whether the store has it."""
    changed: int = 0
    added: int = 0
    removed: int = 0

    @property
    def text(self) -> str:
        """What it did, in numbers."""
        counts = {"changed": self.changed, "added": self.added, "removed": self.removed}
        return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "nothing changed"


class RecordedDocumentsUpdate(DocumentsUpdate):
    """An update in the audit trail: with its changes, so that earlier versions can be named."""

    changes: tuple[DocumentChange, ...]

    @property
    def without_names(self) -> DocumentsUpdate:
        """The update without names."""
        return DocumentsUpdate(
            number=self.number,
            document_set=self.document_set,
            by=self.by,
            answer_id=self.answer_id,
            updated_at=self.updated_at,
            stored=self.stored,
            changed=self.changed,
            added=self.added,
            removed=self.removed,
        )


def validate_document_count(count: int, what: str = "documents", *, had: int = 0) -> None:
    """Check the number of documents.

    Raises:
        BadInput: there are more than a task may have, and more than it `had` before.
    """
    if count > max(MAX_TASK_DOCUMENTS, had):
        raise BadInput(
            f"{count:,} {what} are too many: a task can have {MAX_TASK_DOCUMENTS:,} documents. Give a smaller "
            "folder, use several tasks, or merge documents into fewer files"
        )


def apply_document_set(documents: Sequence[Document], document_set: DocumentSet) -> tuple[Document, ...]:
    """Return a task's documents after an update. The same set a second time changes nothing."""
    by_name = {document.name: document for document in document_set.documents}
    names = {document.name for document in documents}
    kept = [
        document.replace(removed=True)
        if document.name in document_set.missing and document.name not in by_name
        else by_name.get(document.name, document)
        for document in documents
    ]
    return (*kept, *(document for name, document in by_name.items() if name not in names))


def compute_document_changes(before: Sequence[Document], after: Sequence[Document]) -> tuple[DocumentChange, ...]:
    """Return the differences in the order of the documents; `after` begins with the documents of `before`."""
    found = [
        DocumentChange(
            position=position,
            name=document.name,
            before=_version(before[position]) if position < len(before) else "",
            after=_version(document),
        )
        for position, document in enumerate(after)
    ]
    return tuple(change for change in found if change.before != change.after)


def merge_document_changes(updates: Iterable[RecordedDocumentsUpdate]) -> tuple[DocumentChange, ...]:
    """Return what these updates, oldest first, did together: what was changed back is not a change."""
    merged: dict[int, DocumentChange] = {}
    for change in (change for update in updates for change in update.changes):
        first = merged.get(change.position, change)
        merged[change.position] = change.replace(before=first.before)
    return tuple(change for _, change in sorted(merged.items()) if change.before != change.after)


def get_earlier_versions(updates: Sequence[RecordedDocumentsUpdate]) -> dict[str, tuple[str, ...]]:
    """Return the content hashes of earlier versions by document name, the newest first."""
    found: dict[str, tuple[str, ...]] = {}
    for change in (change for update in reversed(updates) for change in update.changes if change.before):
        found[change.name] = tuple(dict.fromkeys((*found.get(change.name, ()), change.before)))
    return found


def resolve_document_names(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Map each given name to the name of the document that is meant.

    A file may be reached by another path than when it was submitted: a path that ends with the name of exactly one
    document, which no other given path is or ends with, means that document.
    """
    there = frozenset(known)
    meant = {name: name if name in there else _ending(name, there) for name in names}
    reached = Counter(meant.values())
    return {name: found if found and (name == found or reached[found] == 1) else name for name, found in meant.items()}


def _ending(name: str, known: frozenset[str]) -> str:
    """Return the only known name with which this path ends after a slash; empty if there is none, or more than one."""
    endings = (name[place + 1 :] for place, sign in enumerate(name) if sign == "/")
    found = [ending for ending in endings if ending in known]
    return found[0] if len(found) == 1 else ""


class ChangedLineRange(NamedTuple):
    """Lines of the newer version, from 1, that the older one does not have there; empty if lines were removed."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.last < self.first:
            return f"lines removed after line {self.last}"
        return f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"


def find_changed_lines(before: Sequence[str], after: Sequence[str]) -> tuple[ChangedLineRange, ...]:
    """Return where two versions differ, in order. The work is about linear in the lines for any input."""
    found: list[ChangedLineRange] = []
    room = _MAX_COMPARED_IN_TOTAL
    for old, new in _between_anchors(before, after):
        size = len(old) * len(new)
        if size > min(room, MAX_COMPARED_LINE_PAIRS):
            found.append(ChangedLineRange(new.start + 1, new.stop))
            continue
        room -= size
        matcher = SequenceMatcher(None, before[old.start : old.stop], after[new.start : new.stop], autojunk=False)
        found += [
            ChangedLineRange(new.start + first + 1, new.start + last)
            for tag, _, _, first, last in matcher.get_opcodes()
            if tag != "equal"
        ]
    return tuple(found)


def _between_anchors(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[range, range]]:
    """Yield the ranges of lines that differ, without what is equal at their ends."""
    last, last_new = 0, 0
    for place, new_place in (*_anchors(before, after), (len(before), len(after))):
        start, start_new, end, end_new = last, last_new, place, new_place
        while start < end and start_new < end_new and before[start] == after[start_new]:
            start, start_new = start + 1, start_new + 1
        while start < end and start_new < end_new and before[end - 1] == after[end_new - 1]:
            end, end_new = end - 1, end_new - 1
        if start < end or start_new < end_new:
            yield range(start, end), range(start_new, end_new)
        last, last_new = place + 1, new_place + 1


def _anchors(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Return positions of lines unique in each version, as many as are in the same order in both (as in patience
    diff).
    """
    new_places = _once(after)
    pairs = [(place, new_places[line]) for line, place in _once(before).items() if line in new_places]
    ends: list[int] = []  # of runs of 1, 2, … pairs, the end in `after` that leaves the most room
    ending: list[int] = []  # the pair at that end
    before_it: list[int | None] = []
    for number, (_, new_place) in enumerate(pairs):
        length = bisect_left(ends, new_place)
        before_it.append(ending[length - 1] if length else None)
        ends[length : length + 1], ending[length : length + 1] = [new_place], [number]
    run: list[tuple[int, int]] = []
    at = ending[-1] if ending else None
    while at is not None:
        run.append(pairs[at])
        at = before_it[at]
    return run[::-1]


def _once(lines: Sequence[str]) -> dict[str, int]:
    """Return the unique lines in order, with their positions."""
    often = Counter(lines)
    return {line: place for place, line in enumerate(lines) if often[line] == 1}


def _version(document: Document) -> str:
    return "" if document.removed else document.blob


class SourceDocument(Value):
    """A document as a person submits it: its name and its text."""

    name: str = Field(min_length=0)
    text: str = Field(min_length=0)  # with a bound, pydantic rejects lone surrogates
    source: str = ""
    """Content hash of the file that it was read from: an unchanged file is not read again."""
    date: DocumentDate = ""
    """Day that the properties of the file state, in ISO 8601; a day in its text precedes it."""
    file_name: str = ""
    """Path of its file as given, if the name differs; otherwise empty."""
