"""Ports of agents: their runs and work in the store, their task as they know it, and metrics without content and IDs.

The runs and the work of a task are written by one attempt at a time: every write is conditional on the attempt's fence.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from waystation.agents.action_approvals import PlaceholderResolution, UnattendedPolicy
from waystation.agents.deliverables import Deliverable, Note, ReportLength
from waystation.agents.leg import AgentConfigByRole, LegOutcome
from waystation.agents.partial_replies import PartialReply
from waystation.agents.task_messages import TaskMessage, TaskNews
from waystation.agents.transcript_rewind import TranscriptRewind
from waystation.budgets.budget import RunUsage
from waystation.context.compaction import CompactionOutcome
from waystation.context.transcript import CallIntent, Charge, Fence, Message, Record, Transcript
from waystation.documents.documents import Document
from waystation.documents.ports import DocumentReader, TextReader
from waystation.documents.procedures import Procedures
from waystation.kernel.amount import Amount
from waystation.kernel.errors import ModelError
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.scopes import ReadScope, TaskScope
from waystation.memory.passages import MemoryScope, Passage
from waystation.models.ports import CallKind
from waystation.privacy.policy import TextDestination
from waystation.security.untrusted import SafeMarkup, ServerNames, ToolDefinition


class ChargeRepository(Protocol):
    """Costs of agent runs: an intent with its worst case before each call, and a charge after it."""

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

    async def commit_charge(self, fence: Fence, charge: Charge) -> None:
        """Commit a charge without a message (planning, a rejected summary). Closes one intent of its key."""
        ...


class TranscriptReader(Protocol):
    """Transcripts of agent runs."""

    async def load_transcript(self, run_id: str, reader: ReadScope) -> Transcript:
        """Return the whole transcript with its compaction records; empty without messages, or for someone else's
        run.
        """
        ...

    async def list_run_ids(self, task_id: str, reader: ReadScope) -> tuple[str, ...]:
        """Return the ids of all agent runs of a task that were opened: planning, steps and subagents."""
        ...


class RunRepository(ChargeRepository, TranscriptReader, Protocol):
    """Agent runs: transcripts, charges and outcomes of legs. A reply and its charge are one transaction."""

    async def open_run(self, run: RunRef) -> None:
        """Create the run if it does not exist.

        Raises:
            WrongStore: `run.store_id` is not this store's id.
        """
        ...

    async def acquire_fence(self, run_id: str) -> Fence:
        """Take over the run: every older fence is lost from now on."""
        ...

    async def take_over(self, run: RunRef) -> tuple[Fence, int]:
        """Open the run if it is not there, and take it over; the version of its transcript by then. Raises WrongStore
        if `run.store_id` is not this store's.
        """
        ...

    async def start_leg(self, run: RunRef, leg: int) -> Fence | LegOutcome:
        """Open the run if it is not there, and take it over; or the leg's outcome, where it was committed before: then
        nobody loses a fence. Raises WrongStore if `run.store_id` is not this store's.
        """
        ...

    async def load_run(self, run: RunRef) -> "LoadedRun":
        """Return what the store has of the run, its task and documents, in one read.

        Raises:
            UnknownTask: there is no such task.
        """
        ...

    async def commit_reply(self, fence: Fence, version: int, message: Message, charge: Charge) -> RunUsage:
        """Second commit of a turn: the reply and its charge, in one transaction, before any tool runs. Returns what the
        run has cost by then.

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
        """First commit of a turn: the user messages that are new, such as the results of the previous turn's tools, and
        the intent of the call that sends them.

        Returns how many intents of its key are open then, 0 without one. Raises StaleFenceError, VersionConflict.
        """
        ...

    async def record_tool_intent(self, fence: Fence, tool_use_id: str) -> bool:
        """Record that a call that must not be repeated is about to run.

        Returns False if an earlier attempt recorded it, so that its outcome is unknown.
        """
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


class WorkRepository(Protocol):
    """Notes and deliverables of agents."""

    async def add_note(self, fence: Fence, task_id: str, note: Note) -> int:
        """Store a note and return how many the agent run has now; the same id a second time is the same note.

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

    async def load_work(self, run_id: str, task: TaskScope) -> tuple[Deliverable | None, tuple[Note, ...]]:
        """Return what a run of the task submitted, and its notes, in one read."""
        ...

    async def get_deliverables(self, task_id: str, reader: ReadScope) -> dict[str, Deliverable]:
        """Return what all agent runs of a task submitted, by run id."""
        ...


class PartialReplyRepository(Protocol):
    """Replies that still arrive, for people who watch the task."""

    async def is_watched(self, task_id: str, reader: ReadScope) -> bool:
        """Return whether someone watches the task."""
        ...

    async def save_partial_reply(self, fence: Fence, task_id: str, reply: PartialReply) -> bool:
        """Store what the model has said so far, in place of what it had said before, if someone watches the task.

        Returns False if no one does: what was stored before is then deleted. Raises StaleFenceError.
        """
        ...

    async def drop_partial_reply(self, fence: Fence) -> None:
        """Delete what was stored of a reply that never came. Raises StaleFenceError."""
        ...


class AgentTaskRequest(Protocol):
    """What a person asked for, as far as agents know it. `TaskRequest` is one."""

    @property
    def question(self) -> str:
        """The question."""
        ...

    @property
    def instructions(self) -> str:
        """How to work; empty if nothing was said."""
        ...

    @property
    def accept(self) -> tuple[str, ...]:
        """Criteria that the report must meet."""
        ...

    @property
    def length(self) -> ReportLength | None:
        """Length of the report; None: by the number of findings."""
        ...

    @property
    def unattended(self) -> UnattendedPolicy:
        """What happens to budget requests that no one answers."""
        ...

    @property
    def servers(self) -> ServerNames | None:
        """Tool servers that the agents may use; None: as in the session's newest task."""
        ...

    @property
    def procedures(self) -> Procedures:
        """Procedures for the agents, in addition to the instructions."""
        ...


