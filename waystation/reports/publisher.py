"""Builds a task's report, checks its citations against the documents, stores it, and adds the results to memory."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from waystation.agents.citation_checker import CitationChecker, CitationCheckResult
from waystation.agents.deliverables import Finding, ReportDraft, check_criteria
from waystation.agents.person_questions import QUESTIONS_NOTE, find_person_questions, merge_person_questions
from waystation.agents.ports import TranscriptReader
from waystation.agents.redaction import load_task_redactor
from waystation.agents.tools.submissions import (
    DeliverableSource,
    TaskDeliverables,
    load_task_deliverables,
    render_finding,
)
from waystation.documents.citations import (
    FailedCitation,
    iter_cited_claims,
    parse_sentence_mark,
    render_unsupported_sentence_mark,
)
from waystation.documents.cited_sentences import MarkedText, SentenceCheck, mark_sentences
from waystation.documents.descriptions import MAX_HEAD_LINES, DocumentDescription, describe_document
from waystation.documents.documents import get_earlier_versions
from waystation.documents.ports import DocumentReader, DocumentStore, DocumentUpdateReader
from waystation.documents.support_verdicts import SupportVerdict
from waystation.kernel.clock import Clock
from waystation.kernel.errors import TextNotFoundError, UnknownTask
from waystation.kernel.refs import TaskRef
from waystation.kernel.value import Value
from waystation.memory.indexing import DrainResult, OutboxDrainer
from waystation.memory.passage_builder import (
    TaskResults,
    build_result_passages,
    find_unindexed_documents,
    make_results_run_id,
)
from waystation.memory.ports import ResultPassageOutbox
from waystation.planning.plan import PERSON_EDIT_REASON
from waystation.privacy.policy import TextDestination
from waystation.privacy.ports import Redactor
from waystation.reports.changes import compare_reports, render_report_changes
from waystation.reports.cited_sentences import is_above_answer
from waystation.reports.markdown import sanitize_markdown
from waystation.reports.report import (
    MAX_LISTED_DOCUMENTS,
    CitedSource,
    FaultList,
    ReportAppendix,
    ReportParts,
    SentenceCounts,
    StepFindings,
    count_recognised_citations,
    describe_faulty_citations,
    insert_after_title,
    render_document_versions,
    render_oversight_lines,
    render_procedure_lines,
    render_questions_section,
    render_report,
    render_sentence_remarks,
    render_skipped_section,
    render_sources_section,
    render_unindexed_section,
    render_written_part,
)
from waystation.reports.sentence_judge import JudgedSentenceList
from waystation.security.untrusted import sanitize_line
from waystation.tasks.ports import CostReader, TaskRepository
from waystation.tasks.progress import TRUNCATION_NOTE
from waystation.tasks.state import TaskState
from waystation.tasks.task import ReportVersion, ReusedWork, TaskPhase, TaskProgress, TaskRow
from waystation.tasks.view import TaskView, select_shown_version

REDACTED_REMARK = "the cited lines lack some words of this sentence; the words are not shown, because they are redacted"
"""Replaces what the lines of a sentence lack if it would quote them."""


class ResultStore(DeliverableSource, DocumentReader, ResultPassageOutbox, Protocol):
    """Results of a task, and their passages on the way to memory."""


@dataclass(frozen=True)
class ReportIndexer:
    """Brings a task's report and findings into memory.

    The passages of a task's results replace those of an earlier end of the task, from before a rewind.
    """

    store: ResultStore
    redactor: Redactor
    outbox_drainer: OutboxDrainer
    clock: Clock

    async def enqueue_results(self, ref: TaskRef, written: str, blob: str, reused: ReusedWork | None) -> None:
        """Add the passages of a report and of its task's findings to the outbox, except those taken over from another
        task.

        Raises:
            RedactionFailed: a text could not be redacted.
            StoreError: the store did not do its part.
        """
        there = await load_task_deliverables(ref.scope, self.store)
        found = [
            (step, render_finding(finding))
            for step, finding in _findings(there)
            if reused is None or step not in reused.agents
        ]
        texts = [written, *(said for _, said in found)]
        redactor = await load_task_redactor(self.redactor, self.store, ref.scope)
        report, *said = [one.text for one in await redactor.redact(texts, TextDestination.COMPRESSED, ref.tenant)]
        steps = (step for step, _ in found)
        results = TaskResults(ref=ref, report=report, blob=blob, findings=tuple(zip(steps, said, strict=True)))
        await self.store.commit_result_passages(ref, build_result_passages(results, self.clock()))

    async def drain_results(self, task_id: str) -> DrainResult:
        """Write the waiting passages to memory. If memory is down, they continue to wait."""
        return await self.outbox_drainer.drain(make_results_run_id(task_id))


def _findings(there: TaskDeliverables) -> list[tuple[str, Finding]]:
    found = [(step, finding) for step, findings in there.findings.items() for finding in findings.findings]
    weighed = [(step, conclusion) for step, analysis in there.analyses.items() for conclusion in analysis.conclusions]
    return [*found, *weighed]


class PublishedReport(Value):
    """A stored report."""

    report: str
    """Content hash of the report."""
    version: ReportVersion
    citations: int
    failed: int
    partial_reason: str = ""
    """Why the task is partial although its work is complete; empty if it is not."""


class ComposedReport(Value):
    """A report that is not stored yet."""

    markdown: str
    citations: int
    failed: int
    faults: str
    """Why it cannot be called done: its failed citations and unsupported sentences, in words; empty if there are none.
    """
    agent_text: str
    """The part that agents wrote."""
    is_empty: bool
    """Whether no agent has noted, found or written anything."""


class _MarkedReport(NamedTuple):
    """A written part whose sentences are checked and marked."""

    text: MarkedText
    counts: SentenceCounts
    unsupported: tuple[SentenceCheck, ...]
    """The sentences with numbers, by number from 1."""


def _mark_sentences(checked: CitationCheckResult, question: str, judged: JudgedSentenceList) -> _MarkedReport:
    text = checked.markdown
    found = [one for one in checked.check_sentences(question) if not is_above_answer(text, one.located.mark_start)]
    checks, decided = judged.decide(found, checked)
    unsupported = tuple(one for one in checks if one.missing)
    counts = _count_sentences(checks).replace(judged=decided)
    return _MarkedReport(mark_sentences(text, checks), counts, unsupported)


def _hide_redacted_details(remarks: str, written: str, unsupported: Sequence[SentenceCheck]) -> str:
    """Replace the remarks that quote words of a sentence that are redacted in the report.

    A part of a private value, such as the digits of a key, is not recognised as one where it stands alone.
    """
    lines = remarks.splitlines()
    for located in iter_cited_claims(written):
        number = parse_sentence_mark(written[located.mark_start : located.mark_end])
        if number and number <= len(lines) and not unsupported[number - 1].has_details_in(located.claim.text):
            lines[number - 1] = f"- {render_unsupported_sentence_mark(number)} {REDACTED_REMARK}"
    return "\n".join(lines)


def _count_sentences(checks: Sequence[SentenceCheck]) -> SentenceCounts:
    verdicts = Counter(one.verdict for one in checks)
    return SentenceCounts(
        supported=verdicts[SupportVerdict.SUPPORTED],
        unsupported=verdicts[SupportVerdict.NOT_SUPPORTED],
        undecided=verdicts[SupportVerdict.CANNOT_TELL],
        with_absent_details=sum(one.has_absent_details for one in checks),
    )


class ReportStore(
    TaskRepository, DeliverableSource, DocumentStore, DocumentUpdateReader, CostReader, TranscriptReader, Protocol
):
    """What a report is made of, and where it is stored."""


@dataclass(frozen=True)
class ReportPublisher:
    """Publishes reports. Repeating it gives the same report."""

    store: ReportStore
    redactor: Redactor
    check: CitationChecker
    report_indexer: ReportIndexer | None = None
    """Brings report and findings into memory, for later tasks."""

    async def publish(
        self, ref: TaskRef, progress: TaskProgress, state: TaskState | None = None, at: datetime | None = None
    ) -> PublishedReport:
        """Store the report next to earlier ones, how the task ended, and the state from which a rewind continues.

        Raises:
            RedactionFailed: a text could not be redacted.
            StoreError: the store did not do its part.
        """
        composed = await self.compose(ref, progress)
        report = await self.store.put_text(composed.markdown, ref.scope)
        kept = await self.store.put_text(state.model_dump_json(), ref.scope) if state is not None else None
        if self.report_indexer is not None and not composed.is_empty:
            await self.report_indexer.enqueue_results(ref, composed.agent_text, report, progress.reused)
            await self.report_indexer.drain_results(ref.task_id)
        short = ""
        if composed.faults and progress.phase is TaskPhase.DONE:
            short = f"The report is partial: {composed.faults}."
            progress = progress.replace(phase=TaskPhase.PARTIAL, notes=(*progress.notes, short))
        earlier = progress.reports
        version = ReportVersion(number=len(earlier) + 1, report=report, phase=progress.phase, stored_at=at)
        await self.store.save_task_progress(
            ref.task_id, progress.replace(report=report, reports=(*earlier, version), state=kept)
        )
        made, failed = composed.citations, composed.failed
        return PublishedReport(report=report, version=version, citations=made, failed=failed, partial_reason=short)

    async def compose(self, ref: TaskRef, progress: TaskProgress) -> ComposedReport:
        """Build the report from what agents have submitted so far; a draft while the task is not over.

        Nothing is stored.

        Raises:
            RedactionFailed: a text could not be redacted.
            StoreError: the store could not be read.
        """
        parts = await self._parts(ref, progress)
        checked = await self.check.check(ref, render_written_part(parts))
        judged = await self._load_judged_sentences(ref, progress)
        marked = await asyncio.to_thread(_mark_sentences, checked, parts.question, judged)
        sections = [
            marked.text.markdown,
            await asyncio.to_thread(render_sources_section, checked.valid_citations, checked.documents),
            "\n\n".join(
                filter(None, (render_skipped_section(parts.skipped_items), await self._not_remembered(ref, progress)))
            ),
            await self._oversight(ref, progress),
            await self._render_questions(ref, progress),
            await self._criteria(ref, parts.draft, checked),
            await self._render_request_line(ref),
            await self._render_versions(ref, checked),
            render_sentence_remarks(marked.text.remarks),
        ]
        cited = [failed.citation.document for failed in checked.failed_citations]
        names = [*cited, *(one.name for one in parts.procedures)]
        shown = [
            await asyncio.to_thread(checked.document_names.replace_private_names, text) for text in (*sections, *names)
        ]
        redacted = await self._redacted(shown, ref.tenant)
        written, sources, not_used, oversight, questions, criteria, asked, versions, remarks, *names = redacted
        remarks = await asyncio.to_thread(_hide_redacted_details, remarks, written, marked.unsupported)
        failed = tuple(
            FailedCitation(citation=one.citation.replace(document=name), reason=one.reason)
            for one, name in zip(checked.failed_citations, names[: len(cited)], strict=True)
        )
        count = len(checked.faults)
        apparatus = ReportAppendix(
            questions=questions,
            checked=count,
            failed=failed,
            quotations=sum(citation.quotation is not None for citation in checked.faults),
            sentences=marked.counts,
            remarks=remarks,
            recognised=await asyncio.to_thread(count_recognised_citations, checked.valid_citations, checked.documents),
            criteria=criteria,
            requests=asked,
            versions=versions,
            sources=sources,
            not_used=not_used,
            oversight=oversight,
            procedures=render_procedure_lines(names[len(cited) :], [one.digest for one in parts.procedures]),
            answers=tuple(
                (await self.store.list_task_charges(ref.task_id, ref.scope)).cost_breakdown.model_substitutions
            ),
        )
        return ComposedReport(
            markdown=await self._prepend_changes(ref, render_report(parts, written, apparatus)),
            citations=count,
            failed=len(failed),
            faults=describe_faulty_citations(len(failed), count, marked.counts),
            agent_text=written,
            is_empty=parts.is_empty,
        )

    async def _prepend_changes(self, ref: TaskRef, composed: str) -> str:
        """Return the sanitised report, preceded by the changes since an earlier report if its task asks for them.

        Sanitised because claims are cut out of what made them harmless, and the earlier report was redacted by older
        rules.
        """
        report = await asyncio.to_thread(sanitize_markdown, composed)
        since = (await self.store.get_task(ref.task_id, ref.scope)).request.since
        if since is None:
            return report
        session = ref.scope.get_recall_scope("session")
        try:
            last = (await self.store.get_task(since, session)).progress
            version = select_shown_version(last.report_versions) if last is not None else None
            before = await self.store.get_text(version.report, session) if version is not None else None
        except (UnknownTask, TextNotFoundError):
            before = None
        if before is None:
            return insert_after_title(
                report,
                f"> **What changed since last time** is unknown, because the earlier task {since} no longer has a "
                "report.",
            )
        found = await asyncio.to_thread(compare_reports, before, report)
        (part,) = await self._redacted([render_report_changes(found, since, ref.task_id)], ref.tenant)
        return await asyncio.to_thread(sanitize_markdown, insert_after_title(report, part))

    async def _parts(self, ref: TaskRef, progress: TaskProgress) -> ReportParts:
        row = await self.store.get_task(ref.task_id, ref.scope)
        there = await load_task_deliverables(ref.scope, self.store)
        titles = {step.id: step.title for step in there.plan.steps}
        return ReportParts(
            question=await self._question(row),
            draft=there.draft,
            findings=tuple(StepFindings(title=titles[step], findings=found) for step, found in there.findings.items()),
            analysis=there.analysis,
            task=TaskView.from_progress(progress),
            offline=row.config.offline,
            skipped_items=row.request.skipped_items,
            procedures=row.request.procedures,
            senders=tuple(message.by for message in progress.task_messages),
        )

    async def _question(self, row: TaskRow) -> str:
        """Return the whole question, redacted like its truncated title: both are shown in the same places."""
        (redacted,) = await self.redactor.redact([row.request.question], TextDestination.TITLE, row.ref.tenant)
        return redacted.text

    async def _not_remembered(self, ref: TaskRef, progress: TaskProgress) -> str:
        """Render the list of unindexed documents for a task that has delivered: other tasks index no documents."""
        if progress.phase not in {TaskPhase.DONE, TaskPhase.PARTIAL}:
            return ""
        most = (await self.store.get_task(ref.task_id, ref.scope)).config.remembered_characters
        return render_unindexed_section(
            find_unindexed_documents(await self.store.list_documents(ref.task_id, ref.scope), most)
        )

    async def _oversight(self, ref: TaskRef, progress: TaskProgress) -> str:
        """Render revisions of the plan with their reasons, and faults that reviews found and that still exist."""
        reasons = {
            version.number: version.reason for version in await self.store.list_plan_versions(ref.task_id, ref.scope)
        }
        last = progress.reviews[-1] if progress.reviews else None
        found = last.faults_hash if last is not None and not last.sent_back else None
        faults = FaultList() if found is None else await self._faults(found, ref)
        changed = "- A person changed the plan before its steps began" if PERSON_EDIT_REASON in reasons.values() else ""
        made = (*progress.reviews, *progress.judgements)
        told = render_oversight_lines(progress.revisions, reasons, made, faults)
        return "\n".join(filter(None, [changed, told]))

    async def _render_questions(self, ref: TaskRef, progress: TaskProgress) -> str:
        """Render the questions that agents asked. Transcripts are read only if a run's note says that there are any."""
        if not {QUESTIONS_NOTE, TRUNCATION_NOTE}.intersection(progress.notes):
            return ""
        run_ids = await self.store.list_run_ids(ref.task_id, ref.scope)
        asked = {
            run_id.removeprefix(f"{ref.task_id}/"): find_person_questions(
                await self.store.load_transcript(run_id, ref.scope)
            )
            for run_id in run_ids
        }
        return render_questions_section(merge_person_questions(asked))

    async def _criteria(self, ref: TaskRef, draft: ReportDraft, checked: CitationCheckResult) -> str:
        """Check the criteria of a report that its writer has submitted."""
        accept = (await self.store.get_task(ref.task_id, ref.scope)).request.accept if draft.title else ()
        failing = {str(one.citation) for one in checked.failed_citations}
        met = check_criteria(accept, draft, {*map(str, checked.valid_citations)} - failing, failing)
        return "\n".join(one.markdown_line for one in met)

    async def _render_request_line(self, ref: TaskRef) -> str:
        """Render who asked and when."""
        row = await self.store.get_task(ref.task_id, ref.scope)
        return f"- Submitted by tenant {sanitize_line(row.request.tenant)}, {row.submitted_at:%Y-%m-%d %H:%M} UTC"

    async def _render_versions(self, ref: TaskRef, checked: CitationCheckResult) -> str:
        """Render which versions of which documents and web pages are cited, with their titles and dates."""
        earlier = get_earlier_versions(await self.store.list_document_updates(ref.task_id, ref.scope))
        names = dict.fromkeys(one.document for one in checked.valid_citations)
        described = {
            name: describe_document(checked.documents[name].list_lines(1, MAX_HEAD_LINES))
            for name in [*names][:MAX_LISTED_DOCUMENTS]
        }
        are_pages = any(name not in checked.task_documents for name in names)
        pages = await self.check.list_web_pages(ref.scope) if are_pages else {}
        cited: dict[str, CitedSource] = {}
        for name in names:
            about = described.get(name, DocumentDescription())
            if (document := checked.task_documents.get(name)) is not None:
                about = about._replace(date=about.date or document.date)
                version = 1 + len(earlier.get(document.name, ()))
                is_private = checked.document_names.shown_names.get(document.name) != document.name
                file_name = "" if is_private else document.file_name
                cited.setdefault(document.name, CitedSource(document.name, document.blob, about, file_name, version))
            elif (page := pages.get(name)) is not None:
                cited.setdefault(page.url, CitedSource(page.url, page.blob, about, retrieved=page.retrieved))
        return render_document_versions([*cited.values()])

    async def _load_judged_sentences(self, ref: TaskRef, progress: TaskProgress) -> JudgedSentenceList:
        """Load the newest verdicts of a model on the report's sentences; none if no model was asked."""
        found = progress.judgements[-1].verdicts_hash if progress.judgements else None
        if found is None:
            return JudgedSentenceList()
        return JudgedSentenceList.model_validate_json(await self.store.get_text(found, ref.scope))

    async def _faults(self, found: str, ref: TaskRef) -> FaultList:
        """Load the faults of a review."""
        return FaultList.model_validate_json(await self.store.get_text(found, ref.scope))

    async def _redacted(self, sections: list[str], tenant: str) -> list[str]:
        """Redact the sections as a model would see them: they name files, sheets and attachments."""
        return [redacted.text for redacted in await self.redactor.redact(sections, TextDestination.REPORT, tenant)]
