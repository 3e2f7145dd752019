"""`CompressAndStoreContext`: redact, summarise the whole middle, check, commit, embed, store in Qdrant.

Everything up to the commit leaves the old view whole; everything after it can be done again.
"""

import json
from dataclasses import dataclass, field

from waystation.agents.archive import Archive
from waystation.agents.condensing import CondensingModel
from waystation.agents.metered import MeteredModel
from waystation.agents.roles import Desk, prompt
from waystation.agents.summariser import Middle, Summariser
from waystation.agents.tools.read_document import FILE_READERS
from waystation.domain.compaction.apply import with_record
from waystation.domain.compaction.gate import Accepted, Rejected
from waystation.domain.compaction.ladder import CannotFit, Mask, Nothing, Rung, Summarise, Truncate, next_rung
from waystation.domain.compaction.outcome import CompactionOutcome, Status
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.request import CompactionRequest
from waystation.domain.compaction.restored import recently_read, with_files
from waystation.domain.compaction.strategies import STRATEGIES
from waystation.domain.compaction.summary import summary_message
from waystation.domain.compaction.tokens import Measure, correction, fixed_tokens
from waystation.domain.compaction.view import view
from waystation.domain.memory import Passage
from waystation.domain.messages import Message
from waystation.domain.passages import make_passages
from waystation.domain.transcript import Compaction, Summarised, Transcript
from waystation.domain.turn import Charge, Fence
from waystation.ports import Clock


@dataclass(frozen=True)
class Condenser:
    """Makes room in agents' contexts."""

    model: MeteredModel
    desk: Desk
    archive: Archive
    clock: Clock

    async def compress(self, request: CompactionRequest) -> CompactionOutcome:
        """Make room once. A retry finds the record of an earlier attempt and makes no second one.

        Raises ModelUnavailable (the summariser; worth a retry), RedactionFailed, StoreError.
        """
        transcripts = self.desk.transcripts
        await transcripts.open_run(request.run)
        job = Job(condenser=self, request=request, transcript=await transcripts.load(request.run.run_id))
        return await job.once()


