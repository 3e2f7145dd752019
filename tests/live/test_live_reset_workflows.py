"""Tasks that Temporal sets back or loses: nothing is paid twice, and nothing stays reserved."""

from collections import Counter
from pathlib import Path
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tests.support.delegating_model import (
    SUBMIT_FINDINGS_CALL,
    DelegatingTaskModel,
    index_steps,
    make_delegate_call,
    make_delegating_task_config,
)
from tests.support.task_model import (
    TAKE_NOTE_CALL,
    TIGHT_BUDGET,
    WORK_TOKENS,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_tight_budget_config,
)
from tests.support.temporal_platform import (
    TaskHandle,
    TaskSubmitter,
    run_platform,
    start_dev_server,
    wait_for_both_requests,
    wait_until,
)
from tests.support.workflow_history import fetch_events
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.amount import Amount, Limit
from waystation.privacy.ports import Redactor
from waystation.tasks import approvals
from waystation.tasks.task import TaskPhase
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.task import TaskWorkflow

SESSION_LIMIT = Limit(tokens=TIGHT_BUDGET)
LONG_IS = "limit.historyCount.suggestContinueAsNew=40"
"""Events after which the session continues as new, and looks after its tasks."""


async def account(counter: TaskSubmitter) -> BudgetAccount:
    return await counter.session.query(SessionWorkflow.account)


async def set_back(client: Client, task: TaskHandle) -> str:
    """To its beginning, as an operator would. Returns the new run's id."""
    finished = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    first = next(event.event_id for event in await fetch_events(task) if event.event_type == finished)
    reset = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=task.id),
        reason="a test",
        workflow_task_finish_event_id=first,
        request_id=str(uuid4()),
    )
    return (await client.workflow_service.reset_workflow_execution(reset)).run_id


async def lose(client: Client, task: TaskHandle) -> None:
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

    await wait_until(gone)


async def test_a_task_that_is_set_back_to_its_beginning_pays_no_reply_again(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.set_session_limit(SESSION_LIMIT)
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        before, called = await wait_for_both_requests(task), list(crew.calls)
        run = await set_back(server, task)

        async def again() -> bool:
            return (await task.describe()).run_id == run

        await wait_until(again)
        after = await wait_for_both_requests(task)
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
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit()
        first = await counter.get_task_handle().result()
        called = list(crew.calls)
        run = await set_back(server, counter.get_task_handle())
        second = await server.get_workflow_handle_for(
            TaskWorkflow.run, counter.get_task_handle().id, run_id=run
        ).result()
        settled = await account(counter)
    assert crew.calls == called
    assert (second.phase, second.report, second.totals) == (first.phase, first.report, first.totals)
    assert settled == BudgetAccount(limit=Limit(), spent=Amount(tokens=WORK_TOKENS))


async def test_a_task_that_is_set_back_while_a_subagent_works_takes_it_up_from_its_last_turn(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    held = ModelCall("harbours.1", 2)
    gate = CallGate(held)
    crew = DelegatingTaskModel(
        before=gate,
        scripts={
            "harbours": [[make_delegate_call("beacons")], [SUBMIT_FINDINGS_CALL]],
            "harbours.1": [[TAKE_NOTE_CALL], [SUBMIT_FINDINGS_CALL]],
        },
    )
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_delegating_task_config(budget=50_000, agent_budget=20_000))
        await gate.reached.wait()
        run = await set_back(server, counter.get_task_handle())
        progress = await server.get_workflow_handle_for(
            TaskWorkflow.run, counter.get_task_handle().id, run_id=run
        ).result()
        gate.opened.set()
    assert progress.phase is TaskPhase.DONE, progress
    assert index_steps(progress)["harbours.1"].state == "done"
    assert {call for call, times in Counter(crew.calls).items() if times > 1} <= {held}


async def test_a_task_that_temporal_has_lost_gives_its_reservation_back(tmp_path: Path, redactor: Redactor) -> None:
    gate = CallGate(ModelCall("harbours", 2), ModelCall("tides", 2))
    async with (
        start_dev_server(LONG_IS) as client,
        run_platform(client, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter,
    ):
        await counter.set_session_limit(SESSION_LIMIT)
        await counter.submit(under=make_tight_budget_config())
        await gate.reached.wait()
        await lose(client, counter.get_task_handle())
        gate.opened.set()
        held = (await account(counter)).reserved

        async def settled() -> bool:
            await counter.set_session_limit(SESSION_LIMIT)
            return (await account(counter)).total_reserved.is_zero

        await wait_until(settled)
        spent = (await account(counter)).spent
        totals = [
            await counter.store.get_run_usage(f"{counter.get_task_handle().id}/{step}")
            for step in ("plan", "harbours", "tides")
        ]
    assert held == {counter.get_task_handle().id: Amount(tokens=TIGHT_BUDGET)}
    assert spent == sum((total.spent for total in totals), Amount())
    assert spent.tokens > 0
