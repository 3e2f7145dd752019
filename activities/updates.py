"""The activity that puts new versions of documents in the place of a task's documents."""

from pydantic import ValidationError
from temporalio import activity

from activities.failures import reported
from waystation.domain.document_changes import DocumentSet, DocumentsUpdate
from waystation.domain.errors import TextMissing
from waystation.domain.ownership import Installation, OfTask
from waystation.domain.value import Value
from waystation.ports import DocumentStore, TaskStore

UNKNOWN = (
    "what `documents` names is not in the task's store: send documents with `waystation documents`, which puts them "
    "there"
)


class UpdateRequest(Value):
    """Which update of which task."""

    task_id: str
    update: DocumentsUpdate


class Updated(Value):
    """The update as it was kept; or why it could not be."""

    update: DocumentsUpdate
    reason: str = ""


class UpdateActivities:
    """What people's documents are now."""

    def __init__(self, tasks: TaskStore, texts: DocumentStore) -> None:
        self._tasks, self._texts = tasks, texts

    @activity.defn(name="UpdateDocuments")
    async def update(self, request: UpdateRequest) -> Updated:
        """From then on agents read the new versions, and hear of them at their next turns. Twice is once."""
        with reported():
            task = (await self._tasks.task(request.task_id, Installation())).ref.reader
            given = await self._given(request.update.given, task)
            if given is None:
                return Updated(update=request.update, reason=UNKNOWN)
            kept = await self._tasks.update_documents(request.task_id, request.update, given)
        return Updated(update=kept.counted)

    async def _given(self, blob: str, task: OfTask) -> DocumentSet | None:
        """None where it, or a text that it names, is not there."""
        try:
            given = DocumentSet.model_validate_json(await self._texts.get_text(blob, task))
            for document in given.documents:
                await self._texts.get_text(document.blob, task)
        except (TextMissing, ValidationError):
            return None
        return given
