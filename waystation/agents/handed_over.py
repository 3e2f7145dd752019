"""What the agents of a task have handed over so far, step by step."""

from dataclasses import dataclass

from waystation.domain.plan import Plan
from waystation.domain.work import Analysis, Findings, ReportDraft, findings_from_notes
from waystation.ports import TaskStore, WorkStore


@dataclass(frozen=True)
class HandedOver:
    """By the steps of the newest plan, in its order."""

    plan: Plan
    draft: ReportDraft
    analysis: Analysis | None
    findings: dict[str, Findings]
    """By step id: what was handed in as findings, and what the others that have handed in nothing have noted."""


async def handed_over(task_id: str, tasks: TaskStore, work: WorkStore) -> HandedOver:
    """Raises StoreError."""
    plan = await tasks.plan(task_id) or Plan(steps=())
    draft, analysis, findings = ReportDraft(), None, dict[str, Findings]()
    for step in plan.steps:
        run_id = f"{task_id}/{step.id}"
        match await work.deliverable(run_id):
            case ReportDraft() as written:
                draft = written
            case Analysis() as weighed:
                analysis = weighed
            case Findings() as found:
                findings[step.id] = found
            case None:
                findings[step.id] = findings_from_notes(await work.notes(task_id, run_id))
    return HandedOver(plan, draft, analysis, findings)
