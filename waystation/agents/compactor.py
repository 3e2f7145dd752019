"""`CompressAndStoreContext`: redacts, summarises the whole middle, validates, commits, embeds, and stores in Qdrant.

Everything before the commit leaves the old view intact; everything after it can be repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from waystation.agents.call_ledger import MeteredModel
from waystation.agents.compaction_request import CompactionContext, CompactionRequest, ManualCompaction
from waystation.agents.deliverables import Deliverable, Note, ReportDraft
from waystation.agents.ports import LoadedRun
from waystation.agents.prompt_sections import extract_assignment
from waystation.agents.redaction import build_task_redactor
from waystation.agents.roles import AgentDeps, load_role_prompt
from waystation.agents.summariser import Summariser, SummaryInput, SummaryModel, SummaryResult
from waystation.agents.tools.documents import (
    FILE_READING_TOOLS,
    ListDocumentsTool,
    ReadDocumentTool,
    ReadSkillFileTool,
    ReadSkillTool,
    SearchDocumentsTool,
)
from waystation.agents.tools.submissions import render_outline_section
from waystation.agents.tools.web import FetchPageTool
from waystation.budgets.budget import CallCostBound
from waystation.context.compaction import CompactionEvent, CompactionOutcome, CompactionStatus
from waystation.context.constraints import STEP_ITEM_PREFIX, find_rereadable_identifiers
from waystation.context.history import build_model_view, with_record
from waystation.context.pipeline import (
    CannotFitDecision,
    CompactionDecision,
    MaskDecision,
    NoopDecision,
    SummariseDecision,
    TruncateDecision,
    get_summary_skip_reason,
    select_next_stage,
)
from waystation.context.policy import CompactionPolicy
from waystation.context.ports import CompactionHook
from waystation.context.restoration import with_recent_files
from waystation.context.strategies import STRATEGIES
from waystation.context.summary_validator import AcceptedSummary, RejectedSummary
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Charge, Compaction, Fence, SummaryFailureRecord, SummaryRecord, Transcript
from waystation.kernel.amount import Amount
from waystation.kernel.clock import Clock
from waystation.kernel.errors import HookFailed
from waystation.kernel.text import format_count
from waystation.memory.indexing import OutboxDrainer
from waystation.memory.passage_builder import build_sources_line, make_passages
from waystation.memory.passages import Passage
from waystation.models.profiles import find_worst_rates
from waystation.privacy.policy import TextDestination
from waystation.privacy.ports import Redactor


@dataclass(frozen=True)
class CompactionHooks:
    """Hooks of a worker, called before and after each compaction. Failures are reported."""

    before: CompactionHook | None = None
    after: CompactionHook | None = None
    blocking: bool = False
    """Whether a compaction is skipped if the hook before it fails."""

    async def call_hook(self, event: CompactionEvent) -> str | None:
        """Call the hook for the event. Return how it failed in one sentence, or None."""
        hook = self.before if event.event == "before" else self.after
        if hook is None:
            return None
        try:
            await hook.call(event)
        except HookFailed as failed:
            return f"A hook failed: {failed}."
        return None


NO_HOOKS = CompactionHooks()
DOCUMENT_TOOLS = frozenset(
    tool.name
    for tool in (
        ListDocumentsTool,
        SearchDocumentsTool,
        ReadDocumentTool,
        ReadSkillTool,
        ReadSkillFileTool,
        FetchPageTool,
    )
)
"""Tools that show text of documents and stored pages: what stands there can be read again. Not `query_table`, whose
results are computed.
"""
NO_MONEY_FOR_SUMMARY = (
    "No summary was requested: the agent needs the rest of its budget for its own calls. Messages were hidden instead."
)


def describe_unfinished_result(result: Deliverable | None, notes: Sequence[Note]) -> str:
    """Return one line for the summary's ledger on what the store has of the step's unfinished result; not redacted."""
    kept = [f"{format_count(len(notes), 'note')} (read_notes shows them)"] if notes else []
    if isinstance(result, ReportDraft) and result.sections:
        kept.append(f"sections {', '.join(f'“{section.heading}”' for section in result.sections)}")
    if isinstance(result, ReportDraft) and result.missing_sections:
        missing = "; ".join(map(render_outline_section, result.missing_sections))
        kept.append(f"an outline with these sections still to be written: {missing}")
    return f"{STEP_ITEM_PREFIX}its result is not submitted yet; kept so far: {'; '.join(kept) or 'nothing'}"


@dataclass(frozen=True)
class Compactor:
    """Compacts agents' contexts."""

    model: MeteredModel
    deps: AgentDeps
    outbox_drainer: OutboxDrainer
    clock: Clock
    hooks: CompactionHooks = NO_HOOKS

    async def compact(self, request: CompactionRequest, manual: ManualCompaction | None = None) -> CompactionOutcome:
        """Compact once. A retry finds the record of an earlier attempt and makes no second one.

        Args:
            request: What to compact.
            manual: A person's request: only a summary is tried; one that is rejected leaves everything as it was.

        Raises:
            ModelUnavailable: The summariser failed; a retry may help.
            RedactionFailed: A text could not be redacted.
            StoreError: The store does not answer.
        """
        loaded = await self.deps.store.load_run(request.run)
        toolbox = await self.deps.build_agent_toolbox(request.run, request.config, loaded.transcript, loaded)
        wanted = CompactionContext(
            request, manual, toolbox.estimate_prompt_overhead(load_role_prompt(request.run.role))
        )
        return await CompactionJob(self, wanted, toolbox.rereadable_tool_names, loaded).run_once()


