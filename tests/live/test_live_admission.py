"""A task that is being started, while its session looks after the open ones."""

import asyncio

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from tests.live.session_doubles import EagerCheckSessionWorkflow, IdleTaskWorkflow
from tests.support.task_model import make_task_config
from tests.support.temporal_platform import wait_until
from waystation.activities.sessions import ReconcileRequest, ReconcileResult
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import CONTEXT_QUEUE, SUBMIT_TASK, WORKFLOWS_QUEUE
from waystation.tasks.session import (
    AdmissionResult,
    SaveSessionRequest,
    SessionState,
    SessionWorkflowInput,
    SubmissionResult,
    TaskSettlement,
)
from waystation.workers.sandbox import create_sandboxed_runner
from waystation.workflows.session import SessionWorkflow

NEW = TaskRef(store_id="store", tenant="t", session="s", task_id="task-new")
DEAD, BUDGET, SPENT = "task-dead", Amount(tokens=20_000), Amount(tokens=100)


@activity.defn(name="AdmitTask")
async def admit(ref: TaskRef) -> AdmissionResult:
    given = make_task_config(budget=BUDGET.tokens)
    return AdmissionResult(ref=ref, config=given, title="", documents=0, finished=False, search_attributes=False)


class SessionActivityDoubles:
    """When the session begins, its open task still runs. At the next check no task runs, as Temporal says also of a
    task that it has not started yet. The new task is saved, and so started, after that check.
    """

    def __init__(self) -> None:
        self.checked: list[tuple[str, ...]] = []
        self._checked_again = asyncio.Event()

    @activity.defn(name="ReconcileTasks")
    async def reconcile(self, request: ReconcileRequest) -> ReconcileResult:
        self.checked.append(request.task_ids)
        if len(self.checked) == 1:
            return ReconcileResult(settled=())
        self._checked_again.set()
        return ReconcileResult(settled=tuple(TaskSettlement(task_id=one, spent=SPENT) for one in request.task_ids))

    @activity.defn(name="SaveSession")
    async def save(self, request: SaveSessionRequest) -> bool:
        await self._checked_again.wait()
        return request.stored.version > 0


async def test_a_task_that_is_being_started_is_not_taken_for_dead(server: Client) -> None:
    reserved = BudgetAccount(limit=Limit(tokens=50_000)).reserve(DEAD, BUDGET)
    state = SessionState(account=reserved, open_tasks=(DEAD,))
    start = SessionWorkflowInput(**NEW.model_dump(exclude={"task_id"}), state=state, epoch=1)
    workflows, doubles = [EagerCheckSessionWorkflow, IdleTaskWorkflow], SessionActivityDoubles()
    async with (
        Worker(client=server, task_queue=CONTEXT_QUEUE, activities=[admit]),
        Worker(
            client=server,
            task_queue=WORKFLOWS_QUEUE,
            workflows=workflows,
            activities=[doubles.reconcile, doubles.save],
            workflow_runner=create_sandboxed_runner(),
        ),
    ):
        session = await server.start_workflow(
            EagerCheckSessionWorkflow.run, start, id=f"session-{NEW.session}", task_queue=WORKFLOWS_QUEUE
        )
        admission = await session.execute_update(SUBMIT_TASK, NEW, result_type=SubmissionResult)  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec

        async def is_settled() -> bool:
            return DEAD not in (await session.query(SessionWorkflow.account)).reserved

        await wait_until(is_settled)
        account = await session.query(SessionWorkflow.account)
    assert admission == SubmissionResult(task_id=NEW.task_id, state="started")
    assert doubles.checked == [(DEAD,), (DEAD,)]
    assert account == BudgetAccount(limit=Limit(tokens=50_000), spent=SPENT, reserved={NEW.task_id: BUDGET})
