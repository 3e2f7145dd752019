"""Drives one agent run from move to move. A plain class: it runs inside a Task's workflow.

How a task has a subagent work, and takes its run back.
"""

import asyncio
from contextlib import suppress
from typing import assert_never

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, is_cancelled_exception

from activities.agents import ContextActivities
from activities.bookkeeping import LedgerActivities
from waystation.agents.agent_run import (
    AgentRun,
    Compact,
    Edit,
    Finish,
    RequestApproval,
    RequestBudget,
    RunLeg,
    StartSubagents,
)
from waystation.agents.delegation import get_parent_id
from waystation.context.outcome import EditOutcome, EditRequest
from waystation.security.untrusted import plain_words
from waystation.tasks.state import taken_on
from workflows.approvals import BudgetGate, ask_person, take_back_requests
from workflows.board import TaskRuntime, record
from workflows.options import CONTEXT, SHORT, with_summary
from workflows.subagent import AgentActivityRunner, SubagentStart, SubagentWorkflow, get_failure_reason

LOST = "its workflow was ended by somebody"


async def work_as_child(board: TaskRuntime, step_id: str) -> None:
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
            drawable=board.drawable(step_id),
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
        worked = await child
        board.keep(worked.replace(edits=board.run(step_id).edits))
    except asyncio.CancelledError:
        child.cancel()
        await asyncio.gather(child, return_exceptions=True)
        raise
    except ChildWorkflowError as error:
        if is_cancelled_exception(error) and board.stopping:
            raise
        await _lost(board, step_id)


async def _lost(board: TaskRuntime, step_id: str) -> None:
    """The store says what it spent; an attempt of it that nobody has stopped yet may write nothing more."""
    run = board.run(step_id)
    totals = await workflow.execute_activity_method(
        LedgerActivities.take_over, run.run, **with_summary(SHORT, f"{step_id}: settle a subagent that was lost")
    )
    board.keep(board.run(step_id).settled(totals).finish_partial(LOST))


def _title(board: TaskRuntime, step_id: str) -> str:
    order = board.run(get_parent_id(step_id) or step_id).open_order(step_id)
    return order.title if order is not None else ""


def _without_edits(run: AgentRun) -> AgentRun:
    """They are carried out by the task."""
    return run.replace(edits=())


class AgentRunner:
    """The agent of a step, or a subagent: which works in a workflow of its own, and decides nothing there."""

    def __init__(self, board: TaskRuntime, gate: BudgetGate, step_id: str) -> None:
        self._board, self._gate, self._step_id = board, gate, step_id
        self._work = AgentActivityRunner(board, step_id)

    async def run_agent(self) -> None:
        """Go on until the run has delivered, or the workflow wants its agents back."""
        while not self._board.stopping:
            move = self._run.next_move()
            if isinstance(move, Finish):
                if late := self._run.late_edits:
                    await record(self._board, *late)
                return
            if isinstance(move, RunLeg | Compact) and get_parent_id(self._step_id) is not None:
                await work_as_child(self._board, self._step_id)
            else:
                await self._carry_out(move)

    async def _carry_out(
        self, move: RunLeg | Compact | Edit | RequestBudget | StartSubagents | RequestApproval
    ) -> None:
        match move:
            case RunLeg():
                await self._work.leg(move.request)
            case Compact():
                await self._work.compact(move.request_tokens)
            case Edit():
                await self._edit(move.request)
            case RequestBudget():
                await self._gate.wait(self._step_id)
            case StartSubagents():
                await self._wait_for_subagents()
            case RequestApproval():
                await ask_person(self._board, self._step_id)
            case _:
                assert_never(move)

    @property
    def _run(self) -> AgentRun:
        return self._board.run(self._step_id)

    async def _wait_for_subagents(self) -> None:
        """Nothing is held meanwhile. The task starts them, as it starts steps."""
        self._board.change(taken_on(self._board.state, self._step_id, self._board.start.terms))
        await workflow.wait_condition(
            lambda: self._run.phase != "delegating" or self._run.next_edit is not None or self._board.stopping
        )

    async def _edit(self, request: EditRequest) -> None:
        """What cannot be carried out changes nothing: the agent goes on, or goes on waiting."""
        edit = request.edit
        summary = f"{self._step_id}: {edit.what}, asked for by a person"
        try:
            outcome = await workflow.execute_activity_method(
                ContextActivities.edit, request, **with_summary(CONTEXT, summary)
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            outcome = EditOutcome(state="refused", reason=get_failure_reason(error))
        run = self._run.after_edit(edit, outcome)
        self._board.keep(run)
        await record(self._board, run.edit(edit.id))
        await take_back_requests(self._board, self._step_id)
