"""Where one attempt at a leg stands: the transcript as far as it is committed, and the right to add to it.

At a turn boundary an agent hears what people have told its task; what reads the task once hears it, too.

What an agent hears when documents of its task have changed: which, and where. It is told once, as a message of the
platform: no wish of anybody, and no text of a document.

A message like every other: it is committed, so that a crash neither loses nor repeats it; it stands where it was heard,
before everything that was read of the new versions; and it is paid once, behind a prefix that stays cached.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from waystation.agents.call_ledger import CountedPrompt
from waystation.agents.leg import AgentFinished, LegOutcome, LegRequest, LegState
from waystation.agents.roles import AgentDeps, load_role_prompt
from waystation.agents.task_brief import build_document_listing, render_task_parts
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
from waystation.documents.redacted_documents import build_document_names
from waystation.kernel.amount import Limit
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import TaskScope
from waystation.models.profiles import get_model_profile
from waystation.privacy.policy import TextDestination, build_redaction_notes
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import SafeMarkup, sanitize_line, wrap_untrusted
from waystation.store.ports import Store
from waystation.tasks.task import TaskMessage, TaskRow, build_transcript_message, list_received_message_numbers


@dataclass
class LegAttempt:
    """Every write is bound to the attempt's fence."""

    desk: AgentDeps
    request: LegRequest
    fence: Fence
    toolbox: Toolbox
    transcript: Transcript
    totals: RunUsage
    scale: float
    """What the provider counted for the last request, over what was estimated."""
    notices: list[str] = field(default_factory=list[str])
    documents: tuple[Document, ...] = ()
    """Of the task, as far as the agent has heard of their versions: they change for it where it hears of that."""
    previous_reply: str = ""
    """The provider's id of the last reply of this attempt."""
    uncommitted: list[Message] = field(default_factory=list[Message])
    """The last user messages of the transcript: committed with the intent of the call that sends them, or with the
    leg's outcome. An attempt that dies before makes them again, which costs nothing and does nothing twice.
    """

    def add(self, message: Message) -> None:
        """Say a user message, which is committed with what comes next."""
        self.uncommitted.append(message)
        self.transcript = self.transcript.with_message(message)

    @property
    def committed_version(self) -> int:
        """What the store has of the transcript."""
        return self.transcript.version - len(self.uncommitted)

    async def commit_messages(self, intent: CallIntent | None = None) -> int:
        """Commit what was said, with the intent of the call that sends it; how many of the intent's key are open then.

        Raises StaleFenceError, VersionConflict.
        """
        if not self.uncommitted and intent is None:
            return 0
        said = tuple(self.uncommitted)
        unanswered = await self.desk.store.commit_messages(self.fence, self.committed_version, said, intent)
        self.uncommitted.clear()
        return unanswered

    async def commit_reply(self, message: Message, charge: Charge) -> None:
        """Commit a reply with what it cost. Raises StaleFenceError, VersionConflict."""
        self.totals = await self.desk.store.commit_reply(self.fence, self.transcript.version, message, charge)
        self.transcript = self.transcript.with_message(message)

    async def commit_outcome(self, outcome: LegOutcome) -> None:
        """Commit how the leg ended, with what was said last. Raises StaleFenceError, VersionConflict."""
        said = tuple(self.uncommitted)
        await self.desk.store.commit_outcome(self.fence, self.request.leg, outcome, self.committed_version, said)
        self.uncommitted.clear()

    def get_counted_prompt(self, shown: Sequence[Message]) -> CountedPrompt | None:
        """The provider's count of the newest turn's request, if the next request begins with all that it sent.

        None before the first reply, after a reply whose input was not reported or that a fallback gave, whose tokens
        are others, and if anything was done to the conversation since: a compaction, an edit.
        """
        replies = [place for place, message in enumerate(shown) if message.role == "assistant"]
        said = self.transcript.messages
        newest = max((place for place, message in enumerate(said) if message.role == "assistant"), default=None)
        if newest is None or not replies or not self.totals.last_prompt or said[newest].id != shown[replies[-1]].id:
            return None
        if said[newest].said_by:
            return None
        if any(count_messages_before(record, self.transcript) > newest for record in self.transcript.records):
            return None
        return CountedPrompt(self.totals.last_prompt, replies[-1], same_head=self._holds_prefix)

    async def commit_record(self, record: Record) -> None:
        """Commit what a call does to the conversation. Raises StaleFenceError, VersionConflict."""
        await self.commit_messages()
        await self.desk.store.commit_compaction(self.fence, self.transcript.version, record, (), None)
        self.transcript = with_record(self.transcript, record)

    async def commit_prompt_prefix(self) -> bool:
        """Commit system prompt and tools as they are sent from here on, if that is not what the conversation says.

        Returns:
            Whether it was committed: what is shown of the conversation may be another then.

        Raises:
            StaleFenceError, VersionConflict: another attempt has taken over.
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
        """Whether system prompt and tools are those that the conversation says were sent last."""
        known = find_prompt_prefix(self.transcript)
        return known is not None and (known.system, known.tools) == (self.system_prompt, self.toolbox.visible_specs)

    async def reload_usage(self) -> None:
        """What the run has cost by now."""
        self.totals = await self.desk.store.get_run_usage(self.request.run.run_id)

    @property
    def effective_messages(self) -> tuple[Message, ...]:
        """What counts of the conversation, without what was taken back."""
        return get_effective_transcript(self.transcript).messages

    @property
    def model_view(self) -> tuple[Message, ...]:
        """What the model is sent of the conversation."""
        binds = get_model_profile(self.request.terms.model).binds_thinking
        return build_view_without_outdated_thinking(self.transcript) if binds else build_model_view(self.transcript)

    @property
    def leg_state(self) -> LegState:
        """As the leg's outcome tells it."""
        return LegState(
            totals=self.totals,
            scale=self.scale,
            notes=tuple(dict.fromkeys(self.notices)),
            fixed=self.fixed_tokens,
            window=self.request.terms.window,
        )

    @property
    def remaining_limit(self) -> Limit:
        """Of what the run may spend."""
        return self.request.limit.remaining_after(self.totals.spent)

    def make_partial_outcome(self, reason: str) -> AgentFinished:
        """The leg ends with what there is."""
        return AgentFinished(standing=self.leg_state, partial=True, reason=reason)

    def build_tool_context(self, call: ToolUse) -> ToolContext:
        """Who makes this call."""
        return ToolContext(
            run=self.request.run,
            fence=self.fence,
            call_id=call.id,
            transcript=self.transcript,
            policy=self.request.terms.compaction_policy,
            measure=TokenEstimator(fixed=self.fixed_tokens, scale=self.scale),
            notices=self.notices,
            memory=self.request.terms.memory,
            handed_back=self.request.handed_back,
            limit=self.request.limit,
            documents=self.documents,
        )

    @cached_property
    def system_prompt(self) -> str:
        """The prompt of the agent's role, as it is sent since the last compaction."""
        return self.toolbox.sent_system_prompt or load_role_prompt(self.request.run.role)

    @cached_property
    def fixed_tokens(self) -> int:
        """Estimated tokens that each of its requests has."""
        return self.toolbox.estimate_prompt_overhead(self.system_prompt)


