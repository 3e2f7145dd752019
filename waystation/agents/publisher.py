"""Puts a task's report together, checks its citations against the documents, and stores it."""

from dataclasses import dataclass

from waystation.domain.citations import FailedCitation, citations_in, fault
from waystation.domain.plan import Plan
from waystation.domain.redaction import Scope
from waystation.domain.report import (
    Apparatus,
    ReportParts,
    StepFindings,
    not_used_section,
    sources_section,
    whole_report,
    written_part,
)
from waystation.domain.task import TaskProgress, TaskRef
from waystation.domain.task_state import TaskState
from waystation.domain.value import Value
from waystation.domain.work import Analysis, Findings, ReportDraft, findings_from_notes
from waystation.ports import DocumentStore, Redactor, TaskStore, WorkStore


class Published(Value):
    """A stored report."""

    report: str
    """Content hash."""
    citations: int
    failed: int


class Composed(Value):
    """A report that is stored nowhere yet."""

    markdown: str
    citations: int
    failed: int
    nothing: bool
    """No agent has noted, found or written anything."""


@dataclass(frozen=True)
class Publisher:
    """Publishes reports. Doing it again gives the same report."""

    tasks: TaskStore
    documents: DocumentStore
    work: WorkStore
    redactor: Redactor
    """Without one the report lists neither sources nor what was not used: both name files, sheets and attachments."""

    async def publish(self, ref: TaskRef, progress: TaskProgress, state: TaskState | None = None) -> Published:
        """Store the report, how the task ended, and the state that a rewind goes on from.

        Raises RedactionFailed, StoreError.
        """
        composed = await self.compose(ref, progress)
        report = await self.documents.put_text(composed.markdown)
        kept = await self.documents.put_text(state.model_dump_json()) if state is not None else None
        await self.tasks.finish(ref.task_id, progress.model_copy(update={"report": report, "state": kept}))
        return Published(report=report, citations=composed.citations, failed=composed.failed)

    async def compose(self, ref: TaskRef, progress: TaskProgress) -> Composed:
        """The report over what agents have handed over so far; a draft while the task is not over. Nothing is stored.

        Raises RedactionFailed, StoreError.
        """
        parts = await self._parts(ref, progress)
        written = written_part(parts)
        citations = citations_in(written)
        lines = await self._cited_lines(ref, {citation.document for citation in citations})
        faults = {citation: fault(citation, lines) for citation in citations}
        failed = tuple(
            FailedCitation(citation=citation, reason=reason) for citation, reason in faults.items() if reason
        )
        holding = [citation for citation, reason in faults.items() if reason is None]
        sections = [sources_section(holding, lines), not_used_section(parts.left_out)]
        sources, not_used = await self._redacted(sections, ref.tenant)
        apparatus = Apparatus(checked=len(citations), failed=failed, sources=sources, not_used=not_used)
        return Composed(
            markdown=whole_report(parts, written, apparatus),
            citations=len(citations),
            failed=len(failed),
            nothing=parts.nothing,
        )

    async def _parts(self, ref: TaskRef, progress: TaskProgress) -> ReportParts:
        row = await self.tasks.task(ref.task_id)
        plan = await self.tasks.plan(ref.task_id) or Plan(steps=())
        draft, analysis, findings = ReportDraft(), None, list[StepFindings]()
        for step in plan.steps:
            run_id = f"{ref.task_id}/{step.id}"
            match await self.work.deliverable(run_id):
                case ReportDraft() as written:
                    draft = written
                case Analysis() as weighed:
                    analysis = weighed
                case Findings() as found:
                    findings.append(StepFindings(title=step.title, findings=found))
                case None:
                    noted = findings_from_notes(await self.work.notes(ref.task_id, run_id))
                    findings.append(StepFindings(title=step.title, findings=noted))
        return ReportParts(
            question=row.title,
            draft=draft,
            findings=tuple(findings),
            analysis=analysis,
            progress=progress,
            offline=row.terms.offline,
            left_out=row.request.left_out,
        )

    async def _redacted(self, sections: list[str], tenant: str) -> list[str]:
        """As a model would see them: the agents' own words went through the same."""
        return [redacted.text for redacted in await self.redactor.redact(sections, Scope.MODEL, tenant)]

    async def _cited_lines(self, ref: TaskRef, names: set[str]) -> dict[str, list[str]]:
        documents = await self.documents.documents(ref.task_id)
        cited = [document for document in documents if document.name in names]
        return {document.name: (await self.documents.get_text(document.blob)).splitlines() for document in cited}
