"""What an agent has handed in, as lines that another agent reads."""

from waystation.domain.work import Analysis, Deliverable, Finding, Findings, Note, ReportDraft, findings_from_notes


def result_lines(deliverable: Deliverable | None, notes: tuple[Note, ...]) -> list[str]:
    """Claims with their citations first, then what stayed open. Of an agent that was stopped there are its notes."""
    match deliverable:
        case None:
            return [*map(_claim, findings_from_notes(notes).findings)]
        case Findings():
            return [*map(_claim, deliverable.findings), *(f"open: {text}" for text in deliverable.open_questions)]
        case Analysis():
            return [
                *(f"conclusion: {_claim(conclusion)}" for conclusion in deliverable.conclusions),
                *(f"contradiction: {text}" for text in deliverable.contradictions),
                *(f"gap: {text}" for text in deliverable.gaps),
            ]
        case ReportDraft():
            return [section.markdown for section in deliverable.sections]


def _claim(finding: Finding) -> str:
    return " ".join([finding.claim, *finding.citations])
