"""Puts a task's report together, checks its citations against the documents, and stores it."""

from dataclasses import dataclass

from waystation.domain.citations import FailedCitation, citations_in, fault
from waystation.domain.plan import Plan
from waystation.domain.report import ReportParts, StepFindings, whole_report, written_part
from waystation.domain.task import TaskProgress, TaskRef
from waystation.domain.value import Value
from waystation.domain.work import Analysis, Findings, ReportDraft, findings_from_notes
from waystation.ports import DocumentStore, TaskStore, WorkStore


class Published(Value):
    """A stored report."""

    report: str
    """Content hash."""
    citations: int
    failed: int


@dataclass(frozen=True)
class Publisher:
    """Publishes reports. Doing it again gives the same report."""

    tasks: TaskStore
    documents: DocumentStore
    work: WorkStore

    async def publish(self, ref: TaskRef, progress: TaskProgress) -> Published:
        """Store the report and how the task ended."""
        parts = await self._parts(ref, progress)
        written = written_part(parts)
        citations = citations_in(written)
        lines = await self._cited_lines(ref, {citation.document for citation in citations})
        faults = ((citation, fault(citation, lines)) for citation in citations)
        failed = tuple(FailedCitation(citation=citation, reason=reason) for citation, reason in faults if reason)
        report = await self.documents.put_text(whole_report(parts, written, len(citations), failed))
        await self.tasks.finish(ref.task_id, progress.model_copy(update={"report": report}))
        return Published(report=report, citations=len(citations), failed=len(failed))

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
        )

    async def _cited_lines(self, ref: TaskRef, names: set[str]) -> dict[str, list[str]]:
        documents = await self.documents.documents(ref.task_id)
        cited = [document for document in documents if document.name in names]
        return {document.name: (await self.documents.get_text(document.blob)).splitlines() for document in cited}
