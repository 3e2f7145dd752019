"""Activities at a task's end, and its audit."""

from temporalio import activity

from activities.failures import reported
from waystation.agents.publisher import Published, Publisher
from waystation.domain.task import Approval, Refusal, TaskProgress, TaskRef
from waystation.domain.value import Value
from waystation.ports import TaskStore


class PublishRequest(Value):
    """How the task ended."""

    ref: TaskRef
    progress: TaskProgress


class AuditRequest(Value):
    """Requests, answers and refused answers, to be kept in this order."""

    task_id: str
    approvals: tuple[Approval, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class ReportActivities:
    """Reports and the audit trail."""

    def __init__(self, publisher: Publisher, tasks: TaskStore) -> None:
        self._publisher, self._tasks = publisher, tasks

    @activity.defn(name="StoreReport")
    async def store(self, request: PublishRequest) -> Published:
        """Assemble, check and store the report, and how the task ended."""
        with reported():
            return await self._publisher.publish(request.ref, request.progress)

    @activity.defn(name="RecordAudit")
    async def audit(self, request: AuditRequest) -> None:
        """Keep what was asked, answered and refused. Kept twice, it stands once."""
        with reported():
            for entry in (*request.approvals, *request.refusals):
                await self._tasks.audit(request.task_id, entry)
