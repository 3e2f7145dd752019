"""Applies people's edits to agents' contexts, between two legs or, for a rewind, after the task's end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from waystation.agents.citation_feedback import SubmissionChecker
from waystation.agents.compaction_request import CompactionRequest, EditOutcome, EditRequest, ManualCompaction
from waystation.agents.compactor import Compactor
from waystation.agents.ports import LoadedRun, RunRepository
from waystation.agents.redaction import load_task_redactor
from waystation.agents.roles import load_role_prompt
from waystation.agents.tools.submissions import extract_deliverable
from waystation.agents.transcript_rewind import build_transcript_rewind
from waystation.context.compaction import CompactionOutcome, CompactionStatus
from waystation.context.history import build_restore_record, get_effective_transcript, with_record
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Record, Transcript
from waystation.context.units import build_pin_record, build_unpin_record
from waystation.documents.ports import TextStore
from waystation.kernel.errors import BadInput, StoreError, TextNotFoundError
from waystation.kernel.refs import RunRef
from waystation.memory.indexing import OutboxDrainer
from waystation.privacy.policy import TextDestination
from waystation.tasks.continuation import TaskRewind, build_reopened_state
from waystation.tasks.ports import AuditRepository, TaskRepository
from waystation.tasks.signals import MAX_INSTRUCTIONS_CHARACTERS
from waystation.tasks.state import TaskState
from waystation.tasks.task import TaskPhase


@dataclass(frozen=True)
class TranscriptRewinder:
    """Rewinds conversations. Every step is idempotent: a record of the same ID is committed once."""

    store: RunRepository
    outbox_drainer: OutboxDrainer
    submission_checker: SubmissionChecker

    async def rewind(self, run: RunRef, message_id: str, record_id: str, *, keep: bool) -> None:
        """Commit the rewind and delete its passages from memory.

        Raises BadInput, StaleFenceError, VersionConflict, StoreError.
        """
        await self.store.open_run(run)
        transcript = await self.store.load_transcript(run.run_id, run.scope)
        if not any(record.id == record_id for record in transcript.records):
            rewind = build_transcript_rewind(transcript, message_id, record_id, keep=keep)
            stays = get_effective_transcript(with_record(transcript, rewind.record)).messages
            deliverable = extract_deliverable(stays)
            if deliverable is not None:
                deliverable = await self.submission_checker.normalise(deliverable, run.task_ref)
            rewind = rewind.replace(deliverable=deliverable)
            fence = await self.store.acquire_fence(run.run_id)
            await self.store.commit_rewind(fence, transcript.version, rewind)
        await self.outbox_drainer.drain(run.run_id)

    async def rewind_to_start(self, run: RunRef, record_id: str) -> None:
        """Rewind the whole conversation, if there is one. Raises as `rewind` does."""
        transcript = await self.store.load_transcript(run.run_id, run.scope)
        if said := get_effective_transcript(transcript).messages:
            await self.rewind(run, said[0].id, record_id, keep=False)


class EndedTaskStore(TaskRepository, TextStore, AuditRepository, Protocol):
    """Tasks that have ended, with their states and audit trails."""


@dataclass(frozen=True)
class TaskRewinder:
    """Reopens finished tasks. Idempotent, as every rewind is."""

    store: EndedTaskStore
    rewinder: TranscriptRewinder

    async def reopen_task(self, asked: TaskRewind) -> TaskState:
        """Reopen a finished task: rewind one agent, and reset those that built on it.

        Returns:
            The state from which the task continues.

        Raises:
            BadInput: The rewind is not possible.
            StoreError: The task has not ended, or the store does not answer.
        """
        row = await self.store.get_task(asked.ref.task_id, asked.ref.scope)
        if row.progress is None or row.progress.state is None:
            raise StoreError(f"{asked.ref.task_id} has not ended: there is no state to continue from yet")
        ended = TaskState.model_validate_json(await self.store.get_text(row.progress.state, row.ref.scope))
        state, edit = build_reopened_state(ended, asked, row.config.agent_budget)
        await self.rewinder.rewind(state.runs[asked.agent].run, asked.message, edit.id, keep=asked.keep_message)
        for shelved in state.suspended_runs.values():
            await self.rewinder.rewind_to_start(shelved.run, f"{asked.agent}-{edit.id}")
        await self.store.add_audit_entry(asked.ref.task_id, edit)
        # Delivered reports stay readable, even if the reopened task comes to nothing.
        reports = row.progress.report_versions
        await self.store.save_task_progress(
            asked.ref.task_id, row.progress.replace(phase=TaskPhase.WORKING, reports=reports)
        )
        return state.replace(reports=reports)


@dataclass(frozen=True)
class ContextEditor:
    """Applies edits. An impossible edit changes nothing, and the outcome says why."""

    compactor: Compactor

    async def edit(self, request: EditRequest) -> EditOutcome:
        """Apply an edit; a retry finds what an earlier attempt committed and commits nothing more.

        Raises ModelUnavailable (a retry may help), RedactionFailed, StoreError.
        """
        edit = request.edit
        try:
            match edit.action:
                case "compact":
                    return await self._compact(request)
                case "pin":
                    loaded = await self._opened(request)
                    log, policy = loaded.transcript, request.config.compaction_policy
                    measure = await self._measure(request, loaded)
                    await self._commit(
                        request, log, lambda: build_pin_record(log, edit.message, policy, measure, edit.id)
                    )
                case "unpin":
                    log = (await self._opened(request)).transcript
                    await self._commit(request, log, lambda: build_unpin_record(log, edit.message, edit.id))
                case "rewind":
                    await self._rewinder.rewind(request.run, edit.message, edit.id, keep=edit.keep_message)
                case "restore":
                    log = (await self._opened(request)).transcript
                    await self._commit(request, log, lambda: build_restore_record(log, edit.compaction, edit.id))
        except BadInput as refused:
            return EditOutcome(state="refused", reason=str(refused))
        return EditOutcome(state="done")

    async def _compact(self, request: EditRequest) -> EditOutcome:
        compaction = CompactionRequest(
            run=request.run,
            config=request.config,
            limit=request.limit,
            known_records=request.known_records,
            skip_summary=request.skip_summary,
        )
        instructions = await self._instructions(request)
        manual = ManualCompaction(edit_id=request.edit.id, instructions=instructions, token_ratio=request.token_ratio)
        outcome = await self.compactor.compact(compaction, manual)
        done = outcome.status.made_room
        return EditOutcome(state="done" if done else "refused", reason=_became(outcome), compaction=outcome)

    async def _instructions(self, request: EditRequest) -> str:
        """Return the instructions, redacted for the summariser. Raises BadInput if they are missing or too long."""
        if not request.edit.instructions:
            return ""
        desk = self.compactor.deps
        try:
            text = await desk.store.get_text(request.edit.instructions, request.run.scope)
        except TextNotFoundError:
            raise BadInput(
                "the instructions are not in the task's store: send them with `waystation compact --instructions`, "
                "which stores them"
            ) from None
        if len(text) > MAX_INSTRUCTIONS_CHARACTERS:
            raise BadInput(
                f"the instructions have {len(text):,} characters; the maximum is {MAX_INSTRUCTIONS_CHARACTERS:,}"
            )
        redactor = await load_task_redactor(desk.redactor, desk.store, request.run.scope)
        (redacted,) = await redactor.redact([text], TextDestination.WISH, request.run.tenant)
        return redacted.text

    async def _opened(self, request: EditRequest) -> LoadedRun:
        transcripts = self.compactor.deps.store
        await transcripts.open_run(request.run)
        return await transcripts.load_run(request.run)

    async def _commit(self, request: EditRequest, transcript: Transcript, record_of: Callable[[], Record]) -> None:
        """Commit the edit's record once. Raises BadInput, StaleFenceError, VersionConflict."""
        transcripts, run_id = self.compactor.deps.store, request.run.run_id
        if any(record.id == request.edit.id for record in transcript.records):
            return  # without a fence: taking one would take it from the following leg
        record = record_of()
        fence = await transcripts.acquire_fence(run_id)
        await transcripts.commit_compaction(fence, transcript.version, record, (), None)

    @property
    def _rewinder(self) -> TranscriptRewinder:
        desk = self.compactor.deps
        return TranscriptRewinder(desk.store, self.compactor.outbox_drainer, desk.submission_checker)

    async def _measure(self, request: EditRequest, loaded: LoadedRun) -> TokenEstimator:
        toolbox = await self.compactor.deps.build_agent_toolbox(request.run, request.config, loaded.transcript, loaded)
        return TokenEstimator(
            fixed_tokens=toolbox.estimate_prompt_overhead(load_role_prompt(request.run.role)),
            token_ratio=request.token_ratio,
        )


