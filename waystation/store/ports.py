"""The port to the store. Every read of content names its reader.

What the reader may not see looks like what does not exist.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from waystation.agents.deliverables import Deliverable, Note
from waystation.agents.leg import LegOutcome, LoadedRun
from waystation.agents.task_messages import TaskMessage, TaskNews
from waystation.agents.transcript_rewind import TranscriptRewind
from waystation.budgets.budget import RunUsage
from waystation.context.transcript import CallIntent, Charge, Fence, Message, Record, Transcript
from waystation.documents.documents import (
    Document,
    DocumentSet,
    DocumentsUpdate,
    RecordedDocumentsUpdate,
    SourceDocument,
)
from waystation.erasure.erasure import ErasureMatch, ErasureQuery, ForgetCounts, ForgetOrder, PersonErasureOrder
from waystation.kernel.amount import Amount
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.scopes import ReadScope, TaskScope
from waystation.memory.passages import Passage
from waystation.planning.plan import Plan, PlanVersion
from waystation.privacy.policy import RedactedText, RedactedTextKey
from waystation.security.untrusted import ToolDefinition
from waystation.tasks.progress import TaskCharges
from waystation.tasks.schedules import MonthlyBudget
from waystation.tasks.session import SessionKey, StoredSession
from waystation.tasks.task import AuditEntry, ReusedWork, TaskProgress, TaskRow


class DocumentStore(Protocol):
    """Texts by content hash, each stored once for all tasks that have it: documents, offloaded results, reports."""

    async def put_text(self, text: str, owner: TaskScope) -> str:
        """Store a text of this task and return its content hash."""
        ...

    async def get_text(self, blob: str, reader: ReadScope) -> str:
        """Return the text of a content hash.

        Raises:
            TextNotFoundError: no task that the reader may see has it.
        """
        ...

    async def list_documents(self, task_id: str, reader: ReadScope) -> tuple[Document, ...]:
        """Return a task's documents in the order in which they were submitted."""
        ...


