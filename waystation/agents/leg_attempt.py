"""One attempt at a leg: its committed transcript and its fence; receives people's messages and document updates.

Both are received at turn boundaries and committed as messages: a crash neither loses nor repeats them, they precede
everything read afterwards, and they are paid for once, behind a cached prefix. The message about changed documents
comes from the platform and holds no text of a document.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from waystation.agents.call_ledger import CountedPrompt
from waystation.agents.leg import AgentFinished, LegOutcome, LegRequest, LegState
from waystation.agents.person_questions import QUESTIONS_NOTE, find_person_questions
from waystation.agents.ports import AgentTask, TaskSource
from waystation.agents.roles import AgentDeps, load_role_prompt
from waystation.agents.stop_reasons import list_newest_refusals
from waystation.agents.task_brief import build_document_listing, render_task_parts
from waystation.agents.task_messages import TaskMessage, build_transcript_message, list_received_message_numbers
from waystation.agents.tools.tool import ToolContext
from waystation.agents.tools.toolbox import Toolbox
from waystation.budgets.budget import RunUsage
from waystation.context.history import (
    build_model_view,
    build_view_without_outdated_thinking,
    count_messages_before,
    find_prompt_prefix,
    get_effective_transcript,
    with_record,
)
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import (
    CallIntent,
    Charge,
    Fence,
    Message,
    PromptPrefixRecord,
    Record,
    ToolUse,
    Transcript,
    build_platform_message,
)
from waystation.documents.documents import (
    Document,
    DocumentChange,
    RecordedDocumentsUpdate,
    find_changed_lines,
    merge_document_changes,
)
from waystation.documents.ports import TextStore
from waystation.documents.redacted_documents import build_document_names
from waystation.kernel.amount import Limit
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import TaskScope
from waystation.kernel.text import format_count
from waystation.models.profiles import get_model_profile
from waystation.privacy.policy import TextDestination, build_redaction_notes
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import SafeMarkup, sanitize_line, wrap_untrusted


@dataclass
class LegAttempt:
    """One attempt at a leg. Every write is bound to its fence."""

    deps: AgentDeps
    request: LegRequest
    fence: Fence
    toolbox: Toolbox
    transcript: Transcript
    totals: RunUsage
    token_ratio: float
    """Ratio of the provider's count to our estimate for the last request."""
    notes: list[str] = field(default_factory=list[str])
    documents: tuple[Document, ...] = ()
    """Of the task, as far as the agent has heard of their versions: they change for it where it hears of that."""
    previous_reply: str = ""
    """The provider's id of the last reply of this attempt."""
    uncommitted: list[Message] = field(default_factory=list[Message])
    """The last user messages of the transcript: committed with the intent of the call that sends them, or with the
    leg's outcome. An attempt that dies before makes them again, which costs nothing and does nothing twice.
    """

    def add(self, message: Message) -> None:
        """Append a user message; it is committed with the next intent, record or outcome."""
        self.uncommitted.append(message)
        self.transcript = self.transcript.with_message(message)

    @property
    def committed_version(self) -> int:
        """Version of the transcript in the store."""
        return self.transcript.version - len(self.uncommitted)

    async def commit_messages(self, intent: CallIntent | None = None) -> int:
        """Commit pending messages, with the intent of the call that sends them.

        Returns the number of open intents of its key. Raises StaleFenceError, VersionConflict.
        """
        if not self.uncommitted and intent is None:
            return 0
        said = tuple(self.uncommitted)
        unanswered = await self.deps.store.commit_messages(self.fence, self.committed_version, said, intent)
        self.uncommitted.clear()
        return unanswered

    async def commit_reply(self, message: Message, charge: Charge) -> None:
        """Commit a reply with what it cost. Raises StaleFenceError, VersionConflict."""
        self.totals = await self.deps.store.commit_reply(self.fence, self.transcript.version, message, charge)
        self.transcript = self.transcript.with_message(message)

    async def commit_outcome(self, outcome: LegOutcome) -> None:
        """Commit the leg's outcome with pending messages. Raises StaleFenceError, VersionConflict."""
        said = tuple(self.uncommitted)
        await self.deps.store.commit_outcome(self.fence, self.request.leg, outcome, self.committed_version, said)
        self.uncommitted.clear()

    def get_counted_prompt(self, messages: Sequence[Message]) -> CountedPrompt | None:
        """Return the provider's count of the last turn's request, if the next request begins with all of it.

        Returns:
            None before the first reply; after a reply whose input was not reported, or that came from a fallback with
            another tokeniser; and after a change of the conversation, such as a compaction or an edit.
        """
        replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
        said = self.transcript.messages
        newest = max((place for place, message in enumerate(said) if message.role == "assistant"), default=None)
        if (
            newest is None
            or not replies
            or not self.totals.last_prompt_tokens
            or said[newest].id != messages[replies[-1]].id
        ):
            return None
        if said[newest].fallback_model:
            return None
        if any(count_messages_before(record, self.transcript) > newest for record in self.transcript.records):
            return None
        return CountedPrompt(self.totals.last_prompt_tokens, replies[-1], same_head=self._holds_prefix)

    async def commit_record(self, record: Record) -> None:
        """Commit what a call does to the conversation. Raises StaleFenceError, VersionConflict."""
        await self.commit_messages()
        await self.deps.store.commit_compaction(self.fence, self.transcript.version, record, (), None)
        self.transcript = with_record(self.transcript, record)

    async def commit_prompt_prefix(self) -> bool:
        """Commit the system prompt and tools as sent from here on, if the conversation has others.

        Returns:
            Whether they were committed: the model view may have changed then.

        Raises:
            StaleFenceError: Another attempt has taken over.
            VersionConflict: Another attempt has written.
        """
        if self._holds_prefix:
            return False
        record_id = f"prefix-{self.transcript.version + 1}"
        await self.commit_record(
            PromptPrefixRecord(id=record_id, system=self.system_prompt, tools=self.toolbox.visible_specs)
        )
        return True

    @property
    def _holds_prefix(self) -> bool:
        """Whether the last committed system prompt and tools are the current ones."""
        known = find_prompt_prefix(self.transcript)
        return known is not None and (known.system, known.tools) == (self.system_prompt, self.toolbox.visible_specs)

    async def reload_usage(self) -> None:
        """Reload what the run has cost."""
        self.totals = await self.deps.store.get_run_usage(self.request.run.run_id)

    @property
    def effective_messages(self) -> tuple[Message, ...]:
        """The conversation without rewound messages."""
        return get_effective_transcript(self.transcript).messages

    @property
    def refusals(self) -> tuple[str, ...]:
        """Categories of the replies that were refused since the last one that was not, newest first."""
        return list_newest_refusals(self.effective_messages)

    @property
    def model_view(self) -> tuple[Message, ...]:
        """The messages that the model is sent."""
        return build_request_view(self.transcript, self.request.config.model)

    @property
    def leg_state(self) -> LegState:
        """State for the leg's outcome."""
        # From the transcript, so that an attempt after a crash says it too.
        asked = (QUESTIONS_NOTE,) if find_person_questions(self.transcript) else ()
        return LegState(
            totals=self.totals,
            token_ratio=self.token_ratio,
            notes=tuple(dict.fromkeys((*self.notes, *asked))),
            fixed_tokens=self.fixed_tokens,
            window=self.request.config.window,
        )

    @property
    def remaining_limit(self) -> Limit:
        """What is left of the run's limit."""
        return self.request.limit.remaining_after(self.totals.spent)

    def make_partial_outcome(self, reason: str) -> AgentFinished:
        """Build the outcome of a leg that ends with what exists."""
        return AgentFinished(state=self.leg_state, partial=True, reason=reason)

    def build_tool_context(self, call: ToolUse) -> ToolContext:
        """Build the context in which a tool runs this call."""
        return ToolContext(
            run=self.request.run,
            fence=self.fence,
            call_id=call.id,
            transcript=self.transcript,
            policy=self.request.config.compaction_policy,
            token_estimator=TokenEstimator(fixed_tokens=self.fixed_tokens, token_ratio=self.token_ratio),
            notes=self.notes,
            memory=self.request.config.memory,
            subagent_results=self.request.subagent_results,
            limit=self.request.limit,
            used_share=self.request.limit.compute_used_share(self.totals.spent),
            documents=self.documents,
            web_limits=self.request.config.web_limits,
        )

    @cached_property
    def system_prompt(self) -> str:
        """System prompt of the agent's role, as sent since the last compaction."""
        return self.toolbox.sent_system_prompt or load_role_prompt(self.request.run.role)

    @cached_property
    def fixed_tokens(self) -> int:
        """Estimated tokens of system prompt and tools, which every request has."""
        return self.toolbox.estimate_prompt_overhead(self.system_prompt)


