"""Submits many tasks at once, in many sessions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.client import Client, WorkflowHandle
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError, RPCStatusCode

from tests.support.temporal_platform import DOCUMENTS, TENANT
from waystation.budgets.budget import BudgetAccount
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import Unreachable
from waystation.kernel.refs import TaskRef
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.connect import TemporalTarget
from waystation.runtime.temporal.task_client import TemporalTaskClient
from waystation.tasks.session import SessionWorkflowInput
from waystation.tasks.task import (
    TaskConfig,
    TaskProgress,
    TaskRequest,
    TaskRow,
    make_session_workflow_id,
    make_task_id,
    session_hash,
    tenant_hash,
)
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.task import TaskWorkflow

ADMISSIONS_AT_ONCE = 6
"""Of one session: the server takes at most ten updates of a workflow at once."""
PATIENCE, TRIES = timedelta(seconds=30), 10
"""A submission that got no answer is made again, as its error says."""
BUSY = {RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.FAILED_PRECONDITION}
"""What a server says of a session that takes no update at the moment, on a machine that is much too busy."""
BREATH_S = 1.0

Task = WorkflowHandle[TaskWorkflow, TaskProgress]


@dataclass
class Session:
    """One session and its tasks."""

    client: Client
    store: SqlStore
    name: str
    tenant: str = TENANT
    _free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ADMISSIONS_AT_ONCE))

    async def submit(
        self, request_id: str, under: TaskConfig, documents: Sequence[SourceDocument] = DOCUMENTS, question: str = ""
    ) -> Task:
        """Store the task and hand it in."""
        asked = TaskRequest(
            question=question or f"How is the bar crossed? ({request_id})",
            tenant=self.tenant,
            session=self.name,
            request_id=request_id,
        )
        start = await self._start()
        ref = TaskRef(store_id=start.store_id, tenant=start.tenant, session=start.session, task_id=make_task_id(asked))
        await self.store.register_task(TaskRow(ref=ref, request=asked, config=under, submitted_at=utc_now()), documents)
        async with self._free:
            for _ in range(TRIES):
                if await self._admitted(start, ref):
                    return self.client.get_workflow_handle_for(TaskWorkflow.run, ref.task_id)
                await asyncio.sleep(BREATH_S)
        raise Unreachable(f"no answer to {TRIES} submissions of {request_id}")

    async def _admitted(self, start: SessionWorkflowInput, ref: TaskRef) -> bool:
        try:
            await self._tasks.admit(start, self.id, ref, PATIENCE)
        except Unreachable:
            return False
        except RPCError as error:
            if error.status not in BUSY:
                raise
            return False
        return True

    async def limit(self, limit: Limit) -> None:
        """Set what the session may spend."""
        await self._tasks.set_session_limit(await self._start(), self.id, limit)

    async def account(self) -> BudgetAccount:
        """What the session booked."""
        return await self.handle.query(SessionWorkflow.account)

    @property
    def id(self) -> str:
        """Of its workflow."""
        return make_session_workflow_id(self.tenant, self.name)

    @property
    def handle(self) -> WorkflowHandle[SessionWorkflow, None]:
        """Its workflow."""
        return self.client.get_workflow_handle_for(SessionWorkflow.run, self.id)

    @property
    def _tasks(self) -> TemporalTaskClient:
        address = self.client.service_client.config.target_host
        return TemporalTaskClient(
            self.client, TemporalTarget(profile=ClientConfigProfile(address=address), ui_url=None)
        )

    async def _start(self) -> SessionWorkflowInput:
        return SessionWorkflowInput(
            store_id=await self.store.get_store_id(),
            tenant=tenant_hash(self.tenant),
            session=session_hash(self.tenant, self.name),
        )
