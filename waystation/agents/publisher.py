"""Puts a task's report together, checks its citations against the documents, and stores it."""

from dataclasses import dataclass

from waystation.agents.document_names import DocumentNames, document_names
from waystation.domain.citations import FailedCitation, citations_in, fault
from waystation.domain.documents import named
from waystation.domain.plan import Plan
from waystation.domain.privacy import Place
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
from waystation.ports import DocumentStore, Redactor, TaskStore, Vault, WorkStore


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
    vault: Vault | None = None
    """Where names of documents in citations are found again, of which agents have seen placeholders."""

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
        documents = await self.documents.documents(ref.task_id)
        called = await document_names(documents, self.redactor, ref.tenant, self.vault)
        lines = await self._cited_lines(called, {citation.document for citation in citations})
        faults = {citation: fault(citation, lines) for citation in citations}
        failing = {citation: reason for citation, reason in faults.items() if reason}
        sections = [
            written,
            sources_section([citation for citation in citations if citation not in failing], lines),
            not_used_section(parts.left_out),
        ]
        names = [citation.document for citation in failing]
        shown = [called.shown_in(text) for text in (*sections, *names)]
        written, sources, not_used, *names = await self._redacted(shown, ref.tenant)
        failed = tuple(
            FailedCitation(citation=citation.model_copy(update={"document": name}), reason=reason)
            for (citation, reason), name in zip(failing.items(), names, strict=True)
        )
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
        """As a model would see them: they name files, sheets and attachments."""
        return [redacted.text for redacted in await self.redactor.redact(sections, Place.REPORT, tenant)]

    async def _cited_lines(self, called: DocumentNames, names: set[str]) -> dict[str, list[str]]:
        """By name as cited, for those that are there."""
        cited = {name: named(await called.original(name), called.documents) for name in sorted(names)}
        return {
            name: (await self.documents.get_text(document.blob)).splitlines()
            for name, document in cited.items()
            if document is not None
        }
