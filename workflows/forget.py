"""Tasks are forgotten: what is carried out to its end although a database or a Qdrant server is away, and is seen."""

from temporalio import workflow

from activities.forgetting import ForgettingActivities
from waystation.domain.forgetting import CarriedOut, ForgetOrder, Tidying
from waystation.domain.names import FORGET_WORKFLOW
from waystation.domain.request_text import counted
from workflows.options import CONTEXT, named


@workflow.defn(name=FORGET_WORKFLOW)
class ForgetWorkflow:
    """One order. Its history, with who started it and how many of each kind went, is its audit."""

    @workflow.run
    async def run(self, order: ForgetOrder) -> CarriedOut:
        """The store first: what it has given up no search may bring back. Histories and reports are outside of it."""
        tasks = counted(len(order.task_ids), "task")
        found = await workflow.execute_activity_method(
            ForgettingActivities.forget, order, **named(CONTEXT, f"forget {tasks} in the store")
        )
        await workflow.execute_activity_method(
            ForgettingActivities.forget_passages, **named(CONTEXT, "take passages out of memory")
        )
        if not order.everything:
            return CarriedOut(forgotten=found)
        return await workflow.execute_activity_method(
            ForgettingActivities.tidy_up,
            Tidying(order=order, forgotten=found),
            **named(CONTEXT, f"delete histories and reports of {tasks}"),
        )
