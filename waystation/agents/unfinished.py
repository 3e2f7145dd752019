"""What an agent run has still to hand in: the summary of its conversation says so, whatever a model makes of it."""

from waystation.domain.compaction.open_work import STEP
from waystation.domain.leg import RunRef
from waystation.domain.work import ReportDraft
from waystation.ports import WorkStore


async def unfinished(work: WorkStore, run: RunRef) -> str:
    """One line for the ledger, not redacted: what the store has of the step's result so far."""
    notes, result = (
        await work.notes(run.task_id, run.reader, run.run_id),
        await work.deliverable(run.run_id, run.reader),
    )
    kept = [f"{len(notes):,} notes (read_notes)"] if notes else []
    if isinstance(result, ReportDraft) and result.sections:
        kept.append(f"sections {', '.join(f'“{section.heading}”' for section in result.sections)}")
    return f"{STEP}its result is not handed in; kept so far: {' and '.join(kept) or 'nothing'}"