class Store(DocumentStore, Protocol):
    """Everything that is stored, except the vault, which may be on another machine."""

    # Tasks, their plans, their audit entries and how they ended.

    async def get_store_id(self) -> str:
        """Return the id of this store, made when it was created."""
        ...

    async def register_task(self, row: TaskRow, documents: Sequence[SourceDocument]) -> bool:
        """Store a new task with its documents. Returns False if the same request is stored already.

        Raises:
            RequestConflict: the request id was used for a different question, documents or config.
        """
        ...

    async def register_scheduled_task(
        self, row: TaskRow, documents: Sequence[SourceDocument], month: MonthlyBudget
    ) -> str:
        """Store a run of a schedule like `register_task`, unless it would exceed the monthly budget of the schedule.

        Counting and storing are one transaction, so that runs that start together do not exceed it together.

        Returns:
            Why it was not stored; empty if it was stored, now or before.
        """
        ...

    async def register_fork(self, row: TaskRow, plan: Plan, reused: ReusedWork, state: str) -> bool:
        """Store a new task with this plan, the documents of another task, and the reused work of that task's agents.

        Nothing is charged. `state` is the content hash of the state in which the other task ended, as it was read.

        Returns:
            False if the same request is stored already.

        Raises:
            RequestConflict: as for `register_task`.
            UnknownTask: the other task is not there.
            BadInput: the other task has continued meanwhile.
        """
        ...

    async def take_over_session(self, key: SessionKey) -> StoredSession:
        """Begin a new epoch of the session and return its last saved state; an empty one if there is none."""
        ...

    async def save_session(self, key: SessionKey, stored: StoredSession) -> bool:
        """Save the state. Returns False if another epoch or a newer version is stored, which then stays."""
        ...

    async def get_task(self, task_id: str, reader: ReadScope) -> TaskRow:
        """Return the task.

        Raises:
            UnknownTask: the reader has no such task; it does not reveal whether someone else has.
        """
        ...

    async def list_task_charges(self, task_id: str, reader: ReadScope) -> TaskCharges:
        """Return every call of the task that was billed or may have been; none if the task is not the reader's."""
        ...

    async def find_task_ids(self, prefix: str, reader: ReadScope) -> tuple[str, ...]:
        """Return the ids of the reader's tasks that start with the prefix."""
        ...

    async def list_tasks(
        self,
        reader: ReadScope,
        limit: int = 50,
        *,
        ended_before: datetime | None = None,
        since: datetime | None = None,
    ) -> tuple[TaskRow, ...]:
        """Return the reader's tasks, newest first.

        Args:
            reader: whose tasks.
            limit: maximum number of tasks.
            ended_before: only tasks that ended before this moment and are not completely forgotten. A task without a
                recorded end (terminated, or still running) counts from its submission.
            since: only tasks that were submitted since this moment.
        """
        ...

    async def save_task_title(self, task_id: str, title: str) -> None:
        """Store the redacted title."""
        ...

    async def save_plan(self, task_id: str, plan: Plan) -> None:
        """Store the first plan with its goals. If there is one, it stays."""
        ...

    async def save_plan_version(self, task_id: str, version: PlanVersion) -> None:
        """Store a plan that replaces the previous one. The first plan of each number stays."""
        ...

    async def get_newest_plan(self, task_id: str, reader: ReadScope) -> Plan | None:
        """Return the newest plan, including its goals."""
        ...

    async def list_plan_versions(self, task_id: str, reader: ReadScope) -> tuple[PlanVersion, ...]:
        """Return all plans of the task, oldest first, each with its goals and reason."""
        ...

    async def add_audit_entry(self, task_id: str, entry: AuditEntry) -> None:
        """Append an approval or an edit (each twice: requested, and settled), a task message, or a rejected message."""
        ...

    async def list_audit_entries(self, task_id: str, reader: ReadScope) -> tuple[AuditEntry, ...]:
        """Return all audit entries, oldest first; an entry stored twice (by a retried activity) is returned once."""
        ...

    async def list_task_messages(self, task_id: str, reader: ReadScope) -> tuple[TaskMessage, ...]:
        """Return the messages that people sent to the running task, in the order of their numbers."""
        ...

    async def load_task_news(self, task: TaskScope) -> TaskNews:
        """What people told the task, and what became of its documents, in one read."""
        ...

    async def store_first_tool_definitions(
        self, task_id: str, now: Sequence[ToolDefinition]
    ) -> tuple[ToolDefinition, ...]:
        """Return the definition of each of these tools when the task first had it, in their order. Stored on first use.

        Raises:
            UnknownTask: there is no such task.
        """
        ...

    async def update_documents(
        self, task_id: str, update: DocumentsUpdate, given: DocumentSet
    ) -> RecordedDocumentsUpdate:
        """Replace the task's documents by these versions. The same number a second time changes nothing."""
        ...

    async def list_document_updates(self, task_id: str, reader: ReadScope) -> tuple[RecordedDocumentsUpdate, ...]:
        """Return the document updates of the running task, in the order of their numbers."""
        ...

    async def save_task_progress(self, task_id: str, progress: TaskProgress) -> None:
        """Store how the task ended."""
        ...

    # Whole redacted texts, stored with their originals and forgotten with them.

    async def get_redacted_text(self, key: RedactedTextKey, reader: ReadScope) -> RedactedText | None:
        """Return the text stored under this key; None if there is none, or if no task of the reader has its original.

        Raises:
            WrongKey: no available key decrypts it.
            StoreError: the store could not be read.
        """
        ...

    async def save_redacted_text(self, key: RedactedTextKey, text: RedactedText) -> None:
        """Store the text with its original.

        The first one stays; nothing is stored if the original was forgotten meanwhile.
        """
        ...

    # Transcripts, charges and outcomes of agent runs. Every write of an attempt is conditional on its fence.

    async def open_run(self, run: RunRef) -> None:
        """Create the run if it does not exist.

        Raises:
            WrongStore: `run.store_id` is not this store's id.
        """
        ...

    async def acquire_fence(self, run_id: str) -> Fence:
        """Take over the run: every older fence is lost from now on."""
        ...

    async def start_leg(self, run: RunRef, leg: int) -> Fence | LegOutcome:
        """Open the run if it is not there, and take it over; or the leg's outcome, where it was committed before: then
        nobody loses a fence. Raises WrongStore if `run.store_id` is not this store's.
        """
        ...

    async def load_run(self, run: RunRef) -> LoadedRun:
        """What an attempt at a leg begins with, in one read."""
        ...

    async def load_transcript(self, run_id: str, reader: ReadScope) -> Transcript:
        """Return the whole transcript with its compaction records; empty without messages, or for someone else's
        run.
        """
        ...

    async def find_passages(self, prefix: str, reader: ReadScope) -> tuple[Passage, ...]:
        """Return the reader's passages whose ids begin with this prefix of at least eight hexadecimal digits."""
        ...

    async def list_run_ids(self, task_id: str, reader: ReadScope) -> tuple[str, ...]:
        """Return the ids of all agent runs of a task that were opened: planning, steps and subagents."""
        ...

    async def get_run_usage(self, run_id: str) -> RunUsage:
        """Return all charges and open intents of the run, added up."""
        ...

    async def record_and_count_intents(self, fence: Fence, intent: CallIntent) -> int:
        """Store the intent before its call and return how many intents of its key are then open.

        One that exists with this key stays, as possibly billed, until one of its charges is committed; worst cases add
        up.

        Raises:
            StaleFenceError: another attempt has taken over the run.
        """
        ...

    async def drop_intent(self, fence: Fence, key: str) -> None:
        """Take back the newest intent of the key because its call was certainly not billed (rejected before any
        reply).
        """
        ...

    async def update_intent(self, fence: Fence, key: str, worst_case: Amount) -> None:
        """Replace the amount that the newest intent of the key holds: its call brought no reply, but its provider had
        reported an upper bound of its usage.

        Raises:
            StaleFenceError: another attempt has taken over the run.
        """
        ...

    async def commit_reply(self, fence: Fence, version: int, message: Message, charge: Charge) -> RunUsage:
        """Second commit of a turn: the reply and its charge, in one transaction, before any tool runs; what the run has
        cost by then.

        Closes one intent of the charge's key (the others stay possibly billed). The same charge key a second time
        changes nothing.

        Raises:
            StaleFenceError: another attempt has taken over the run.
            VersionConflict: the transcript changed since it was read.
        """
        ...

    async def commit_message(self, fence: Fence, version: int, message: Message) -> None:
        """Append a user message: the task brief, or the results of a turn's tools.

        Raises:
            StaleFenceError: another attempt has taken over the run.
            VersionConflict: the transcript changed since it was read.
        """
        ...

    async def commit_messages(
        self, fence: Fence, version: int, added: Sequence[Message], intent: CallIntent | None = None
    ) -> int:
        """First commit of a turn: the user messages that are new, and the intent of the call that sends them.

        How many intents of its key are open then, 0 without one. Raises StaleFenceError, VersionConflict.
        """
        ...

    async def commit_charge(self, fence: Fence, charge: Charge) -> None:
        """Commit a charge without a message (planning, a rejected summary). Closes one intent of its key."""
        ...

    async def record_tool_intent(self, fence: Fence, tool_use_id: str) -> bool:
        """Record that a call that must not be repeated is about to run.

        Returns False if an earlier attempt recorded it, so that its outcome is unknown.
        """
        ...

    async def get_leg_outcome(self, run_id: str, leg: int, reader: ReadScope) -> LegOutcome | None:
        """Return the committed outcome of a leg."""
        ...

    async def commit_outcome(
        self, fence: Fence, leg: int, outcome: LegOutcome, version: int = 0, added: Sequence[Message] = ()
    ) -> None:
        """The leg is over, with the user messages that it has not committed yet. The same leg twice: the first outcome
        stays. Raises StaleFenceError; with messages VersionConflict, too.
        """
        ...

    async def commit_compaction(
        self, fence: Fence, version: int, record: Record, passages: Sequence[Passage], charge: Charge | None
    ) -> None:
        """Commit record, passages (into the outbox) and charge in one transaction, by compare-and-set on the version.

        The same record id a second time changes nothing.

        Raises:
            StaleFenceError: another attempt has taken over the run.
            VersionConflict: the transcript changed since it was read.
        """
        ...

    async def commit_rewind(self, fence: Fence, version: int, rewind: TranscriptRewind) -> None:
        """Commit record, notes, deliverable and passages in one transaction, by compare-and-set on the version.

        The same record id a second time changes nothing.

        Raises:
            StaleFenceError: another attempt has taken over the run.
            VersionConflict: the transcript changed since it was read.
        """
        ...

    # Notes and deliverables of agents.

    async def add_note(self, fence: Fence, task_id: str, note: Note) -> None:
        """Store a note; the same id a second time is the same note.

        Raises:
            StaleFenceError: another attempt has taken over the run.
        """
        ...

    async def list_notes(self, task_id: str, reader: ReadScope, run_id: str | None = None) -> tuple[Note, ...]:
        """Return the notes of a task or of one agent run, in the order in which they were taken."""
        ...

    async def commit_deliverable(self, fence: Fence, task_id: str, deliverable: Deliverable) -> None:
        """Store what the agent run submits; a later submission of the same run replaces it.

        Raises:
            StaleFenceError: another attempt has taken over the run.
        """
        ...

    async def get_deliverable(self, run_id: str, reader: ReadScope) -> Deliverable | None:
        """Return what the run submitted."""
        ...

    async def load_work(self, run: RunRef) -> tuple[Deliverable | None, tuple[Note, ...]]:
        """What the run handed in, and its notes, in one read."""
        ...

    async def get_deliverables(self, task_id: str, reader: ReadScope) -> dict[str, Deliverable]:
        """Return what all agent runs of a task submitted, by run id."""
        ...

    # Passages that were committed with their compaction and are not in Qdrant yet, and those that must leave it.

    async def list_pending_passages(self, limit: int, run_id: str | None = None) -> tuple[Passage, ...]:
        """Return passages that wait for memory, the oldest first."""
        ...

    async def count_pending_passages(self, task_id: str | None = None) -> int:
        """Count the waiting passages of one task or of all."""
        ...

    async def mark_passages_stored(self, passage_ids: Sequence[str]) -> None:
        """Mark the passages as stored in Qdrant."""
        ...

    async def mark_passages_rejected(self, passage_ids: Sequence[str]) -> None:
        """Mark passages that Qdrant rejects: they wait no longer, but stay in the store."""
        ...

    async def list_rejected_passage_ids(self, task_id: str | None = None) -> tuple[str, ...]:
        """Return the ids of rejected passages of one task or of all."""
        ...

    async def list_passage_ids_to_delete(self, limit: int) -> tuple[str, ...]:
        """Return the ids of passages whose conversation was rewound and which may still be in Qdrant."""
        ...

    async def mark_passages_deleted(self, passage_ids: Sequence[str]) -> None:
        """Mark the passages as removed from Qdrant."""
        ...

    async def list_passage_ids(self, *, refused: bool = False) -> frozenset[str]:
        """Return the ids of all valid passages of all tenants; rejected ones only with `refused`."""
        ...

    async def list_deleted_passage_ids(self) -> frozenset[str]:
        """Return the ids of all passages of all tenants that are no longer valid."""
        ...

    async def get_passages(self, passage_ids: Sequence[str], reader: ReadScope) -> tuple[Passage, ...]:
        """Return the valid ones among these passages, of which there may be a few hundred."""
        ...

    # Document passages on their way to memory: the same document in two tasks of one session is stored there once.

    async def begin_document_indexing(self, ref: TaskRef, shown: Mapping[str, str]) -> bool:
        """Register the task among those that have its documents in memory.

        Passages of versions that it no longer has move to another task of the session that still has them, or leave
        memory. Repeating this changes nothing.

        Args:
            ref: the task.
            shown: by document name, the name that its passages bear.

        Returns:
            False if the task was forgotten.

        Raises:
            WrongStore: the task belongs to another store.
        """
        ...

    async def commit_document_passages(self, ref: TaskRef, passages: Sequence[Passage]) -> bool:
        """Add these passages to the outbox, except those of a version that was replaced meanwhile.

        Existing passages stay unchanged, whichever task added them.

        Returns:
            False if the task was forgotten meanwhile, and nothing is stored.

        Raises:
            WrongStore: the task belongs to another store.
        """
        ...

    # Passages of reports and findings on their way to memory.

    async def commit_result_passages(self, ref: TaskRef, results: Sequence[Passage]) -> None:
        """Add these passages to the outbox, and remove those of an earlier end of the task from memory.

        The same passages a second time change nothing; nothing is stored for a forgotten task.

        Raises:
            WrongStore: the task belongs to another store.
        """
        ...

    # Forgetting the content of tasks.

    async def forget_tasks(self, order: ForgetOrder) -> ForgetCounts:
        """Remove what the order names, in one transaction. A repetition finds nothing more.

        Passages leave the outbox; their points have to be removed from memory afterwards.

        Raises:
            WrongStore: the order is for another store.
        """
        ...

    # Erasing one person from everything that the store holds of a tenant.

    async def find_erasure_matches(self, tenant: str, sought: ErasureQuery) -> tuple[ErasureMatch, ...]:
        """Return where the tenant's tasks contain what the query looks for, and how often.

        Raises:
            WrongKey: no available key decrypts a text.
        """
        ...

    async def erase_person(self, order: PersonErasureOrder, sought: ErasureQuery) -> None:
        """Replace it by `<ERASED>` in one transaction. A repetition finds nothing more.

        Passages that contained it wait again, so that memory gets them as they are now.

        Raises:
            WrongStore: the order is for another store.
            WrongKey: no available key decrypts a text.
        """
        ...
