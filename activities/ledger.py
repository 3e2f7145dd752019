"""Bookkeeping of tasks: what runs have cost, and the audit trail. It needs nothing but the store."""

from temporalio import activity

from activities.failures import reported
from waystation.domain.budget import RunTotals
from waystation.domain.compaction.edit import ContextEdit
from waystation.domain.leg import RunRef
from waystation.domain.task import Approval, Refusal
from waystation.domain.value import Value
from waystation.ports import TaskStore, TranscriptStore


class AuditRequest(Value):
    """Requests, answers, refused answers and edits, to be kept in this order."""

    task_id: str
    approvals: tuple[Approval, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    edits: tuple[ContextEdit, ...] = ()


class LedgerActivities:
    """What was spent, and who decided what."""

    def __init__(self, transcripts: TranscriptStore, tasks: TaskStore) -> None:
        self._transcripts, self._tasks = transcripts, tasks

    @activity.defn(name="ReadTotals")
    async def totals(self, run: RunRef) -> RunTotals:
        """What a run has cost: settles a leg that failed, timed out or was cancelled."""
        with reported():
            return await self._transcripts.totals(run.run_id)

    @activity.defn(name="TakeOverRun")
    async def take_over(self, run: RunRef) -> RunTotals:
        """What a run has cost, and will have: an attempt that nobody has stopped yet writes nothing from here on."""
        with reported():
            await self._transcripts.open_run(run)
            await self._transcripts.take_fence(run.run_id)
            return await self._transcripts.totals(run.run_id)

    @activity.defn(name="RecordAudit")
    async def audit(self, request: AuditRequest) -> None:
        """Keep what was asked, answered, refused and edited. Kept twice, it stands once."""
        with reported():
            for entry in (*request.approvals, *request.refusals, *request.edits):
                await self._tasks.audit(request.task_id, entry)
