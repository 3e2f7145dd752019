"""An Update that arrives while its task is about to continue as new."""

import asyncio

from pydantic import JsonValue
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.support.task_model import make_task_config
from tests.support.task_states import REF
from waystation.kernel.deferred_signals import DeferredSignal
from waystation.tasks.approvals import DENY_BUDGET
from waystation.tasks.continuation import TaskWorkflowInput
from waystation.tasks.signals import CONTINUES, UpdateResult
from waystation.workflows.approvals import BudgetGate
from waystation.workflows.task import SignalHandler, with_task_messages
from waystation.workflows.task_runtime import TaskRuntime


@workflow.defn
@with_task_messages
class LeavingWorkflow:
    """A task that is about to continue as new until a message is held for its next run."""

    @workflow.init
    def __init__(self, start: TaskWorkflowInput) -> None:
        runtime = TaskRuntime(start)
        runtime.ready = True
        self.signal_handler = SignalHandler(runtime, BudgetGate(runtime, "session-none"))
        self.signal_handler.dismiss_updates()

    @workflow.run
    async def run(self, start: TaskWorkflowInput) -> list[DeferredSignal]:
        await workflow.wait_condition(lambda: bool(self.signal_handler.held_signals))
        await workflow.wait_condition(workflow.all_handlers_finished)
        return list(self.signal_handler.held_signals)


async def test_an_update_that_arrives_while_a_task_continues_as_new_is_held_for_its_next_run(server: Client) -> None:
    start = TaskWorkflowInput(ref=REF, config=make_task_config(), title="a title", search_attributes=False)
    sent: dict[str, JsonValue] = {"request_id": "tides-1", "by": "Ada"}
    async with Worker(
        server, task_queue="leaving", workflows=[LeavingWorkflow], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        task = await server.start_workflow(LeavingWorkflow.run, start, id="leaving-task", task_queue="leaving")
        async with asyncio.timeout(60):
            result = await task.execute_update(DENY_BUDGET, sent, id="u1", result_type=UpdateResult)  # pyright: ignore[reportUnknownMemberType]: its other overload has a bare generic
        held = await task.result()
    assert result == CONTINUES
    assert held == [DeferredSignal(signal=DENY_BUDGET, argument={**sent, "answer_id": "u1"}, readable=True)]