async def receive_news(attempt: LegAttempt) -> None:
    """Append new messages of people, then new document updates.

    Raises StoreError, RedactionFailed.
    """
    news = await attempt.deps.store.load_task_news(attempt.request.run.scope)
    await _receive_messages(attempt, news.messages)
    await _receive_document_updates(attempt, news.updates)


async def _receive_messages(attempt: LegAttempt, messages: Sequence[TaskMessage]) -> None:
    """Each thing that this agent has not heard, oldest first, as a message of its own: redacted, else word for word.
    What it has heard stands in its transcript: so nothing is said twice, and what is taken back is said again.
    """
    desk, run, known = attempt.deps, attempt.request.run, list_received_message_numbers(attempt.effective_messages)
    for message in messages:
        if message.number not in known:
            words = await desk.store.get_text(message.text, run.scope)
            (redacted,) = await desk.redactor.redact([words], TextDestination.TASK_BRIEF, run.tenant)
            attempt.notes.extend(build_redaction_notes(redacted))
            attempt.add(build_transcript_message(attempt.transcript.next_message_id, message.number, redacted.text))


def build_request_view(transcript: Transcript, model: str) -> tuple[Message, ...]:
    """Build the messages that a model is sent: without outdated thinking if it signs its thinking over all of them."""
    binds = get_model_profile(model).binds_thinking
    return build_view_without_outdated_thinking(transcript) if binds else build_model_view(transcript)


