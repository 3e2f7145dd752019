"""How tasks are forgotten over a Temporal server: the order as a workflow, and the histories that the server keeps."""

from collections.abc import Iterable

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ActivityError
from temporalio.service import RPCError, RPCStatusCode

from waystation.adapters.temporal.connect import RPC_TIMEOUT
from waystation.domain.errors import BadInput
from waystation.domain.forgetting import ForgetOrder, Forgotten
from waystation.domain.names import FORGET_WORKFLOW, WORKFLOWS_QUEUE
from waystation.domain.task import short_hash


async def carry_out(client: Client, order: ForgetOrder, summary: str) -> Forgotten:
    """Have the workers carry the order out, and wait for it. The same order while it runs is the same workflow.

    Raises BadInput where they refuse it.
    """
    try:
        return await client.execute_workflow(
            FORGET_WORKFLOW,
            order,
            id=f"forget-{short_hash(*order.task_ids, str(order.everything))}",
            task_queue=WORKFLOWS_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            result_type=Forgotten,
            static_summary=summary,
        )
    except WorkflowFailureError as error:
        reason = error.cause.cause if isinstance(error.cause, ActivityError) else error.cause
        raise BadInput(f"the workers could not forget: {reason}") from error


async def delete_histories(client: Client, task_ids: Iterable[str]) -> int:
    """Delete the workflow histories of tasks; how many the server still had. It deletes them a moment later."""
    return sum([await _delete_history(client, task_id) for task_id in task_ids])


async def _delete_history(client: Client, task_id: str) -> bool:
    request = DeleteWorkflowExecutionRequest(
        namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=task_id)
    )
    try:
        await client.workflow_service.delete_workflow_execution(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True
