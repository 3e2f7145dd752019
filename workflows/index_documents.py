"""Indexes a task's documents into memory in a child workflow that outlives the task."""

from temporalio import workflow

from waystation.activities.memory import DocumentActivities
from waystation.memory.passage_builder import IndexingState
from waystation.workflows.options import CONTEXT, UPGRADE, is_continue_as_new_due, with_summary


@workflow.defn(name="Remember")
class IndexDocumentsWorkflow:
    """Indexes the documents of a task into memory, slice by slice.

    The history holds references and numbers only; the result is the final state.
    """

    @workflow.run
    async def run(self, so_far: IndexingState) -> IndexingState:
        """Index until the documents end or the task's character limit is reached."""
        while not so_far.done:
            if is_continue_as_new_due():
                workflow.continue_as_new(so_far, initial_versioning_behavior=UPGRADE)
            so_far = await workflow.execute_activity_method(
                DocumentActivities.index_next_slice,
                so_far,
                **with_summary(CONTEXT, f"index documents in memory, slice {so_far.slices + 1}"),
            )
        return so_far