async def render_task_sections(
    row: AgentTask, documents: Sequence[Document], redactor: Redactor, more: Sequence[SafeMarkup] = ()
) -> Sequence[SafeMarkup]:
    """Render the task's documents, `more` about them, and the request, each in its tag.

    Documents have the names that agents know; nothing else is redacted. Raises RedactionFailed.
    """
    listing = await build_document_listing(documents, redactor, row.ref.tenant)
    return render_task_parts(row.request, row.submitted_at, listing, more)


async def render_task_with_messages(ref: TaskRef, store: TaskSource, redactor: Redactor) -> str:
    """Render the task in one tag, followed by people's messages. Raises StoreError, RedactionFailed."""
    row = await store.get_task(ref.task_id, ref.scope)
    task = await render_task_sections(row, await store.list_documents(ref.task_id, ref.scope), redactor)
    told = await render_task_messages(store, ref.scope)
    return "\n".join(filter(None, [wrap_untrusted("task", *task), told]))


async def render_task_messages(store: TaskSource, task: TaskScope) -> SafeMarkup | None:
    """Render people's messages in one tag, for a model that is asked once and has no turns.

    Oldest first, not redacted; None if there are none. Raises StoreError.
    """
    words = [await store.get_text(message.text, task) for message in await store.list_task_messages(task.task_id, task)]
    return wrap_untrusted("told_meanwhile", *words) if words else None


MAX_LISTED_DOCUMENTS = 20
"""Maximum number of documents named; list_documents names them all."""
MAX_LISTED_CHANGES = 8
"""Maximum number of places named per document."""
_HEAD = (
    "The documents of the task have changed. The list below says which; it is not a new request. Tools give the new "
    "versions. Read again what you rely on: line numbers may have changed, and earlier findings rest on old versions."
)


async def _receive_document_updates(attempt: LegAttempt, updates: Sequence[RecordedDocumentsUpdate]) -> None:
    """Append one message about all document updates since the last one, if there are any."""
    desk, run = attempt.deps, attempt.request.run
    known = max((message.documents_update_number for message in attempt.effective_messages), default=0)
    fresh = [update for update in updates if update.number > known]
    if fresh:
        attempt.documents = await desk.store.list_documents(run.task_id, run.scope)
    if not (made := merge_document_changes(fresh)):
        return
    documents = attempt.documents
    first = made[:MAX_LISTED_DOCUMENTS]
    changed = [documents[change.position] for change in first]
    shown = (await build_document_names(changed, desk.redactor, run.tenant)).shown_documents
    lines = [await _line(change, one, desk.store, run.scope) for change, one in zip(first, shown, strict=True)]
    if len(made) > MAX_LISTED_DOCUMENTS:
        lines.append(
            f"- and {len(made) - MAX_LISTED_DOCUMENTS} more; list_documents shows all documents as they are now"
        )
    text = f"{_HEAD}\n{wrap_untrusted('documents_changed', *lines)}"
    (redacted,) = await desk.redactor.redact([text], TextDestination.TASK_BRIEF, run.tenant)
    attempt.notes.extend(build_redaction_notes(redacted))
    told = build_platform_message(attempt.transcript.next_message_id, redacted.text)
    attempt.add(told.replace(documents_update_number=fresh[-1].number))


async def _line(change: DocumentChange, document: Document, store: TextStore, reader: TaskScope) -> str:
    name = sanitize_line(document.name)
    match change.kind:
        case "added":
            return f"- added: {name} ({format_count(document.lines, 'line')}{document.date_suffix})"
        case "removed":
            return f"- removed: {name}"
        case "changed":
            before, after = [
                (await store.get_text(blob, reader)).splitlines() for blob in (change.before, change.after)
            ]
            size = f"{format_count(document.lines, 'line')} now{document.date_suffix}"
            return f"- changed: {name} ({await asyncio.to_thread(_places, before, after)}; {size})"


def _places(before: Sequence[str], after: Sequence[str]) -> str:
    places = [str(place) for place in find_changed_lines(before, after)]
    more = [f"and {len(places) - MAX_LISTED_CHANGES} more places"] if len(places) > MAX_LISTED_CHANGES else []
    return ", ".join([*places[:MAX_LISTED_CHANGES], *more]) or "only line breaks"