async def receive_news(attempt: LegAttempt) -> None:
    """Say what has come to the task since this agent last heard of it: what people told it, then what became of its
    documents. Raises StoreError, RedactionFailed.
    """
    news = await attempt.desk.store.load_task_news(attempt.request.run.scope)
    await _receive_messages(attempt, news.messages)
    await _receive_document_updates(attempt, news.updates)


async def _receive_messages(attempt: LegAttempt, told: Sequence[TaskMessage]) -> None:
    """Each thing that this agent has not heard, oldest first, as a message of its own: redacted, else word for word.
    What it has heard stands in its transcript: so nothing is said twice, and what is taken back is said again.
    """
    desk, run, known = attempt.desk, attempt.request.run, list_received_message_numbers(attempt.effective_messages)
    for telling in told:
        if telling.number not in known:
            words = await desk.store.get_text(telling.text, run.scope)
            (redacted,) = await desk.redactor.redact([words], TextDestination.CONTRACT, run.tenant)
            attempt.notices.extend(build_redaction_notes(redacted))
            attempt.add(build_transcript_message(attempt.transcript.next_message_id, telling.number, redacted.text))


async def render_task_sections(row: TaskRow, store: Store, redactor: Redactor) -> Sequence[SafeMarkup]:
    """What was asked, and of which documents, each in its tag: called as agents know them, else not redacted.

    Raises StoreError, RedactionFailed.
    """
    listed = await store.list_documents(row.ref.task_id, row.ref.scope)
    return render_task_parts(row.request, await build_document_listing(listed, redactor, row.ref.tenant))


async def render_task_with_messages(ref: TaskRef, store: Store, redactor: Redactor) -> str:
    """The task in one tag, then what people have told it. Raises as `render_task_sections` does."""
    task = await render_task_sections(await store.get_task(ref.task_id, ref.scope), store, redactor)
    told = await render_task_messages(store, ref.scope)
    return "\n".join(filter(None, [wrap_untrusted("task", *task), told]))


async def render_task_messages(store: Store, task: TaskScope) -> SafeMarkup | None:
    """All of it in one tag, for whoever is asked once and has no turns: oldest first, not redacted. None without any.

    Raises StoreError.
    """
    words = [await store.get_text(telling.text, task) for telling in await store.list_task_messages(task.task_id, task)]
    return wrap_untrusted("told_meanwhile", *words) if words else None


MAX_LISTED_DOCUMENTS = 20
"""So many documents are named; list_documents names them all."""
MAX_LISTED_CHANGES = 8
"""And so many places in each."""
_HEAD = (
    "The documents of the task have changed. This says which; it asks for nothing new. Tools give the new versions. "
    "Read again what you rely on: line numbers may be others now, and what was found before rests on the old versions."
)


async def _receive_document_updates(attempt: LegAttempt, updates: Sequence[RecordedDocumentsUpdate]) -> None:
    """One message of all that has changed since the last one, if anything has."""
    desk, run = attempt.desk, attempt.request.run
    known = max((message.updates for message in attempt.effective_messages), default=0)
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
    (redacted,) = await desk.redactor.redact([text], TextDestination.CONTRACT, run.tenant)
    attempt.notices.extend(build_redaction_notes(redacted))
    told = build_platform_message(attempt.transcript.next_message_id, redacted.text)
    attempt.add(told.replace(updates=fresh[-1].number))


async def _line(change: DocumentChange, shown: Document, store: Store, reader: TaskScope) -> str:
    name = sanitize_line(shown.name)
    match change.kind:
        case "added":
            return f"- added: {name} ({shown.lines} lines)"
        case "removed":
            return f"- removed: {name}"
        case "changed":
            before, after = [
                (await store.get_text(blob, reader)).splitlines() for blob in (change.before, change.after)
            ]
            return f"- changed: {name} ({await asyncio.to_thread(_places, before, after)}; {shown.lines} lines now)"


def _places(before: Sequence[str], after: Sequence[str]) -> str:
    places = [str(place) for place in find_changed_lines(before, after)]
    more = [f"and {len(places) - MAX_LISTED_CHANGES} more places"] if len(places) > MAX_LISTED_CHANGES else []
    return ", ".join([*places[:MAX_LISTED_CHANGES], *more]) or "white space at ends of lines"
