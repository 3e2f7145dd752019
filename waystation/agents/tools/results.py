"""What an agent has handed in, as lines that another agent reads."""

from collections.abc import Iterable
from typing import NamedTuple

from waystation.domain.ownership import OfTask
from waystation.domain.work import Analysis, Deliverable, Finding, Findings, Note, ReportDraft, findings_from_notes
from waystation.ports import WorkStore


class ResultLines(NamedTuple):
    """What an agent came to, and what it did not settle: each of them says of itself what it is."""

    claims: list[str]
    left_open: list[str]

    @property
    def lines(self) -> list[str]:
        """Claims with their citations first, then what stayed open."""
        return [*self.claims, *self.left_open]


def result_lines(deliverable: Deliverable | None, notes: Iterable[Note] = ()) -> ResultLines:
    """Of what was handed in. Of an agent that was stopped there are its notes."""
    match deliverable:
        case None:
            return ResultLines([*map(claim_line, findings_from_notes(notes).findings)], [])
        case Findings():
            claims = [*map(claim_line, deliverable.findings)]
            return ResultLines(claims, [f"open: {text}" for text in deliverable.open_questions])
        case Analysis():
            contradictions = [f"contradiction: {text}" for text in deliverable.contradictions]
            return ResultLines(
                [f"conclusion: {claim_line(conclusion)}" for conclusion in deliverable.conclusions],
                [*contradictions, *(f"gap: {text}" for text in deliverable.gaps)],
            )
        case ReportDraft():
            return ResultLines([section.markdown for section in deliverable.sections], [])


async def results_of(work: WorkStore, task: OfTask, agent: str) -> ResultLines:
    """Of one agent of the task. Raises StoreError."""
    run_id = f"{task.task_id}/{agent}"
    return result_lines(await work.deliverable(run_id, task), await work.notes(task.task_id, task, run_id))


def claim_line(finding: Finding) -> str:
    """A claim with its citations."""
    return " ".join([finding.claim, *finding.citations])
