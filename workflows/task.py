"""A task: plan, steps in parallel, report. Pauses hold nothing; a long life continues as new between two moves."""

import asyncio

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.planning import PlanningActivities, PlanRequest
from waystation.domain.inbound import read
from waystation.domain.session import Answer
from waystation.domain.task import TaskPhase, TaskProgress
from waystation.domain.task_state import TaskStart
from workflows.agent_runner import AgentRunner
from workflows.board import Board
from workflows.budget_gate import BudgetGate
from workflows.ending import Ending, to_its_end
from workflows.inbox import Inbox
from workflows.options import LEG, named
from workflows.reopening import reopened

PLANNING_SHARE = 10
"""Planning may spend a tenth of the task's budget."""


@workflow.defn(name="Task")
class TaskWorkflow:
    """One thing asked for, which ends in a report."""

    @workflow.init
    def __init__(self, start: TaskStart) -> None:
        self._board = Board(start)
        self._gate = BudgetGate(self._board, f"session-{start.ref.session}")
        self._inbox = Inbox(self._board, self._gate)
        self._ending = Ending(self._board, self._gate)
        self._runners: dict[str, asyncio.Task[None]] = {}

    @workflow.run
    async def run(self, start: TaskStart) -> TaskProgress:
        """Work until the report is stored; cancelled or failed, store what there is."""
        if start.rewind is not None and start.state is None:
            self._board.change(await reopened(start.rewind))
        self._board.change(self._board.state)
        try:
            await self._plan(start)
            await self._steps(start)
        except (ActivityError, asyncio.CancelledError) as error:
            self._board.change(self._board.state.with_(cancelled=True))
            await self._stop_runners()
            if is_cancelled_exception(error):
                await self._ending.finish(TaskPhase.CANCELLED)
                raise
            await self._ending.fail(error)
        return await to_its_end(self._end())

    @workflow.query(description="How far the task is: phase, steps, budgets, approvals. No text from the work.")
    def progress(self) -> TaskProgress:
        """What people see."""
        return self._board.progress

    @workflow.signal(
        description='Grant a budget request: {"request_id": "research-1-1", "tokens": 20000, "by": "your name", '
        '"note": "why"}. tokens: as many as were asked for, if left out.'
    )
    async def approve_budget(self, *sent: JsonValue) -> None:
        """Any JSON, or none, is taken and validated inside."""
        await self._inbox.approve(sent)

    @workflow.signal(
        description='Deny a budget request: {"request_id": "research-1-1", "finish": "partial" or "cancel", '
        '"by": "your name", "note": "why"}.'
    )
    async def deny_budget(self, *sent: JsonValue) -> None:
        """Any JSON, or none, is taken and validated inside."""
        await self._inbox.deny(sent)

    @workflow.signal(
        description='Change the context of an agent at work, between two legs: {"action": "compact", "pin", "unpin" or '
        '"restore", "agent": "research-1", "message": "m4" or "compaction": "its id", "by": "your name"}.'
    )
    async def edit_context(self, *sent: JsonValue) -> None:
        """Any JSON, or none, is taken and validated inside."""
        await self._inbox.edit(sent)

    @workflow.signal(description="The session's answer to an ask of this task. Sent by the session.")
    def budget_answer(self, *sent: JsonValue) -> None:
        """What the session gives."""
        answer = read(Answer, sent)
        if answer is not None:
            self._board.change(self._board.state.session_answered(answer))

    async def _plan(self, start: TaskStart) -> None:
        if self._board.state.plan is not None:
            return
        request = PlanRequest(
            ref=start.ref,
            model=start.terms.plan_model,
            limit=start.terms.budget.part(PLANNING_SHARE),
            prices=start.terms.agent.prices,
        )
        made = await workflow.execute_activity_method(PlanningActivities.plan, request, **named(LEG, "plan the work"))
        self._board.change(self._board.state.planned(made.plan, made.totals, made.notes, start.terms.agent_budget))

    async def _steps(self, start: TaskStart) -> None:
        """Every step as soon as what it needs is done. Continues as new when the server suggests it."""
        while not (self._board.state.all_done or self._board.state.cancelled):
            if not self._board.parking:
                self._start_ready(start)
            await workflow.wait_condition(self._anything_new)
            for step_id in [step_id for step_id, runner in self._runners.items() if runner.done()]:
                await self._runners.pop(step_id)
            self._board.parking = self._board.parking or workflow.info().is_continue_as_new_suggested()
            if self._board.parking and not self._runners and not self._board.state.all_done:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(start.model_copy(update={"state": self._board.state}))

    def _start_ready(self, start: TaskStart) -> None:
        state = self._board.state
        if state.plan is None:
            return
        fresh = state.plan.ready(state.done, frozenset(state.runs))
        for step in fresh:
            state = state.started(step, start.ref, start.terms)
        if fresh:
            self._board.change(state)
        for step_id in state.runs:
            if step_id not in state.done and step_id not in self._runners:
                runner = AgentRunner(self._board, self._gate, step_id)
                self._runners[step_id] = asyncio.create_task(runner.drive())

    def _anything_new(self) -> bool:
        wants_parking = workflow.info().is_continue_as_new_suggested() and not self._board.parking
        finished = any(runner.done() for runner in self._runners.values())
        return finished or wants_parking or self._board.state.cancelled or not self._runners

    async def _end(self) -> TaskProgress:
        await self._stop_runners()
        return await self._ending.finish(self._board.state.last_phase)

    async def _stop_runners(self) -> None:
        """After a cancellation, by the server or by a denial: no agent goes on."""
        for runner in self._runners.values():
            runner.cancel()
        await asyncio.gather(*self._runners.values(), return_exceptions=True)
        self._runners.clear()