_WORDS = {
    CompactionStatus.COMPRESSED: "compacted",
    CompactionStatus.OFFLOADED: "large results are shown in part",
    CompactionStatus.MASKED: "old results are hidden and can be read again",
    CompactionStatus.NOOP: "there is nothing to compact",
    CompactionStatus.NOOP_LITTLE_TO_GAIN: "not compacted: a compaction would save too little",
    CompactionStatus.FAILED_EMPTY_SUMMARY: "not compacted: the summary was empty",
    CompactionStatus.FAILED_INFLATED: "not compacted: the summary was longer than what it would replace",
    CompactionStatus.FAILED_CHECK: "not compacted: the summary did not pass the checks",
    CompactionStatus.FAILED_SUMMARISER: "not compacted: no summary could be made",
    CompactionStatus.FAILED_TOKEN_COUNT: "not compacted: the tokens of the context could not be counted",
    CompactionStatus.TRUNCATED: "the oldest part of the conversation is hidden, without a summary",
    CompactionStatus.CANNOT_FIT: "not compacted: what must be kept does not fit the context window",
    CompactionStatus.BLOCKED: "not compacted: the hook before the compaction failed",
}


def _became(outcome: CompactionOutcome) -> str:
    sizes = (
        f"; {outcome.tokens_before:,} tokens before, {outcome.tokens_after:,} after" if outcome.status.made_room else ""
    )
    words = f"{_WORDS[outcome.status]}{sizes}"
    return " ".join((f"{words}.", *outcome.notes)) if outcome.notes else words
