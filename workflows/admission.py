"""How a task begins: admitted by an activity, then started as a child that outlives every run of its session."""

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError

from activities.planning import PlanningActivities
from waystation.domain.foreign_text import plain_words
from waystation.domain.rewind import TaskRewind
from waystation.domain.session import Admitted
from waystation.domain.task import TaskRef
from waystation.domain.task_start import TaskStart
from workflows.board import first_attributes
from workflows.options import ADMISSION, named
from workflows.task import TaskWorkflow


async def admit(ref: TaskRef) -> Admitted:
    """What the workflows may know of the task. Raises the activity's own error: the submitter reads why."""
    try:
        return await workflow.execute_activity_method(PlanningActivities.admit, ref, **named(ADMISSION, "admit a task"))
    except ActivityError as error:
        raise (error.cause if isinstance(error.cause, ApplicationError) else error) from None


async def start(admitted: Admitted, rewind: TaskRewind | None = None) -> bool:
    """Start the task, or have it go on. False: it runs, or the server has had it before; it is left as it is."""
    equipment = {"search_attributes", "notices", "privacy", "sealed_answers"}
    given = admitted.model_dump(include={"ref", "terms", "title", "documents", "forked"} | equipment)
    once = WorkflowIDReusePolicy.REJECT_DUPLICATE
    try:
        task = await workflow.start_child_workflow(
            TaskWorkflow.run,
            TaskStart(**given, rewind=rewind),
            id=admitted.ref.task_id,
            id_reuse_policy=once if rewind is None else WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            static_summary=plain_words(admitted.title),
            search_attributes=first_attributes(admitted.ref.session) if admitted.search_attributes else None,
        )
    except WorkflowAlreadyStartedError:
        return False
    # The task tells its session how it ended; asyncio would log a failure that nobody looked at as an error.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return True
