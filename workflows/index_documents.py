"""A task's documents into memory: a child that outlives it."""

from temporalio import workflow

from activities.memory import DocumentActivities
from waystation.memory.passage_builder import IndexingState
from workflows.options import CONTEXT, with_summary


@workflow.defn(name="Remember")
class IndexDocumentsWorkflow:
    """Slice by slice. Its history has references and numbers; its result is what became of the documents."""

    @workflow.run
    async def run(self, so_far: IndexingState) -> IndexingState:
        """To the end of the documents, or as far as the terms let it."""
        while not so_far.done:
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(so_far)
            so_far = await workflow.execute_activity_method(
                DocumentActivities.index_next_slice,
                so_far,
                **with_summary(CONTEXT, f"remember documents, slice {so_far.slices + 1}"),
            )
        return so_far
