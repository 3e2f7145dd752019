"""Workflows that delete data: chosen tasks, tasks past their retention time, and everything about one person."""

from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import WorkflowAlreadyStartedError

from waystation.activities.removal import PersonErasureActivities, RetentionActivities, TaskRemovalActivities
from waystation.erasure.erasure import (
    CleanupStep,
    ErasureReceipt,
    ErasureResult,
    ExpiredTasks,
    ForgetOrder,
    PersonErasureOrder,
)
from waystation.kernel.temporal_names import ERASE_WORKFLOW, FORGET_WORKFLOW, RETENTION_WORKFLOW
from waystation.kernel.text import format_count
from waystation.workflows.options import CONTEXT, SHORT, with_summary


@workflow.defn(name=ERASE_WORKFLOW)
class ErasePersonWorkflow:
    """Erases one person. The history and the result hold placeholders and numbers, never the value that is erased."""

    @workflow.run
    async def run(self, order: PersonErasureOrder) -> ErasureResult:
        """Erase the person, originals last: until then the order can be repeated."""
        found = await workflow.execute_activity_method(
            PersonErasureActivities.find_person, order, **with_summary(CONTEXT, "find one person in the store")
        )
        await workflow.execute_activity_method(
            PersonErasureActivities.erase_from_store, order, **with_summary(CONTEXT, "erase one person from the store")
        )
        await workflow.execute_activity_method(
            PersonErasureActivities.rewrite_passages,
            **with_summary(CONTEXT, "replace changed passages in memory"),
        )
        files = await workflow.execute_activity_method(
            PersonErasureActivities.rewrite_reports, order, **with_summary(CONTEXT, "rewrite files of reports")
        )
        deleted = await _without_histories(order)
        left = await workflow.execute_activity_method(
            PersonErasureActivities.find_person, order, **with_summary(CONTEXT, "search for the person again")
        )
        originals = await workflow.execute_activity_method(
            PersonErasureActivities.drop_originals, order, **with_summary(CONTEXT, "delete originals from the vault")
        )
        return ErasureResult(
            order=order,
            id=workflow.info().run_id,
            at=workflow.now(),
            found=found.matches,
            remaining=left.matches,
            originals=originals,
            files=files,
            histories_deleted=deleted,
        )


async def _without_histories(order: PersonErasureOrder) -> int:
    if not order.histories_to_delete:
        return 0
    return await workflow.execute_activity_method(
        PersonErasureActivities.delete_histories, order, **with_summary(CONTEXT, "delete closed workflow histories")
    )


@workflow.defn(name=FORGET_WORKFLOW)
class ForgetTasksWorkflow:
    """Deletes the data of tasks. The history records who ordered the deletion, and how much of each kind is gone."""

    @workflow.run
    async def run(self, order: ForgetOrder) -> ErasureReceipt:
        """Delete from the store first, then histories and reports outside of it.

        What the store has given up cannot be found by a search again.
        """
        tasks = format_count(len(order.task_ids), "task")
        found = await workflow.execute_activity_method(
            TaskRemovalActivities.forget_tasks, order, **with_summary(CONTEXT, f"forget {tasks} in the store")
        )
        await workflow.execute_activity_method(
            TaskRemovalActivities.forget_passages, **with_summary(CONTEXT, "delete passages from memory")
        )
        if not order.everything:
            return ErasureReceipt(removed=found)
        return await workflow.execute_activity_method(
            TaskRemovalActivities.clean_up_after_tasks,
            CleanupStep(order=order, removed=found),
            **with_summary(CONTEXT, f"delete histories and reports of {tasks}"),
        )


RETENTION_INTERVAL = timedelta(days=1)


@workflow.defn(name=RETENTION_WORKFLOW)
class RetentionWorkflow:
    """Looks once a day for tasks whose retention has ended, and deletes them by `Forget` workflows."""

    @workflow.run
    async def run(self) -> None:
        """Run until the workers no longer have a retention setting."""
        while not workflow.info().is_continue_as_new_suggested():
            due = await workflow.execute_activity_method(
                RetentionActivities.find_expired_tasks, **with_summary(SHORT, "find tasks whose retention has ended")
            )
            if due.days is None:
                return
            for order in due.orders:
                await self._retire(order)
            workflow.set_current_details(_looked(due))
            await workflow.sleep(RETENTION_INTERVAL, summary="wait for the next check")
        workflow.continue_as_new()

    async def _retire(self, order: ForgetOrder) -> None:
        with suppress(WorkflowAlreadyStartedError):  # a person gave the same order: the next look finds what is left
            await workflow.execute_child_workflow(ForgetTasksWorkflow.run, order, id=order.workflow_id)


def _looked(due: ExpiredTasks) -> str:
    tasks = sum(len(order.task_ids) for order in due.orders)
    return f"{workflow.now():%Y-%m-%d %H:%M}: {tasks} had ended more than {due.days} days before, and were forgotten"
