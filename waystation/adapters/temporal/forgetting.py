"""How tasks are forgotten over a Temporal server: the order as a workflow, and the histories that the server keeps."""

from collections.abc import Iterable
from contextlib import suppress

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ActivityError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from waystation.adapters.temporal.connect import RPC_TIMEOUT, described
from waystation.domain.errors import BadInput
from waystation.domain.forgetting import CarriedOut, ForgetOrder
from waystation.domain.names import (
    FORGET_WORKFLOW,
    RETENTION_WORKFLOW,
    WORKFLOWS_QUEUE,
    notices_id,
    remembering_id,
    retention_id,
)


async def carry_out(client: Client, order: ForgetOrder, summary: str) -> CarriedOut:
    """Have the workers carry the order out, and wait for it. Where the same order is under way, it is carried out
    after that, and finds what that has left: what went is counted once.

    Raises BadInput where they refuse it.
    """
    try:
        return await client.execute_workflow(
            FORGET_WORKFLOW,
            order,
            id=order.workflow_id,
            task_queue=WORKFLOWS_QUEUE,
            result_type=CarriedOut,
            static_summary=summary,
        )
    except WorkflowAlreadyStartedError:
        with suppress(WorkflowFailureError):
            await client.get_workflow_handle(order.workflow_id).result()
        return await carry_out(client, order, summary)
    except WorkflowFailureError as error:
        raise refused(error, "forget") from error


def refused(error: WorkflowFailureError, what: str) -> BadInput:
    """What to say where the workers did not carry an order out, which is to do `what`."""
    reason = error.cause.cause if isinstance(error.cause, ActivityError) else error.cause
    return BadInput(f"the workers could not {what}: {reason}")


async def keep_retention(client: Client, store_id: str) -> None:
    """Have tasks of this store forgotten when their time is over. Where that is seen to, it goes on."""
    await client.start_workflow(
        RETENTION_WORKFLOW,
        id=retention_id(store_id),
        task_queue=WORKFLOWS_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary="forget tasks when their time is over",
    )


async def delete_histories(client: Client, task_ids: Iterable[str]) -> int:
    """Delete every execution of these tasks, of their subagents and notices, and of what brought their documents into
    memory; how many the server still had. It deletes them a moment later. Raises RPCError.
    """
    return sum([await _delete_all_of(client, task_id) for task_id in task_ids])


async def _delete_all_of(client: Client, task_id: str) -> int:
    """The list of executions lags behind the server: the newest ones of the ids that are known are asked for."""
    listed = {(found.id, found.run_id) async for found in client.list_workflows(_executions_of(task_id))}
    newest = {(name, await _newest_run(client, name)) for name in (task_id, remembering_id(task_id))}
    found = {(workflow_id, run_id) for workflow_id, run_id in listed | newest if run_id is not None}
    return sum([await delete_history(client, *execution) for execution in sorted(found)])


def _executions_of(task_id: str) -> str:
    """The task's own, its subagents' (their ids begin with the task's), its notices', and its documents'."""
    beginnings = (task_id, notices_id(task_id), remembering_id(task_id))
    return " OR ".join(f'WorkflowId STARTS_WITH "{beginning}"' for beginning in beginnings)


async def _newest_run(client: Client, workflow_id: str) -> str | None:
    """None: the server knows no such workflow."""
    newest = await described(client, workflow_id)
    return newest.run_id if newest is not None else None


async def delete_history(client: Client, workflow_id: str, run_id: str = "") -> bool:
    """Delete one execution, by default the newest of the id. False: the server did not have it."""
    execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    try:
        await client.workflow_service.delete_workflow_execution(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True