class AgentTask(Protocol):
    """A task, as far as its agents know it. `TaskRow` is one."""

    @property
    def ref(self) -> TaskRef:
        """Reference of the task."""
        ...

    @property
    def request(self) -> AgentTaskRequest:
        """What a person asked for."""
        ...

    @property
    def config(self) -> AgentConfigByRole:
        """Configuration of its agents."""
        ...

    @property
    def submitted_at(self) -> datetime:
        """When it was submitted."""
        ...


class LoadedRun(NamedTuple):
    """What the store has of an agent run, its task and documents, read at once when a leg, a compaction or a context
    edit starts.
    """

    transcript: Transcript
    """Empty if the run was never opened."""
    totals: RunUsage
    task: AgentTask
    documents: tuple[Document, ...]
    """Of its task."""


class AgentTaskReader(Protocol):
    """The task of an agent, and what people told it since."""

    async def get_task(self, task_id: str, reader: ReadScope) -> AgentTask:
        """Return the task.

        Raises:
            UnknownTask: the reader has no such task; it does not reveal whether someone else has.
        """
        ...

    async def list_task_messages(self, task_id: str, reader: ReadScope) -> tuple[TaskMessage, ...]:
        """Return the messages that people sent to the running task, in the order of their numbers."""
        ...

    async def load_task_news(self, task: TaskScope) -> TaskNews:
        """What people told the task, and what became of its documents, in one read."""
        ...


class TaskSource(AgentTaskReader, DocumentReader, TextReader, Protocol):
    """Reads the task of an agent, with its messages, documents and texts."""


class EarlierTasks(Protocol):
    """Earlier tasks of a session, or of its tenant for an agent that recalls from there."""

    async def render_listing(self, own: AgentTask, window: int) -> SafeMarkup | None:
        """List tasks that were over before this one was submitted and have a report.

        Newest first, by ID, day and redacted title, as many as fit. None if there are none.
        """
        ...

    async def load_report(self, run: RunRef, task: str, scope: MemoryScope) -> str | None:
        """Load the report of a task that the agent may read; None if there is none.

        `task` is its ID or the beginning of it.
        """
        ...


class PlaceholderAudit(Protocol):
    """The audit trail, as far as agents write it."""

    async def add_audit_entry(self, task_id: str, entry: PlaceholderResolution) -> None:
        """Append which placeholders were replaced by their originals, and for which call."""
        ...


class ToolDefinitionRepository(Protocol):
    """Definitions of external tools, as a task first had them."""

    async def store_first_tool_definitions(
        self, task_id: str, now: Sequence[ToolDefinition]
    ) -> tuple[ToolDefinition, ...]:
        """Return the definition of each of these tools when the task first had it, in their order. Stored on first use.

        Raises:
            UnknownTask: there is no such task.
        """
        ...


class Meter(Protocol):
    """Metrics since this process started. Recording never fails and never blocks."""

    def record_model_reply(self, charge: Charge) -> None:
        """Record the cost of an answered model call; without a known price it counts as unpriced."""
        ...

    def record_model_failure(self, kind: CallKind, model: str, error: ModelError) -> None:
        """Record a model call that gave no reply."""
        ...

    def record_model_wait(self, model: str, seconds: float) -> None:
        """Record that a call waited because of the provider's rate limit."""
        ...

    def record_compaction(self, outcome: CompactionOutcome) -> None:
        """Record the end of a compaction."""
        ...

    def record_redactions(self, destination: TextDestination, spans: int) -> None:
        """Record the number of private spans replaced in texts for this destination."""
        ...

    def set_pending_passages(self, count: int) -> None:
        """Set the number of passages in the outbox."""
        ...

    def set_paused_tasks(self, count: int) -> None:
        """Set the number of running tasks that wait for a budget decision."""
        ...

    def set_rate_limit(self, model: str, kind: str, limit: float, remaining: float) -> None:
        """Set a limit per minute of a model, and what is left of it now.

        `kind`: requests, input_tokens or output_tokens.
        """
        ...

    def set_waiting_calls(self, count: int) -> None:
        """Set the number of model calls that wait for a rate limit, of all workers."""
        ...

    def record_sampling_failure(self, gauge: str) -> None:
        """Record that a gauge could not be read and keeps its last value."""
        ...
