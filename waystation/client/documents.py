"""How the client gives a task at work its documents again: read where they changed, compared by content, sent."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from waystation.adapters.documents.loading import Loaded, load_documents
from waystation.adapters.store import SqlStore
from waystation.adapters.store.texts import described
from waystation.domain.document_changes import DocumentChange, DocumentSet, as_known, changes, updated
from waystation.domain.documents import Document, LeftOut
from waystation.domain.errors import BadInput
from waystation.domain.ownership import OfTask
from waystation.domain.task import TaskProgress, TaskRow
from waystation.domain.value import Value
from waystation.seen import Answer

NOTHING_NEW = Answer(outcome="done", reason="nothing has changed")


class DocumentsAnswer(Value):
    """What became of documents that were given again."""

    answer: Answer
    changes: tuple[DocumentChange, ...] = ()
    not_given: tuple[str, ...] = ()
    """Documents of the task that are not among what was given, and stay as they are."""
    left_out: tuple[LeftOut, ...] = ()
    """What was given and cannot be used; a document that was read from it before stays as it is."""


class GivenAgain(NamedTuple):
    """Documents as they are now, compared with those of the task."""

    given: DocumentSet
    texts: Mapping[str, str]
    """By content hash, of those that the task does not have."""
    changes: tuple[DocumentChange, ...]
    not_given: tuple[str, ...]
    left_out: tuple[LeftOut, ...]

    def answered(self, answer: Answer) -> DocumentsAnswer:
        """With what became of it; what a task refused has changed nothing."""
        made = () if answer.outcome == "refused" else self.changes
        return DocumentsAnswer(answer=answer, changes=made, not_given=self.not_given, left_out=self.left_out)


def require_at_work(row: TaskRow, now: TaskProgress) -> TaskProgress:
    """How the task is now. Raises BadInput where it has ended."""
    task_id = row.ref.task_id
    if now.phase.over:
        raise BadInput(
            f"{task_id} has ended ({now.phase}): none of its agents would read the documents again. Work on them by "
            f"`waystation submit --session {row.request.session} --docs …`, or take an agent back by "
            f"`waystation rewind {task_id} …`, then give them again"
        )
    return now


async def read_again(store: SqlStore, task: OfTask, paths: Sequence[Path], *, remove_missing: bool) -> GivenAgain:
    """Read what has changed of these files and folders. Nothing is stored. Raises BadInput as `load_documents` does."""
    known = await store.documents(task.task_id, task)
    sources = {one.source: one for one in known if one.source}
    loaded = await asyncio.to_thread(load_documents, paths, known=frozenset(sources))
    found, texts = _found(loaded, sources)
    names = as_known((one.name for one in found), (one.name for one in known))
    documents = tuple(one.model_copy(update={"name": names[one.name]}) for one in found)
    absent = _absent(known, documents, loaded.left_out)
    given = DocumentSet(documents=documents, missing=absent if remove_missing else ())
    have = {one.blob for one in known}
    return GivenAgain(
        given=given,
        texts={blob: text for blob, text in texts.items() if blob not in have},
        changes=changes(known, updated(known, given)),
        not_given=() if remove_missing else absent,
        left_out=loaded.left_out,
    )


async def kept(store: SqlStore, again: GivenAgain, task: OfTask) -> str:
    """Store the texts that are new, then the list of all; returns the list's content hash."""
    for text in again.texts.values():
        await store.put_text(text, task)
    return await store.put_text(again.given.model_dump_json(), task)


def nothing_new(again: GivenAgain, now: TaskProgress) -> bool:
    """Whether the task has all of it already, and no other update is on its way."""
    return not again.changes and all(update.kept for update in now.updates)


def _found(loaded: Loaded, sources: Mapping[str, Document]) -> tuple[list[Document], dict[str, str]]:
    """The documents by the names as given, and the texts of those that were read, by content hash."""
    read = [described(document) for document in loaded.documents]
    texts = {one.blob: document.text for one, document in zip(read, loaded.documents, strict=True)}
    same = [sources[file.source].model_copy(update={"name": file.name, "removed": False}) for file in loaded.unread]
    return [*read, *same], texts


def _absent(known: Sequence[Document], given: Sequence[Document], left_out: Sequence[LeftOut]) -> tuple[str, ...]:
    """Documents that nobody gave again. What could not be read is there all the same."""
    there = {one.name for one in given}
    unreadable = [one.name for one in left_out]
    return tuple(
        one.name
        for one in known
        if not one.removed
        and one.name not in there
        and not any(f"/{one.name}".endswith(f"/{name}") for name in unreadable)
    )
