"""How a task has a subagent work, and takes its run back."""

import asyncio
from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError, is_cancelled_exception

from activities.ledger import LedgerActivities
from waystation.domain.agent_run import AgentRun
from waystation.domain.delegation import parent_of
from waystation.domain.foreign_text import plain_words
from workflows.board import Board
from workflows.options import SHORT, named
from workflows.subagent import SubagentStart, SubagentWorkflow

LOST = "its workflow was ended by somebody"


async def work_as_child(board: Board, step_id: str) -> None:
    """Have the subagent work until it needs its task, or the task wants it back. While it does, its run is its own:
    the task only takes in how far it is, and people's edits.

    A child that was terminated, cancelled or failed by itself is a subagent that delivers what it has.
    """
    child = await workflow.start_child_workflow(
        SubagentWorkflow.run_until_it_needs_its_task,
        SubagentStart(
            run=_without_edits(board.run(step_id)),
            title=_title(board, step_id),
            task_used=board.task_used,
            team=board.team(step_id),
        ),
        id=f"{board.task_id}/{step_id}",
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        static_summary=f"{step_id}: {plain_words(_title(board, step_id))}",
    )
    try:
        await workflow.wait_condition(
            lambda: child.done() or board.stopping or board.run(step_id).next_edit is not None
        )
        if not child.done():
            with suppress(ApplicationError):  # it has come back in the same moment
                await child.signal(SubagentWorkflow.call_back)
        board.keep((await child).model_copy(update={"edits": board.run(step_id).edits}))
    except asyncio.CancelledError:
        child.cancel()
        await asyncio.gather(child, return_exceptions=True)
        raise
    except ChildWorkflowError as error:
        if is_cancelled_exception(error) and board.stopping:
            raise
        await _lost(board, step_id)


async def _lost(board: Board, step_id: str) -> None:
    """The store says what it spent; an attempt of it that nobody has stopped yet may write nothing more."""
    run = board.run(step_id)
    totals = await workflow.execute_activity_method(
        LedgerActivities.take_over, run.run, **named(SHORT, f"{step_id}: settle a subagent that was lost")
    )
    board.keep(board.run(step_id).settled(totals).cannot_go_on(LOST))


def _title(board: Board, step_id: str) -> str:
    order = board.run(parent_of(step_id) or step_id).open_order(step_id)
    return order.title if order is not None else ""


def _without_edits(run: AgentRun) -> AgentRun:
    """They are carried out by the task."""
    return run.model_copy(update={"edits": ()})
