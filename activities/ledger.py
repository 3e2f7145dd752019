"""Bookkeeping activities that need only the store: costs of runs, the audit trail, task state, people's messages."""

from typing import Protocol

from pydantic import ValidationError
from temporalio import activity

from waystation.activities.activity_errors import translating_errors
from waystation.agents.ports import RunRepository
from waystation.agents.task_messages import MAX_MESSAGE_CHARACTERS, TaskMessage
from waystation.budgets.budget import RunUsage
from waystation.context.compaction import ContextEdit
from waystation.documents.documents import DocumentSet, DocumentsUpdate
from waystation.documents.ports import DocumentUpdateRepository, TextStore
from waystation.kernel.errors import TextNotFoundError
from waystation.kernel.json_chunks import JsonChunk
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.scopes import SystemScope, TaskScope
from waystation.kernel.value import Value
from waystation.tasks.ports import AuditRepository, TaskReader
from waystation.tasks.signals import PendingMessage
from waystation.tasks.state_storage import load_state_chunk, store_state_chunk
from waystation.tasks.task import ApprovalRequest, AuditEntry, RejectedMessage


class AuditRequest(Value):
    """Audit entries to store, in this order."""

    task_id: str
    entries: tuple[AuditEntry, ...] = ()
    """Requests, answers, rejected messages and edits. The fields below are an older form, one per kind."""
    approvals: tuple[ApprovalRequest, ...] = ()
    rejected_messages: tuple[RejectedMessage, ...] = ()
    context_edits: tuple[ContextEdit, ...] = ()


class LedgerStore(RunRepository, AuditRepository, Protocol):
    """Costs of runs, and the audit trail."""


class LedgerActivities:
    """What runs spent, and who decided what."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    @activity.defn(name="ReadTotals")
    async def read_run_totals(self, run: RunRef) -> RunUsage:
        """Return what a run has cost; settles a leg that failed, timed out or was cancelled."""
        with translating_errors():
            return await self._store.get_run_usage(run.run_id)

    @activity.defn(name="TakeOverRun")
    async def take_over_run(self, run: RunRef) -> RunUsage:
        """Return what a run has cost, and fence it: an attempt that still runs writes nothing from here on."""
        with translating_errors():
            await self._store.take_over(run)
            return await self._store.get_run_usage(run.run_id)

    @activity.defn(name="RecordAudit")
    async def record_audit_entries(self, request: AuditRequest) -> None:
        """Store audit entries. Idempotent."""
        with translating_errors():
            for entry in (*request.entries, *request.approvals, *request.rejected_messages, *request.context_edits):
                await self._store.add_audit_entry(request.task_id, entry)


class StoreStateChunkRequest(Value):
    """One piece of a task's state to store."""

    ref: TaskRef
    piece: JsonChunk


class StateChunkRef(Value):
    """Reference to one stored piece of a task's state, by its content hash."""

    ref: TaskRef
    blob: str


class StateActivities:
    """Moves a task's state between its workflow and the store, one piece at a time."""

    def __init__(self, store: TextStore) -> None:
        self._store = store

    @activity.defn(name="StoreStatePiece")
    async def store_state_chunk(self, request: StoreStateChunkRequest) -> str:
        """Store a piece of a workflow's state and return its content hash."""
        with translating_errors():
            return await store_state_chunk(self._store, request.piece, request.ref.scope)

    @activity.defn(name="LoadStatePiece")
    async def load_state_chunk(self, request: StateChunkRef) -> JsonChunk:
        """Load a piece of a workflow's state."""
        with translating_errors():
            return await load_state_chunk(self._store, request.blob, request.ref.scope)


UNKNOWN_MESSAGE = "the text of `message` is not in the task's store: send it with `waystation message`, which stores it"
UNKNOWN_DOCUMENTS = (
    "the documents in `documents` are not in the task's store: send them with `waystation documents`, which stores them"
)


class StoreMessageRequest(Value):
    """A message to store, and its task."""

    task_id: str
    message: PendingMessage


class StoreMessageResult(Value):
    """The stored message, or the reason why it could not be stored."""

    task_message: TaskMessage
    reason: str = ""


class UpdateDocumentsRequest(Value):
    """A document update to apply, and its task."""

    task_id: str
    update: DocumentsUpdate


class DocumentsUpdateResult(Value):
    """The stored update, or the reason why it could not be stored."""

    update: DocumentsUpdate
    reason: str = ""


class MessageStore(TaskReader, TextStore, DocumentUpdateRepository, AuditRepository, Protocol):
    """What messages refer to, and where they are recorded."""


class MessageActivities:
    """People's messages that refer to something in the store: their text, and the task's new documents."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @activity.defn(name="StoreMessage")
    async def store_message(self, request: StoreMessageRequest) -> StoreMessageResult:
        """Store a message in the audit trail, where agents find it at their next turn. Idempotent."""
        pending = request.message
        with translating_errors():
            task = (await self._store.get_task(request.task_id, SystemScope())).ref.scope
            if pending.text is not None:
                blob = await self._store.put_text(pending.text, task)
            else:
                blob = pending.message or ""
                if reason := await self._fault(blob, task):
                    return StoreMessageResult(task_message=pending.task_message, reason=reason)
            kept = pending.task_message.replace(text=blob)
            await self._store.add_audit_entry(request.task_id, kept)
        return StoreMessageResult(task_message=kept)

    async def _fault(self, blob: str, task: TaskScope) -> str:
        try:
            text = await self._store.get_text(blob, task)
        except TextNotFoundError:
            return UNKNOWN_MESSAGE
        if len(text) > MAX_MESSAGE_CHARACTERS:
            return f"the message has {len(text):,} characters; it may have {MAX_MESSAGE_CHARACTERS:,}"
        return ""

    @activity.defn(name="UpdateDocuments")
    async def update_documents(self, request: UpdateDocumentsRequest) -> DocumentsUpdateResult:
        """Store new document versions, which agents read from then on and learn of at their next turns. Idempotent."""
        with translating_errors():
            task = (await self._store.get_task(request.task_id, SystemScope())).ref.scope
            given = await self._given(request.update.document_set, task)
            if given is None:
                return DocumentsUpdateResult(update=request.update, reason=UNKNOWN_DOCUMENTS)
            kept = await self._store.update_documents(request.task_id, request.update, given)
        return DocumentsUpdateResult(update=kept.without_names)

    async def _given(self, blob: str, task: TaskScope) -> DocumentSet | None:
        """Load a document set; return None if it, or a text that it names, is missing."""
        try:
            given = DocumentSet.model_validate_json(await self._store.get_text(blob, task))
            for document in given.documents:
                await self._store.get_text(document.blob, task)
        except (TextNotFoundError, ValidationError):
            return None
        return given
