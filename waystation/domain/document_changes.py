"""What becomes of a task's documents when they are given again: none moves, new ones come last, removed ones stay.

Agents share out documents by their numbers and cite them by name and lines: a number means the same document as long as
the task lives.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from pydantic import computed_field

from waystation.domain.documents import Document
from waystation.domain.value import Value

MOST_COMPARED = 4_000_000
"""Lines of one version times lines of the other: what is larger, once equal ends are off, counts as one change."""

Kind = Literal["changed", "added", "removed"]


class DocumentSet(Value):
    """Documents as they are given again, as the store keeps the list of them. Their texts are there."""

    documents: tuple[Document, ...] = ()
    missing: tuple[str, ...] = ()
    """Names of the task's documents that are there no more."""


class DocumentChange(Value):
    """What an update did to one document."""

    position: int
    """Among the task's documents, from 0."""
    name: str
    before: str = ""
    """Content hash of the version before; empty: it was not there."""
    after: str = ""
    """Content hash of the version from now on; empty: it is there no more."""

    @computed_field
    @property
    def kind(self) -> Kind:
        """In a word."""
        if not self.before:
            return "added"
        return "changed" if self.after else "removed"


class DocumentsUpdate(Value):
    """One update of a task's documents: a reference and numbers, no names."""

    number: int
    """Counted in the task, from 1. In a task that was forked those of the first task come before its own."""
    given: str
    """Content hash of the `DocumentSet` in the store."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    answer_id: str = ""
    updated_at: datetime
    kept: bool = False
    """False until the store has it."""
    changed: int = 0
    added: int = 0
    removed: int = 0

    @property
    def text(self) -> str:
        """What it did, in numbers."""
        counts = {"changed": self.changed, "added": self.added, "removed": self.removed}
        return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "nothing changed"


class KeptUpdate(DocumentsUpdate):
    """The same as the audit trail has it: with what it did, so that earlier versions can be named."""

    changes: tuple[DocumentChange, ...]

    @property
    def counted(self) -> DocumentsUpdate:
        """Without names."""
        return DocumentsUpdate(**self.model_dump(exclude={"changes"}))


def updated(known: Sequence[Document], given: DocumentSet) -> tuple[Document, ...]:
    """The documents of a task from now on. The same set again changes nothing."""
    by_name = {document.name: document for document in given.documents}
    names = {document.name for document in known}
    kept = [
        document.model_copy(update={"removed": True})
        if document.name in given.missing and document.name not in by_name
        else by_name.get(document.name, document)
        for document in known
    ]
    return (*kept, *(document for name, document in by_name.items() if name not in names))


def changes(before: Sequence[Document], after: Sequence[Document]) -> tuple[DocumentChange, ...]:
    """What is different, in the order of the documents; `after` begins with the documents of `before`."""
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


def in_all(updates: Iterable[KeptUpdate]) -> tuple[DocumentChange, ...]:
    """What these updates, oldest first, did together: what was changed back is no change."""
    merged: dict[int, DocumentChange] = {}
    for change in (change for update in updates for change in update.changes):
        first = merged.get(change.position, change)
        merged[change.position] = change.model_copy(update={"before": first.before})
    return tuple(change for _, change in sorted(merged.items()) if change.before != change.after)


def earlier_versions(updates: Sequence[KeptUpdate]) -> dict[str, tuple[str, ...]]:
    """By name of the document: the content hashes of its versions before the newest, the newest of them first."""
    found: dict[str, tuple[str, ...]] = {}
    for change in (change for update in reversed(updates) for change in update.changes if change.before):
        found[change.name] = tuple(dict.fromkeys((*found.get(change.name, ()), change.before)))
    return found


def as_known(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """By name as given: the name of the document that is meant.

    The same file may be reached by another path than when it was submitted: a path that ends with the name of exactly
    one document, which no other given path is or ends with, means that document.
    """
    there = frozenset(known)
    meant = {name: name if name in there else _ending(name, there) for name in names}
    reached = Counter(meant.values())
    return {name: found if found and (name == found or reached[found] == 1) else name for name, found in meant.items()}


def _ending(name: str, known: frozenset[str]) -> str:
    """The only known name with which this path ends after a slash; empty: there is none, or more than one."""
    endings = (name[place + 1 :] for place, sign in enumerate(name) if sign == "/")
    found = [ending for ending in endings if ending in known]
    return found[0] if len(found) == 1 else ""


class ChangedLines(NamedTuple):
    """Lines of the newer version that the older one does not have there, from 1; none: lines were taken out there."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.last < self.first:
            return f"taken out after line {self.last}"
        return f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"


def changed_lines(before: Sequence[str], after: Sequence[str]) -> tuple[ChangedLines, ...]:
    """Where two versions differ, in order."""
    shortest = min(len(before), len(after))
    head = next((n for n in range(shortest) if before[n] != after[n]), shortest)
    tail = next((n for n in range(shortest - head) if before[-1 - n] != after[-1 - n]), shortest - head)
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if not old and not new:
        return ()
    if len(old) * len(new) > MOST_COMPARED:
        return (ChangedLines(head + 1, head + len(new)),)
    blocks = SequenceMatcher(None, old, new).get_opcodes()
    return tuple(ChangedLines(head + first + 1, head + last) for tag, _, _, first, last in blocks if tag != "equal")


def _version(document: Document) -> str:
    return "" if document.removed else document.blob
