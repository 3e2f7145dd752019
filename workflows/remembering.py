"""A task's documents come into memory: a workflow of its own, begun when the task has delivered, so that it delays
neither steps nor report.
"""

from temporalio import workflow

from activities.documents import DocumentActivities
from waystation.domain.names import remembering_id
from waystation.domain.remembering import Remembering
from workflows.board import Board
from workflows.detached import leave_to_child
from workflows.options import CONTEXT, named


@workflow.defn(name="Remember")
class RememberWorkflow:
    """Slice by slice. Its history has references and numbers; its result is what became of the documents."""

    @workflow.run
    async def run(self, so_far: Remembering) -> Remembering:
        """To the end of the documents, or as far as the terms let it."""
        while not so_far.done:
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(so_far)
            so_far = await workflow.execute_activity_method(
                DocumentActivities.remember, so_far, **named(CONTEXT, f"remember documents, slice {so_far.slices + 1}")
            )
        return so_far


async def remember_documents(board: Board) -> None:
    """Leave them to a child that outlives the task. After a rewind it brings in what is new, and what was under way is
    taken up where it stood.
    """
    start = board.start
    if not start.terms.remembered_characters or not (start.documents or _given_later(board)):
        return
    wanted = Remembering(ref=start.ref, most_characters=start.terms.remembered_characters)
    summary = f"documents of {start.ref.task_id} into memory"
    await leave_to_child(RememberWorkflow.run, wanted, remembering_id(start.ref.task_id), summary, again=True)


def _given_later(board: Board) -> bool:
    """Whether a task that began without documents has some now. Those of earlier releases did not look."""
    return any(update.added for update in board.state.updates) and workflow.patched("documents-given-later")