@dataclass
class Job:
    """One compaction under way."""

    condenser: Condenser
    request: CompactionRequest
    transcript: Transcript
    notes: list[str] = field(default_factory=list[str])
    redactions: int = 0
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """What the check before commit did to the summary."""
    fence: Fence = field(init=False)
    """Taken when there is something to do: a late attempt at what was done takes it away from nobody."""

    async def once(self) -> CompactionOutcome:
        """Make room, or report how an earlier attempt did."""
        if not self._is_done:
            transcripts, run_id = self.condenser.desk.transcripts, self.request.run.run_id
            self.fence = await transcripts.take_fence(run_id)
            self.transcript = await transcripts.load(run_id)
        if self._is_done:
            return await self._already_done()
        return await self.run(skip_summary=self.request.give_up_summary or not self.request.terms.auto_compact)

    async def run(self, *, skip_summary: bool) -> CompactionOutcome:
        """The next rung that helps; a summary that fails leads to the one after it."""
        rung = next_rung(self.transcript, self._measure, self._policy, self._rereadable, skip_summary=skip_summary)
        match rung:
            case Nothing():
                return await self._outcome("", rung.status, rung, rung.tokens_before, covered=0, passages=0)
            case CannotFit():
                self.notes.append(
                    f"These parts cannot be made smaller: system prompt and tools {rung.fixed:,} tokens, contract "
                    f"{rung.contract:,}, latest request {rung.latest:,}, pins {rung.pinned:,}; limit {rung.limit:,}."
                )
                return await self._outcome("", Status.CANNOT_FIT, rung, rung.tokens_before, covered=0, passages=0)
            case Mask():
                await self._commit(rung.record, (), None)
                covered = len(rung.record.tool_use_ids)
                return await self._outcome(rung.record.id, Status.MASKED, rung, rung.tokens_after, covered, 0)
            case Truncate():
                return await self._truncate(rung)
            case Summarise():
                return await self._summarise(rung)

    @property
    def _is_done(self) -> bool:
        return len(self.transcript.compactions) > self.request.known_records

    async def _already_done(self) -> CompactionOutcome:
        """An earlier attempt committed its record: report it as that attempt would have, and bring its passages in."""
        record = self.transcript.compactions[self.request.known_records]
        self.transcript = self._before
        rung = Nothing(tokens_before=self._measure.request(view(self._before)), status=Status.NOOP)
        after = self._measure.request(view(with_record(self._before, record)))
        if record.type == "masked":
            return await self._outcome(record.id, Status.MASKED, rung, after, len(record.tool_use_ids), 0)
        if record.type == "summarised":
            self.added, self.removed = record.added, record.removed
        passages = self._passages(record.id, await self._redacted(record.covered))
        status = Status.TRUNCATED if record.type == "truncated" else Status.COMPRESSED
        return await self._outcome(record.id, status, rung, after, len(record.covered), len(passages))

    async def _summarise(self, rung: Summarise) -> CompactionOutcome:
        middle = await self._redacted(rung.covered)
        desk = self.condenser.desk
        model = CondensingModel(self.condenser.model, desk.redactor, self.request, self.fence, self._policy)
        summariser = Summariser(model, self.transcript)
        result = await summariser.summarise(rung, middle)
        self.transcript = summariser.transcript
        self.redactions += summariser.redactions
        self.notes.extend(result.notes)
        match result.verdict:
            case Rejected() | None:
                if result.charge is not None:
                    await self.condenser.desk.transcripts.commit_charge(self.fence, result.charge)
                if bad := result.verdict:
                    self.notes.append(f"A summary was rejected ({bad.status}): {bad.rule}: {bad.message}.")
                return await self.run(skip_summary=True)
            case Accepted() as accepted:
                record = Summarised(
                    id=rung.compaction_id,
                    strategy=self._policy.strategy,
                    covered=rung.covered,
                    summary=summary_message(rung.compaction_id, accepted.text),
                    added=accepted.added,
                    removed=accepted.removed,
                )
                if STRATEGIES[self._policy.strategy].restores_files:
                    files = recently_read(self._originals(rung.covered), FILE_READERS)
                    record = with_files(self.transcript, record, files, self._measure, self._policy.target)
                self.added, self.removed = accepted.added, accepted.removed
                passages = self._passages(record.id, middle)
                await self._commit(record, passages, result.charge)
                after = self._measure.request(view(self.transcript))
                return await self._outcome(record.id, Status.COMPRESSED, rung, after, len(rung.covered), len(passages))

    async def _truncate(self, rung: Truncate) -> CompactionOutcome:
        """What is hidden is archived in the same transaction: nothing is hidden that cannot be found again."""
        record = rung.record
        middle = await self._redacted(record.covered)
        passages = self._passages(record.id, middle)
        await self._commit(record, passages, None)
        return await self._outcome(
            record.id, Status.TRUNCATED, rung, rung.tokens_after, len(record.covered), len(passages)
        )

    async def _redacted(self, covered: tuple[str, ...]) -> Middle:
        """The messages to hide as they may be shown to summariser and memory: everything private replaced."""
        hidden = set(covered)
        messages = tuple(message for message in view(self.transcript) if message.id in hidden)
        middle, spans = await Middle.redacted(
            messages, self.transcript, self.condenser.desk.redactor, self.request.run.tenant
        )
        self.redactions += spans
        return middle

    def _originals(self, covered: tuple[str, ...]) -> list[Message]:
        """The covered messages as they were said, without masks."""
        hidden = set(covered)
        return [message for message in self.transcript.messages if message.id in hidden]

    def _passages(self, record_id: str, middle: Middle) -> tuple[Passage, ...]:
        """Of messages that are hidden for the first time: earlier summaries have theirs already."""
        said = {message.id for message in self.transcript.messages}
        messages = [message for message in middle.messages if message.id in said]
        return make_passages(self.request.run, record_id, messages, middle.texts, self.condenser.clock())

    async def _commit(self, record: Compaction, passages: tuple[Passage, ...], charge: Charge | None) -> None:
        transcripts = self.condenser.desk.transcripts
        await transcripts.commit_compaction(self.fence, self.transcript.version, record, passages, charge)
        self.transcript = with_record(self.transcript, record)

    async def _outcome(
        self, record_id: str, status: Status, rung: Rung, tokens_after: int, covered: int, passages: int
    ) -> CompactionOutcome:
        run_id = self.request.run.run_id
        drained = await self.condenser.archive.drain(run_id)
        if drained.waiting:
            self.notes.append("Memory does not answer; passages wait in the store and are written later.")
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
            totals=await self.condenser.desk.transcripts.totals(run_id),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    @property
    def _policy(self) -> Policy:
        terms = self.request.terms
        policy = Policy(
            window=terms.window,
            strategy=terms.strategy,
            trigger=terms.trigger,
            target=terms.target,
            keep_last=terms.keep_last,
            primers=terms.primers,
            recents=terms.recents,
        )
        shown = view(self.transcript)
        return policy.for_crowd(self._measure.request(shown)) if terms.crowded(len(shown)) else policy

    @property
    def _measure(self) -> Measure:
        """Corrected as the leg's last request was, which was found too large."""
        toolbox = self.condenser.desk.toolbox(self.request.run.role)
        tools_json = json.dumps([spec.model_dump(mode="json") for spec in toolbox.specs])
        fixed = fixed_tokens(prompt(self.request.run.role), tools_json)
        estimated = Measure(fixed=fixed).request(view(self._before))
        return Measure(fixed=fixed, scale=correction(estimated, self.request.request_tokens))

    @property
    def _before(self) -> Transcript:
        """The transcript as the workflow knew it when it asked."""
        log = self.transcript
        if not self._is_done:
            return log
        unknown = log.records.index(log.compactions[self.request.known_records])
        return log.model_copy(update={"records": log.records[:unknown]})

    @property
    def _rereadable(self) -> frozenset[str]:
        return self.condenser.desk.toolbox(self.request.run.role).rereadable
