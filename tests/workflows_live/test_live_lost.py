"""Tasks that Temporal sets back or loses: nothing is paid twice, and nothing stays reserved."""

from pathlib import Path
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tests.crew import TIGHT_BUDGET, WORK_TOKENS, Call, Crew, Gate, tight
from tests.running import Counter, Task, at_work, dev_server, until, until_both_ask
from tests.workflows_live.history import events
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.amount import Amount, Limit
from waystation.privacy.ports import Redactor
from waystation.tasks import approvals
from waystation.tasks.task import TaskPhase
from workflows.session import SessionWorkflow
from workflows.task import TaskWorkflow

SESSION_LIMIT = Limit(tokens=TIGHT_BUDGET)
LONG_IS = "limit.historyCount.suggestContinueAsNew=40"
"""Events after which the session continues as new, and looks after its tasks."""


async def account(counter: Counter) -> BudgetAccount:
    return await counter.session.query(SessionWorkflow.account)


async def set_back(client: Client, task: Task) -> str:
    """To its beginning, as an operator would. Returns the new run's id."""
    finished = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    first = next(event.event_id for event in await events(task) if event.event_type == finished)
    reset = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=task.id),
        reason="a test",
        workflow_task_finish_event_id=first,
        request_id=str(uuid4()),
    )
    return (await client.workflow_service.reset_workflow_execution(reset)).run_id


async def lose(client: Client, task: Task) -> None:
    """Take it out of Temporal, running as it is."""
    execution = WorkflowExecution(workflow_id=task.id)
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    )

    async def gone() -> bool:
        try:
            await task.describe()
        except RPCError as error:
            return error.status is RPCStatusCode.NOT_FOUND
        return False

    await until(gone)


async def test_a_task_that_is_set_back_to_its_beginning_pays_no_reply_again(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = Crew()
    async with at_work(server, tmp_path, redactor, crew) as counter:
        await counter.limit(SESSION_LIMIT)
        await counter.submit(under=tight())
        task = counter.task()
        before, called = await until_both_ask(task), list(crew.calls)
        run = await set_back(server, task)

        async def again() -> bool:
            return (await task.describe()).run_id == run

        await until(again)
        after = await until_both_ask(task)
        called_again = list(crew.calls)
        for asked in after.approvals:
            await task.signal(approvals.APPROVE_BUDGET, {"request_id": asked.request_id})
        progress = await task.result()
        settled = await account(counter)
    assert called_again == called
    assert {asked.request_id for asked in after.approvals} == {asked.request_id for asked in before.approvals}
    assert after.budget.spent == before.budget.spent
    assert progress.phase is TaskPhase.DONE
    assert len(crew.calls) == len(set(crew.calls))
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
    granted = sum(asked.granted.tokens for asked in progress.approvals)
    assert settled == BudgetAccount(limit=Limit(tokens=TIGHT_BUDGET + granted), spent=Amount(tokens=WORK_TOKENS))


async def test_a_task_that_is_set_back_after_its_end_ends_the_same_and_settles_once(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = Crew()
    async with at_work(server, tmp_path, redactor, crew) as counter:
        await counter.submit()
        first = await counter.task().result()
        called = list(crew.calls)
        run = await set_back(server, counter.task())
        second = await server.get_workflow_handle_for(TaskWorkflow.run, counter.task().id, run_id=run).result()
        settled = await account(counter)
    assert crew.calls == called
    assert (second.phase, second.report, second.totals) == (first.phase, first.report, first.totals)
    assert settled == BudgetAccount(limit=Limit(), spent=Amount(tokens=WORK_TOKENS))


async def test_a_task_that_temporal_has_lost_gives_its_reservation_back(tmp_path: Path, redactor: Redactor) -> None:
    gate = Gate(Call("harbours", 2), Call("tides", 2))
    async with dev_server(LONG_IS) as client, at_work(client, tmp_path, redactor, Crew(before=gate)) as counter:
        await counter.limit(SESSION_LIMIT)
        await counter.submit(under=tight())
        await gate.reached.wait()
        await lose(client, counter.task())
        gate.opened.set()
        held = (await account(counter)).reserved

        async def settled() -> bool:
            await counter.limit(SESSION_LIMIT)
            return (await account(counter)).held.nothing

        await until(settled)
        spent = (await account(counter)).spent
        totals = [await counter.store.totals(f"{counter.task().id}/{step}") for step in ("plan", "harbours", "tides")]
    assert held == {counter.task().id: Amount(tokens=TIGHT_BUDGET)}
    assert spent == sum((total.spent for total in totals), Amount())
    assert spent.tokens > 0
