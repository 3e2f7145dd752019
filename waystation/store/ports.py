"""The port to the store. Every read of content names who asks; what is not theirs is answered as what is not there."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from waystation.agents.deliverables import Deliverable, Note
from waystation.agents.leg import LegOutcome, LoadedRun
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
from waystation.tasks.continuation import TranscriptRewind
from waystation.tasks.progress import TaskCharges
from waystation.tasks.schedules import MonthlyBudget
from waystation.tasks.session import SessionKey, StoredSession
from waystation.tasks.task import AuditEntry, ReusedWork, TaskMessage, TaskNews, TaskProgress, TaskRow


class DocumentStore(Protocol):
    """Texts by content hash, each kept once for all who have it: documents, offloaded results, reports."""

    async def put_text(self, text: str, owner: TaskScope) -> str:
        """Store a text of this task; returns its content hash."""
        ...

    async def get_text(self, blob: str, reader: ReadScope) -> str:
        """The text of a content hash. Raises TextNotFoundError where no task that the reader may see has it."""
        ...

    async def list_documents(self, task_id: str, reader: ReadScope) -> tuple[Document, ...]:
        """A task's documents in the order in which they were given."""
        ...


class Store(DocumentStore, Protocol):
    """All that is kept, but for the vault, which may be another machine's."""

    # Tasks, their plans, their audit and how they ended.

    async def get_store_id(self) -> str:
        """The id of this store, made when it was created."""
        ...

    async def register_task(self, row: TaskRow, documents: Sequence[SourceDocument]) -> bool:
        """Store a new task with its documents. False: the same request is there already.

        Raises RequestConflict if the request id was used for another question, other documents or other terms.
        """
        ...

    async def register_scheduled_task(
        self, row: TaskRow, documents: Sequence[SourceDocument], month: MonthlyBudget
    ) -> str:
        """Store a run of a schedule as `register` does, unless that would pass what its runs of the month may spend.

        Counting and storing are one transaction, so that runs that begin together do not pass it together.

        Returns:
            Why it was not stored; empty if it was, or was there already.
        """
        ...

    async def register_fork(self, row: TaskRow, plan: Plan, reused: ReusedWork, state: str) -> bool:
        """Store a new task with this plan and the documents of another one, and what these agents of it have done.

        `state` is the content hash of the state in which that one ended, as it was looked at; nothing is charged.
        False: the same request is there already. Raises RequestConflict as `register` does; UnknownTask; BadInput
        where the other task has gone on meanwhile.
        """
        ...

    async def take_over_session(self, key: SessionKey) -> StoredSession:
        """Begin a new epoch of the session, which is returned as it was saved last; an empty one if it is not there."""
        ...

    async def save_session(self, key: SessionKey, stored: StoredSession) -> bool:
        """Save the state. False: another epoch or a newer version is there, and stays."""
        ...

    async def get_task(self, task_id: str, reader: ReadScope) -> TaskRow:
        """Raises UnknownTask, which does not tell whether somebody else has it."""
        ...

    async def list_task_charges(self, task_id: str, reader: ReadScope) -> TaskCharges:
        """Every call of the task's that was paid for, or may have been; none where it is not the reader's."""
        ...

    async def find_task_ids(self, prefix: str, reader: ReadScope) -> tuple[str, ...]:
        """Ids of the reader's tasks that start with the prefix."""
        ...

    async def list_tasks(
        self,
        reader: ReadScope,
        limit: int = 50,
        *,
        ended_before: datetime | None = None,
        since: datetime | None = None,
    ) -> tuple[TaskRow, ...]:
        """The reader's, newest first; those alone that were submitted since some moment. Of those that ended before
        one, none that is forgotten as a whole; and one whose end nobody wrote down counts from when it was submitted:
        it was terminated, or still runs.
        """
        ...

    async def save_task_title(self, task_id: str, title: str) -> None:
        """Keep the redacted title."""
        ...

    async def save_plan(self, task_id: str, plan: Plan) -> None:
        """Keep the plan with its goals. The first one stays."""
        ...

    async def save_plan_version(self, task_id: str, version: PlanVersion) -> None:
        """Keep a plan that takes the place of the one before. Of each number the first one stays."""
        ...

    async def get_newest_plan(self, task_id: str, reader: ReadScope) -> Plan | None:
        """The newest plan, goals included."""
        ...

    async def list_plan_versions(self, task_id: str, reader: ReadScope) -> tuple[PlanVersion, ...]:
        """All plans of the task, oldest first, each with its goals and why it was made."""
        ...

    async def add_audit_entry(self, task_id: str, entry: AuditEntry) -> None:
        """Append an approval or an edit (each twice: asked for, and settled), a telling, or a refused message."""
        ...

    async def list_audit_entries(self, task_id: str, reader: ReadScope) -> tuple[AuditEntry, ...]:
        """Everything audited, oldest first; the same entry twice (a retried activity) is one."""
        ...

    async def list_task_messages(self, task_id: str, reader: ReadScope) -> tuple[TaskMessage, ...]:
        """What people told the task at work, in the order of their numbers."""
        ...

    async def load_task_news(self, task: TaskScope) -> TaskNews:
        """What people told the task, and what became of its documents, in one read."""
        ...

    async def store_first_tool_definitions(
        self, task_id: str, now: Sequence[ToolDefinition]
    ) -> tuple[ToolDefinition, ...]:
        """What each of these tools of others was like when the task first had it, in their order: kept from then on.

        Raises UnknownTask.
        """
        ...

    async def update_documents(
        self, task_id: str, update: DocumentsUpdate, given: DocumentSet
    ) -> RecordedDocumentsUpdate:
        """Put these versions in the place of the task's documents. The same number twice changes nothing."""
        ...

    async def list_document_updates(self, task_id: str, reader: ReadScope) -> tuple[RecordedDocumentsUpdate, ...]:
        """What became of the task's documents while it worked, in the order of the numbers."""
        ...

    async def save_task_progress(self, task_id: str, progress: TaskProgress) -> None:
        """Keep how the task ended."""
        ...

    # Whole texts as they may be shown, kept with their originals and forgotten with them.

    async def get_redacted_text(self, key: RedactedTextKey, reader: ReadScope) -> RedactedText | None:
        """The text as it was kept under this key; None: it was not, or no task that the reader may see has its
        original. Raises WrongKey, StoreError.
        """
        ...

    async def save_redacted_text(self, key: RedactedTextKey, text: RedactedText) -> None:
        """Keep it with its original. The first one stays; of an original that was forgotten meanwhile nothing does."""
        ...

    # Transcripts, charges and outcomes of agent runs. Every write of an attempt is conditional on its fence.

    async def open_run(self, run: RunRef) -> None:
        """Create the run if it is not there. Raises WrongStore if `run.store_id` is not this store's."""
        ...

    async def acquire_fence(self, run_id: str) -> Fence:
        """Take the run over: every older fence is lost from here on."""
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
        """The whole transcript with its compaction records; empty for a run without messages, or of somebody else."""
        ...

    async def find_passages(self, prefix: str, reader: ReadScope) -> tuple[Passage, ...]:
        """The reader's passages whose ids begin like this: eight hexadecimal digits or more."""
        ...

    async def list_run_ids(self, task_id: str, reader: ReadScope) -> tuple[str, ...]:
        """Of all agent runs of a task that were opened: planning, steps and subagents."""
        ...

    async def get_run_usage(self, run_id: str) -> RunUsage:
        """All charges and open intents of the run, added up."""
        ...

    async def record_intent(self, fence: Fence, intent: CallIntent) -> int:
        """Store the intent before its call; how many of its key are open then. One that is already there with this
        key stays, as possibly billed, until a charge of it is committed; worst cases add up. Raises StaleFenceError.
        """
        ...

    async def drop_intent(self, fence: Fence, key: str) -> None:
        """The call certainly was not billed (refused before any reply): take the newest intent of the key back."""
        ...

    async def update_intent(self, fence: Fence, key: str, worst_case: Amount) -> None:
        """The newest intent of the key holds this from now on: its call brought no reply, and its provider had reported
        what it used at most. Raises StaleFenceError.
        """
        ...

    async def commit_reply(self, fence: Fence, version: int, message: Message, charge: Charge) -> RunUsage:
        """Second commit of a turn: the reply and its charge, in one transaction, before any tool runs; what the run has
        cost by then.

        Closes one intent of the charge's key (the others stay possibly billed). The same charge key twice changes
        nothing. Raises StaleFenceError, VersionConflict.
        """
        ...

    async def commit_message(self, fence: Fence, version: int, message: Message) -> None:
        """Append a user message: the contract, or the results of a turn's tools. Raises StaleFenceError,
        VersionConflict.
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
        """A charge without a message (planning, a rejected summary). Closes one intent of its key."""
        ...

    async def record_tool_intent(self, fence: Fence, tool_use_id: str) -> bool:
        """Store that a call that must not be repeated is about to run. False: it was stored by an earlier attempt, so
        its outcome is unknown.
        """
        ...

    async def get_leg_outcome(self, run_id: str, leg: int, reader: ReadScope) -> LegOutcome | None:
        """The committed outcome of a leg."""
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
        """Record, passages (into the outbox) and charge in one transaction, by compare-and-set on the version.

        The same record id twice changes nothing. Raises StaleFenceError, VersionConflict.
        """
        ...

    async def commit_rewind(self, fence: Fence, version: int, rewind: TranscriptRewind) -> None:
        """Record, notes, what was handed in, and passages in one transaction, by compare-and-set on the version.

        The same record id twice changes nothing. Raises StaleFenceError, VersionConflict.
        """
        ...

    # What agents note and hand in.

    async def add_note(self, fence: Fence, task_id: str, note: Note) -> None:
        """Keep a note; the same id twice is one note. Raises StaleFenceError."""
        ...

    async def list_notes(self, task_id: str, reader: ReadScope, run_id: str | None = None) -> tuple[Note, ...]:
        """Notes of a task or of one agent run, in the order in which they were taken."""
        ...

    async def commit_deliverable(self, fence: Fence, task_id: str, deliverable: Deliverable) -> None:
        """Keep what the agent run hands in; a later hand-in of the same run replaces it. Raises StaleFenceError."""
        ...

    async def get_deliverable(self, run_id: str, reader: ReadScope) -> Deliverable | None:
        """What the run handed in."""
        ...

    async def load_work(self, run: RunRef) -> tuple[Deliverable | None, tuple[Note, ...]]:
        """What the run handed in, and its notes, in one read."""
        ...

    async def get_deliverables(self, task_id: str, reader: ReadScope) -> dict[str, Deliverable]:
        """What all agent runs of a task handed in, by run id."""
        ...

    # Passages that were committed with their compaction and are not in Qdrant yet; and those that are to leave it.

    async def list_pending_passages(self, limit: int, run_id: str | None = None) -> tuple[Passage, ...]:
        """The oldest first."""
        ...

    async def count_pending_passages(self, task_id: str | None = None) -> int:
        """How many wait, of one task or of all."""
        ...

    async def mark_passages_stored(self, passage_ids: Sequence[str]) -> None:
        """These are in Qdrant now."""
        ...

    async def mark_passages_rejected(self, passage_ids: Sequence[str]) -> None:
        """Qdrant does not take these: they wait no more, and stay in the store."""
        ...

    async def list_rejected_passage_ids(self, task_id: str | None = None) -> tuple[str, ...]:
        """Ids of the passages that were put aside, of one task or of all."""
        ...

    async def list_passage_ids_to_delete(self, limit: int) -> tuple[str, ...]:
        """Ids of passages whose conversation was taken back, and which may still be in Qdrant."""
        ...

    async def mark_passages_deleted(self, passage_ids: Sequence[str]) -> None:
        """These are in Qdrant no more."""
        ...

    async def list_passage_ids(self, *, refused: bool = False) -> frozenset[str]:
        """Of all passages that count, of all tenants; those that were put aside only if they are asked for."""
        ...

    async def list_deleted_passage_ids(self) -> frozenset[str]:
        """Of all passages that count no more, of all tenants."""
        ...

    async def get_passages(self, passage_ids: Sequence[str], reader: ReadScope) -> tuple[Passage, ...]:
        """Those of these, a few hundred at most, that count."""
        ...

    # Passages of documents on their way to memory: the same document in two tasks of one session goes there once.

    async def begin_document_indexing(self, ref: TaskRef, shown: Mapping[str, str]) -> bool:
        """Count the task among those that have its documents in memory; passages of versions that it has no more go to
        another task of the session that still has them, or leave memory. Doing it again changes nothing.

        `shown` is by name of a document the name that its passages bear. False: the task was forgotten. Raises
        WrongStore.
        """
        ...

    async def commit_document_passages(self, ref: TaskRef, passages: Sequence[Passage]) -> bool:
        """Let these passages wait for memory, but for those of a version that was replaced meanwhile.

        Those that are there are left as they are, whichever task brought them. False: the task was forgotten meanwhile,
        and nothing is kept. Raises WrongStore.
        """
        ...

    # Passages of reports and findings on their way to memory.

    async def commit_result_passages(self, ref: TaskRef, results: Sequence[Passage]) -> None:
        """Let these passages wait for memory, and those of an earlier end of the task leave it.

        The same passages twice change nothing; of a forgotten task nothing is kept. Raises WrongStore.
        """
        ...

    # Tasks without what was said in them.

    async def forget_tasks(self, order: ForgetOrder) -> ForgetCounts:
        """Remove what the order names, in one transaction. Carried out again, it finds nothing more.

        Passages leave the outbox, and their points are to be taken out of memory after this. Raises WrongStore.
        """
        ...

    # One person in everything that the store keeps of a tenant.

    async def find_erasure_matches(self, tenant: str, sought: ErasureQuery) -> tuple[ErasureMatch, ...]:
        """Where the tenant's tasks have it, and how often. Raises WrongKey."""
        ...

    async def erase_person(self, order: PersonErasureOrder, sought: ErasureQuery) -> None:
        """Put `<ERASED>` in its place, in one transaction. Carried out again, it finds nothing more.

        Passages that had it wait again, so that memory gets them as they are now. Raises WrongStore, WrongKey.
        """
        ...
