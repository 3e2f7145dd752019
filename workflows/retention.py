"""Tasks are forgotten when their time is over: a workflow for each store that looks once a day, as long as it is to."""

from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.retention import RetentionActivities
from waystation.domain.forgetting import Due, ForgetOrder
from waystation.domain.names import RETENTION_WORKFLOW
from workflows.forget import ForgetWorkflow
from workflows.options import SHORT, named

EVERY = timedelta(days=1)


@workflow.defn(name=RETENTION_WORKFLOW)
class RetentionWorkflow:
    """Each look has its numbers in the worker's log, and each order a workflow of its own."""

    @workflow.run
    async def run(self) -> None:
        """Until the workers have no such setting any longer."""
        while not workflow.info().is_continue_as_new_suggested():
            due = await workflow.execute_activity_method(
                RetentionActivities.due, **named(SHORT, "look for tasks whose time is over")
            )
            if due.days is None:
                return
            for order in due.orders:
                await self._retire(order)
            workflow.set_current_details(_looked(due))
            await workflow.sleep(EVERY, summary="until the next look")
        workflow.continue_as_new()

    async def _retire(self, order: ForgetOrder) -> None:
        with suppress(WorkflowAlreadyStartedError):  # a person gave the same order: the next look finds what is left
            await workflow.execute_child_workflow(ForgetWorkflow.run, order, id=order.workflow_id)


def _looked(due: Due) -> str:
    tasks = sum(len(order.task_ids) for order in due.orders)
    return f"{workflow.now():%Y-%m-%d %H:%M}: {tasks} had ended more than {due.days} days before, and were forgotten"
