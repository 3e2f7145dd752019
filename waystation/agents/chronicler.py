"""Brings what a task came to into memory, so that later tasks of its session find it: its report, and its findings."""

from dataclasses import dataclass

from waystation.agents.archive import Archive, Drained
from waystation.agents.document_names import NamingRedactor
from waystation.agents.handed_over import HandedOver, handed_over
from waystation.agents.tools.results import claim_line
from waystation.domain.fork import Reused
from waystation.domain.privacy import Place
from waystation.domain.results import Results, result_passages, results_run
from waystation.domain.task import TaskRef
from waystation.domain.work import Finding
from waystation.ports import Clock, DocumentStore, Redactor, ResultOutbox, TaskStore, WorkStore


@dataclass(frozen=True)
class Chronicler:
    """Chronicles tasks. Doing it again, after a rewind too, leaves what holds then and nothing else."""

    tasks: TaskStore
    documents: DocumentStore
    work: WorkStore
    outbox: ResultOutbox
    redactor: Redactor
    archive: Archive
    clock: Clock

    async def keep(self, ref: TaskRef, written: str, blob: str, reused: Reused | None) -> None:
        """Let the passages of a report and of its task's findings wait for memory; what was taken over from another
        task is there already. Raises RedactionFailed, StoreError.
        """
        there = await handed_over(ref.reader, self.tasks, self.work)
        found = [
            (step, claim_line(finding))
            for step, finding in _findings(there)
            if reused is None or step not in reused.agents
        ]
        texts = [written, *(said for _, said in found)]
        redactor = NamingRedactor(self.redactor, self.documents, ref.reader)
        report, *said = [one.text for one in await redactor.redact(texts, Place.COMPRESSED, ref.tenant)]
        steps = (step for step, _ in found)
        results = Results(ref=ref, report=report, blob=blob, findings=tuple(zip(steps, said, strict=True)))
        await self.outbox.commit_results(ref, result_passages(results, self.clock()))

    async def bring_in(self, task_id: str) -> Drained:
        """Those that wait into memory. Where it is down, they wait on."""
        return await self.archive.drain(results_run(task_id))


def _findings(there: HandedOver) -> list[tuple[str, Finding]]:
    found = [(step, finding) for step, findings in there.findings.items() for finding in findings.findings]
    weighed = [(step, conclusion) for step, analysis in there.analyses.items() for conclusion in analysis.conclusions]
    return [*found, *weighed]
