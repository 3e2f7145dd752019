"""Puts a task's report together, checks its citations against the documents, and stores it."""

import asyncio
from dataclasses import dataclass
from datetime import datetime

from waystation.agents.checked import CitationCheck
from waystation.agents.chronicler import Chronicler
from waystation.agents.handed_over import handed_over
from waystation.agents.procedures import given_procedures
from waystation.domain.citations import FailedCitation
from waystation.domain.errors import TextMissing
from waystation.domain.privacy import Place
from waystation.domain.remembering import beyond
from waystation.domain.report import (
    Apparatus,
    ReportParts,
    StepFindings,
    not_remembered_section,
    not_used_section,
    procedure_lines,
    sources_section,
    whole_report,
    written_part,
)
from waystation.domain.report_check import Faults
from waystation.domain.report_oversight import oversight_lines
from waystation.domain.task import ReportVersion, TaskPhase, TaskProgress, TaskRef, TaskRow
from waystation.domain.task_state import TaskState
from waystation.domain.value import Value
from waystation.markdown import inert
from waystation.ports import DocumentStore, Redactor, TaskStore, WorkStore


class Published(Value):
    """A stored report."""

    report: str
    """Content hash."""
    version: ReportVersion | None = None
    """None from workers of earlier releases."""
    citations: int
    failed: int


class Composed(Value):
    """A report that is stored nowhere yet."""

    markdown: str
    citations: int
    failed: int
    written: str
    """What agents wrote of it."""
    nothing: bool
    """No agent has noted, found or written anything."""


@dataclass(frozen=True)
class Publisher:
    """Publishes reports. Doing it again gives the same report."""

    tasks: TaskStore
    documents: DocumentStore
    work: WorkStore
    redactor: Redactor
    check: CitationCheck
    chronicler: Chronicler | None = None
    """Who brings report and findings into memory, for later tasks."""

    async def publish(
        self, ref: TaskRef, progress: TaskProgress, state: TaskState | None = None, at: datetime | None = None
    ) -> Published:
        """Store the report beside earlier ones, how the task ended, and the state that a rewind goes on from.

        Raises RedactionFailed, StoreError.
        """
        composed = await self.compose(ref, progress)
        report = await self.documents.put_text(composed.markdown, ref.reader)
        kept = await self.documents.put_text(state.model_dump_json(), ref.reader) if state is not None else None
        if self.chronicler is not None and not composed.nothing:
            await self.chronicler.keep(ref, composed.written, report, progress.reused)
            await self.chronicler.bring_in(ref.task_id)
        earlier = progress.reports
        version = ReportVersion(number=len(earlier) + 1, report=report, phase=progress.phase, stored_at=at)
        ended = {"report": report, "reports": (*earlier, version), "state": kept}
        await self.tasks.finish(ref.task_id, progress.model_copy(update=ended))
        return Published(report=report, version=version, citations=composed.citations, failed=composed.failed)

    async def compose(self, ref: TaskRef, progress: TaskProgress) -> Composed:
        """The report over what agents have handed over so far; a draft while the task is not over. Nothing is stored.

        Raises RedactionFailed, StoreError.
        """
        parts = await self._parts(ref, progress)
        written = written_part(parts)
        checked = await self.check.check(ref, written)
        sections = [
            written,
            await asyncio.to_thread(sources_section, checked.holding, checked.documents),
            "\n\n".join(filter(None, (not_used_section(parts.left_out), await self._not_remembered(ref, progress)))),
            await self._oversight(ref, progress),
        ]
        cited = [failed.citation.document for failed in checked.failed]
        names = [*cited, *(one.name for one in parts.procedures)]
        shown = [checked.called.shown_in(text) for text in (*sections, *names)]
        written, sources, not_used, oversight, *names = await self._redacted(shown, ref.tenant)
        failed = tuple(
            FailedCitation(citation=one.citation.model_copy(update={"document": name}), reason=one.reason)
            for one, name in zip(checked.failed, names[: len(cited)], strict=True)
        )
        count = len(checked.faults)
        apparatus = Apparatus(
            checked=count,
            failed=failed,
            sources=sources,
            not_used=not_used,
            oversight=oversight,
            procedures=procedure_lines(names[len(cited) :], [one.digest for one in parts.procedures]),
        )
        return Composed(
            markdown=inert(whole_report(parts, written, apparatus)),
            citations=count,
            failed=len(failed),
            written=written,
            nothing=parts.nothing,
        )

    async def _parts(self, ref: TaskRef, progress: TaskProgress) -> ReportParts:
        row = await self.tasks.task(ref.task_id, ref.reader)
        there = await handed_over(ref.reader, self.tasks, self.work)
        titles = {step.id: step.title for step in there.plan.steps}
        return ReportParts(
            question=await self._question(row),
            draft=there.draft,
            findings=tuple(StepFindings(title=titles[step], findings=found) for step, found in there.findings.items()),
            analysis=there.analysis,
            progress=progress,
            offline=row.terms.offline,
            left_out=row.request.left_out,
            procedures=await given_procedures(row, self.documents),
        )

    async def _question(self, row: TaskRow) -> str:
        """The whole question, redacted as its title is, which is cut: both stand where everybody looks."""
        (redacted,) = await self.redactor.redact([row.request.question], Place.TITLE, row.ref.tenant)
        return redacted.text

    async def _not_remembered(self, ref: TaskRef, progress: TaskProgress) -> str:
        """Of a task that has delivered: others remember no documents."""
        if progress.phase not in {TaskPhase.DONE, TaskPhase.PARTIAL}:
            return ""
        most = (await self.tasks.task(ref.task_id, ref.reader)).terms.remembered_characters
        return not_remembered_section(beyond(await self.documents.documents(ref.task_id, ref.reader), most))

    async def _oversight(self, ref: TaskRef, progress: TaskProgress) -> str:
        """What became of the plan and why; what reviews found, and is still so."""
        reasons = {
            version.number: version.reason for version in await self.tasks.plan_versions(ref.task_id, ref.reader)
        }
        last = progress.reviews[-1] if progress.reviews else None
        found = last.found if last is not None and not last.sent_back else None
        faults = Faults() if found is None else await self._faults(found, ref)
        return oversight_lines(progress.revisions, reasons, progress.reviews, faults)

    async def _faults(self, found: str, ref: TaskRef) -> Faults:
        """Those of a review; none where an earlier release kept them, of which nobody knows whose they are."""
        try:
            return Faults.model_validate_json(await self.documents.get_text(found, ref.reader))
        except TextMissing:
            return Faults()

    async def _redacted(self, sections: list[str], tenant: str) -> list[str]:
        """As a model would see them: they name files, sheets and attachments."""
        return [redacted.text for redacted in await self.redactor.redact(sections, Place.REPORT, tenant)]
