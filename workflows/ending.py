"""How a task ends: passages brought in, spending settled, the report stored, the session told."""

import asyncio
from collections.abc import Coroutine
from typing import NoReturn, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.ledger import LedgerActivities
from activities.memory import MemoryActivities
from activities.reports import PublishRequest, ReportActivities
from waystation.domain.leg import RunRef
from waystation.domain.plan import PLANNING_ID
from waystation.domain.task import TaskPhase, TaskProgress
from waystation.domain.task_state import merged
from workflows.agent_work import cause_of
from workflows.board import Board
from workflows.budget_gate import BudgetGate
from workflows.notice import tell_of_end
from workflows.options import CONTEXT, CONTEXT_SHORT, SHORT, named
from workflows.oversight import settle_oversight
from workflows.remembering import remember_documents

T = TypeVar("T")


class Ending:
    """The last moves of a task."""

    def __init__(self, board: Board, gate: BudgetGate) -> None:
        self._board, self._gate = board, gate

    async def finish(self, phase: TaskPhase, reason: str = "") -> TaskProgress:
        """Store the report and how the task ended, and tell of it: also where that cannot be stored."""
        try:
            await self._store(phase)
        except ActivityError as error:
            if not is_cancelled_exception(error):
                await tell_of_end(self._board, TaskPhase.FAILED, cause_of(error))
            raise
        await tell_of_end(self._board, phase, reason)
        # A grant whose handler is still at work reaches the session before the settlement, or it would come too late
        # there. Histories of before did not wait.
        if not workflow.all_handlers_finished() and workflow.patched("grants-before-settlement"):
            await workflow.wait_condition(workflow.all_handlers_finished)
        await self._gate.tell_finished()
        if phase in {TaskPhase.DONE, TaskPhase.PARTIAL}:
            await remember_documents(self._board)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._board.progress

    async def _store(self, phase: TaskPhase) -> None:
        self._board.change(self._board.state.with_(phase=TaskPhase.REPORTING))
        await self._settle_runs()
        await self._bring_passages_in()
        board, start = self._board, self._board.start
        ended = board.progress_in(board.state.ended(phase))
        published = await workflow.execute_activity_method(
            ReportActivities.store,
            PublishRequest(ref=start.ref, progress=ended, state=board.state.ended(phase), at=workflow.now()),
            **named(CONTEXT_SHORT, "check citations, store the report"),
        )
        over, version = board.state.ended(phase), published.version
        board.change(over.published(version) if version is not None else over.with_(report=published.report))

    async def fail(self, error: BaseException) -> NoReturn:
        """The work could not even be planned: store that, then fail so that everybody sees it."""
        reason = cause_of(error) if isinstance(error, ActivityError) else type(error).__name__
        self._board.change(self._board.state.with_(notes=merged(self._board.state.notes, (reason,))))
        await self.finish(TaskPhase.FAILED, reason)
        raise ApplicationError(reason, type="TaskFailed", non_retryable=True)

    async def _settle_runs(self) -> None:
        """Whatever was stopped: the store says what it spent."""
        board = self._board
        if board.state.plan is None:
            planning = RunRef(**board.start.ref.model_dump(), step_id=PLANNING_ID, role="planning")
            totals = await workflow.execute_activity_method(LedgerActivities.totals, planning, **SHORT)
            board.change(board.state.with_planning(totals))
        await settle_oversight(board)
        for step_id, run in self._board.state.runs.items():
            if run.phase != "delivered":
                totals = await workflow.execute_activity_method(LedgerActivities.totals, run.run, **SHORT)
                stopped = self._board.run(step_id).settled(totals).cannot_go_on("the task was cancelled")
                self._board.change(self._board.state.with_run(stopped))

    async def _bring_passages_in(self) -> None:
        """Passages that could not be written when they were made. If memory is still down, the report says so."""
        made = [outcome for run in self._board.state.runs.values() for outcome in run.compactions if outcome.passages]
        if not made:
            return
        drained = await workflow.execute_activity_method(
            MemoryActivities.drain, **named(CONTEXT, "bring waiting passages into memory")
        )
        if drained.waiting:
            note = f"Memory does not answer: {drained.waiting} passages wait in the store and are written later."
            self._board.change(self._board.state.with_(notes=merged(self._board.state.notes, (note,))))


async def to_its_end(work: Coroutine[object, object, T]) -> T:
    """Await the work. A cancellation that comes meanwhile is too late: the work is finished and its result stands."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task