@dataclass
class CompactionJob:
    """One compaction in progress."""

    compactor: Compactor
    context: CompactionContext
    rereadable: frozenset[str]
    """Names of the tools whose old results may be masked."""
    loaded: LoadedRun
    """The run as this attempt found it."""
    transcript: Transcript = field(init=False)
    """The conversation, which grows by what the compaction commits."""
    notes: list[str] = field(default_factory=list[str])
    redactions: int = 0
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """What the check before commit did to the summary."""
    before_hook_called: bool = False
    """Whether the hook before it was called, by this attempt or the one being reported: the hook after
    it then follows.
    """
    fence: Fence = field(init=False)
    """Acquired only if there is work to do, so that a late attempt at finished work takes it from no other."""

    def __post_init__(self) -> None:
        """Begin with the conversation as it was loaded."""
        self.transcript = self.loaded.transcript

    async def run_once(self) -> CompactionOutcome:
        """Compact, or report an earlier attempt's outcome; then call the hook for after the compaction."""
        if self._done is None:
            store, run = self.compactor.deps.store, self.request.run
            self.fence, version = await store.take_over(run)
            if version != self.transcript.version:  # an earlier attempt has written since it was loaded
                self.loaded = await store.load_run(run)
                self.transcript = self.loaded.transcript
        outcome = await self._carried_out()
        if not self.before_hook_called or outcome.status is CompactionStatus.BLOCKED:
            return outcome
        failed = await self.compactor.hooks.call_hook(self._event.with_outcome(outcome))
        return outcome.replace(notes=(*outcome.notes, failed)) if failed else outcome

    async def _carried_out(self) -> CompactionOutcome:
        if (record := self._done) is not None:
            return await self._already_done(record)
        if self.context.manual is not None:
            return await self._summarise_now(self.context.manual)
        return await self._make_room(skip_summary=not self.context.allows_summary)

    async def _summarise_now(self, manual: ManualCompaction) -> CompactionOutcome:
        """Summarise as a person requested, or change nothing."""
        rung = select_next_stage(self.transcript, self._measure, self._policy, frozenset())
        if self.request.skip_summary:
            return await self._nothing(rung, CompactionStatus.FAILED_SUMMARISER)
        if not isinstance(rung, SummariseDecision):
            return await self._nothing(rung, CompactionStatus.NOOP_LITTLE_TO_GAIN)
        return await self._blocked(rung) or await self._summarise(
            rung.replace(compaction_id=f"{rung.compaction_id}-{manual.edit_id}")
        )

    async def _make_room(self, *, skip_summary: bool) -> CompactionOutcome:
        """Apply the next stage that helps; if a summary fails, go on to the stage after it."""
        rung = select_next_stage(
            self.transcript, self._measure, self._policy, self.rereadable, skip_summary=skip_summary
        )
        if not isinstance(rung, NoopDecision | CannotFitDecision) and (blocked := await self._blocked(rung)):
            return blocked
        match rung:
            case NoopDecision():
                return await self._nothing(rung, rung.status)
            case CannotFitDecision():
                self.notes.append(rung.text)
                return await self._nothing(rung, CompactionStatus.CANNOT_FIT)
            case MaskDecision():
                await self._commit(rung.record, (), None)
                covered = len(rung.record.tool_use_ids)
                return await self._outcome(rung.record.id, CompactionStatus.MASKED, rung, rung.tokens_after, covered, 0)
            case TruncateDecision():
                return await self._truncate(rung)
            case SummariseDecision():
                return await self._summarise_unless_hopeless(rung)

    async def _blocked(self, rung: CompactionDecision) -> CompactionOutcome | None:
        """Call the hook for before any stage. Return the outcome if a failure blocks the compaction."""
        if self.before_hook_called:
            return None
        self.before_hook_called = True
        failed = await self.compactor.hooks.call_hook(self._event)
        if failed is None:
            return None
        self.notes.append(failed)
        return await self._nothing(rung, CompactionStatus.BLOCKED) if self.compactor.hooks.blocking else None

    async def _summarise_unless_hopeless(self, rung: SummariseDecision) -> CompactionOutcome:
        """Skip a summary that is likely to fail as the last one did."""
        if why := get_summary_skip_reason(self.transcript) or self._too_little_for_both(rung):
            self.notes.append(why)
        elif self.request.skip_summary:
            await self._remember(rung, None)
        else:
            return await self._summarise(rung)
        return await self._make_room(skip_summary=True)

    def _too_little_for_both(self, rung: SummariseDecision) -> str:
        """Return why no summary is made if the budget left does not cover it and the agent's next call.

        Hiding messages costs nothing.
        """
        request, terms = self.request, self.request.config
        left = request.limit.remaining_after(self.loaded.totals.spent)
        day = self.compactor.clock().date()

        def worst_case(model: str, prompt: int, reply: int) -> Amount:
            return CallCostBound(
                input_tokens=prompt, rates=find_worst_rates(model, prompt, day, terms.prices)
            ).compute_worst_case(reply)

        summary = worst_case(terms.condense_model, rung.middle_tokens, rung.summary_tokens[1])
        work = worst_case(terms.model, terms.target, terms.min_reply_tokens)
        return "" if left.can_cover(summary + work) else NO_MONEY_FOR_SUMMARY

    async def _already_done(self, record: Compaction) -> CompactionOutcome:
        """Report the record of an earlier attempt as that attempt would have, and store its passages."""
        self.before_hook_called = True
        self.transcript = self.context.get_transcript_before(self.transcript)
        rung = NoopDecision(
            tokens_before=self._measure.request(build_model_view(self.transcript)), status=CompactionStatus.NOOP
        )
        after = self._measure.request(build_model_view(with_record(self.transcript, record)))
        if record.type == "masked":
            return await self._outcome(record.id, CompactionStatus.MASKED, rung, after, len(record.tool_use_ids), 0)
        if record.type == "summarised":
            self.added, self.removed = record.added, record.removed
        passages = self._passages(record.id, await self._redacted(record.covered, *await self._load_work()))
        status = CompactionStatus.TRUNCATED if record.type == "truncated" else CompactionStatus.COMPRESSED
        return await self._outcome(record.id, status, rung, after, len(record.covered), len(passages))

    async def _summarise(self, rung: SummariseDecision) -> CompactionOutcome:
        result, notes = await self._load_work()
        middle = (await self._redacted(rung.covered_ids, result, notes)).replace(
            note_citations=await self._cite_notes(rung, notes),
            rereadable=find_rereadable_identifiers(self.transcript.messages, rung.middle, DOCUMENT_TOOLS),
        )
        work = await self._work()
        model = SummaryModel(self.compactor.model, self._redactor, self.request, self.fence, self._policy, work)
        summariser = Summariser(model, self.transcript)
        passages = self._passages(rung.compaction_id, middle)
        made = await summariser.summarise(rung, middle, build_sources_line(middle.messages, passages))
        self.transcript = summariser.transcript
        self.redactions += summariser.redactions
        self.notes.extend(made.notes)
        match made.verdict:
            case RejectedSummary() | None:
                return await self._not_summarised(rung, made)
            case AcceptedSummary() as accepted:
                record = self._record(rung, accepted)
                self.added, self.removed = accepted.added, accepted.removed
                await self._commit(record, passages, made.charge)
                after = self._measure.request(build_model_view(self.transcript))
                return await self._outcome(
                    record.id, CompactionStatus.COMPRESSED, rung, after, len(rung.covered_ids), len(passages)
                )

    async def _cite_notes(self, rung: SummariseDecision, notes: Sequence[Note]) -> tuple[str, ...]:
        """Return the citations of the notes that were taken in the middle, each once, redacted."""
        run = self.request.run
        taken = {f"{run.run_id}/{call.id}" for message in rung.middle for call in message.tool_uses}
        cited = list(dict.fromkeys(note.citation for note in notes if note.id in taken))
        redacted = await self._redactor.redact(cited, TextDestination.COMPRESSED, run.tenant) if cited else ()
        return tuple(one.text for one in redacted if not one.redaction_failed)

    async def _work(self) -> str:
        """Return what the agent works on, as the summariser may see it."""
        (redacted,) = await self._redactor.redact(
            [extract_assignment(self.transcript)], TextDestination.COMPRESSED, self.request.run.tenant
        )
        return "" if redacted.redaction_failed else redacted.text

    async def _not_summarised(self, rung: SummariseDecision, result: SummaryResult) -> CompactionOutcome:
        """Leave everything unchanged if a person asked; otherwise store the failure and apply the next stage."""
        bad = result.verdict if isinstance(result.verdict, RejectedSummary) else None
        if bad is not None:
            self.notes.append(f"A summary was rejected ({bad.status}, {bad.rule}): {bad.message}.")
        if self.context.manual is None:
            if result.model_called:
                await self._remember(rung, result.charge)
            return await self._make_room(skip_summary=True)
        if result.charge is not None:
            await self.compactor.deps.store.commit_charge(self.fence, result.charge)
        return await self._nothing(rung, bad.status if bad else CompactionStatus.FAILED_SUMMARISER)

    async def _remember(self, rung: SummariseDecision, charge: Charge | None) -> None:
        """Store that this middle could not be summarised, in one transaction with the cost: no retry pays again."""
        record = SummaryFailureRecord(id=f"{rung.compaction_id}-failed", middle_tokens=rung.middle_tokens)
        await self._commit(record, (), charge)

    def _record(self, rung: SummariseDecision, accepted: AcceptedSummary) -> SummaryRecord:
        policy = self._policy
        record = rung.build_record(accepted, policy.strategy)
        if not STRATEGIES[policy.strategy].restores_files:
            return record
        return with_recent_files(self.transcript, record, FILE_READING_TOOLS, self._measure, policy.target)

    async def _truncate(self, rung: TruncateDecision) -> CompactionOutcome:
        """Hide messages and archive them in the same transaction: nothing is hidden that cannot be found again."""
        record = rung.record
        middle = await self._redacted(record.covered, *await self._load_work())
        passages = self._passages(record.id, middle)
        await self._commit(record, passages, None)
        return await self._outcome(
            record.id, CompactionStatus.TRUNCATED, rung, rung.tokens_after, len(record.covered), len(passages)
        )

    async def _load_work(self) -> tuple[Deliverable | None, tuple[Note, ...]]:
        run = self.request.run
        return await self.compactor.deps.store.load_work(run.run_id, run.scope)

    async def _redacted(
        self, covered: tuple[str, ...], result: Deliverable | None, notes: Sequence[Note]
    ) -> SummaryInput:
        """Redact the messages to hide for summariser and memory."""
        hidden = set(covered)
        messages = tuple(
            message for message in build_model_view(self.transcript) if message.id in hidden and not message.is_status
        )
        undone = describe_unfinished_result(result, notes)
        middle, spans = await SummaryInput.build_redacted(
            messages, self.transcript, self._redactor, self.request.run.tenant, undone
        )
        self.redactions += spans
        self.notes.extend(middle.notes)
        return middle

    def _passages(self, record_id: str, middle: SummaryInput) -> tuple[Passage, ...]:
        """Build passages of the messages that are hidden for the first time: earlier summaries already have theirs."""
        said = {message.id for message in self.transcript.messages}
        messages = [message for message in middle.messages if message.id in said]
        return make_passages(self.request.run, record_id, messages, middle.texts, self.compactor.clock())

    async def _commit(
        self, record: Compaction | SummaryFailureRecord, passages: tuple[Passage, ...], charge: Charge | None
    ) -> None:
        transcripts = self.compactor.deps.store
        await transcripts.commit_compaction(self.fence, self.transcript.version, record, passages, charge)
        self.transcript = with_record(self.transcript, record)

    async def _nothing(self, rung: CompactionDecision, status: CompactionStatus) -> CompactionOutcome:
        """Return an outcome without a committed record."""
        return await self._outcome("", status, rung, rung.tokens_before, covered=0, passages=0)

    async def _outcome(
        self,
        record_id: str,
        status: CompactionStatus,
        rung: CompactionDecision,
        tokens_after: int,
        covered: int,
        passages: int,
    ) -> CompactionOutcome:
        run_id = self.request.run.run_id
        drained = await self.compactor.outbox_drainer.drain(run_id)
        if drained.waiting:
            self.notes.append("Memory does not answer; passages wait in the store and are added to memory later.")
        return CompactionOutcome(
            compaction_id=record_id,
            status=status,
            strategy=self._policy.strategy,
            tokens_before=rung.tokens_before,
            tokens_after=tokens_after,
            covered=covered,
            passages=passages,
            passages_waiting=min(passages, drained.waiting),
            redactions=self.redactions,
            added=self.added,
            removed=self.removed,
            totals=await self.compactor.deps.store.get_run_usage(run_id),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    @property
    def request(self) -> CompactionRequest:
        """The activity's request."""
        return self.context.request

    @property
    def _done(self) -> Compaction | None:
        return self.context.find_committed_compaction(self.transcript)

    @property
    def _redactor(self) -> Redactor:
        return build_task_redactor(self.compactor.deps.redactor, self.loaded.documents)

    @property
    def _policy(self) -> CompactionPolicy:
        return self.context.resolve_policy(self.transcript)

    @property
    def _measure(self) -> TokenEstimator:
        return self.context.build_estimator(self.transcript)

    @property
    def _event(self) -> CompactionEvent:
        run, policy = self.request.run, self._policy
        return CompactionEvent(
            event="before",
            trigger="auto" if self.context.manual is None else "manual",
            task=run.task_id,
            agent=run.step_id,
            run_id=run.run_id,
            strategy=policy.strategy,
            tokens=self._measure.request(build_model_view(self.transcript)),
            window=policy.window,
        )
