"""How a task ends: reviews of its plan and report, verdicts on its sentences, the report itself, settlement, indexing.

Document indexing is a separate workflow that starts after delivery, so that it delays neither steps nor report. A
review that fails is noted in the report and fails no task.
"""

import asyncio
from collections.abc import Coroutine
from typing import NoReturn, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from waystation.activities.ledger import LedgerActivities
from waystation.activities.memory import MemoryActivities
from waystation.activities.tasks import OversightActivities, PublishRequest, ReportActivities
from waystation.budgets.budget import RunUsage
from waystation.kernel.refs import RunRef
from waystation.kernel.temporal_names import TASK_ENDED, make_indexing_workflow_id
from waystation.memory.passage_builder import IndexingState
from waystation.planning.plan import (
    PLANNING_ID,
    PlanRevision,
    ReportReview,
    RevisionResult,
    make_judge_id,
    make_review_id,
    make_revision_id,
)
from waystation.tasks.reviews import (
    ReviewResult,
    apply_judgement,
    apply_review,
    apply_revision,
    book_oversight_cost,
    build_judge_request,
    build_review_request,
    build_revision_request,
    finish_report_repair,
    is_judgement_due,
    is_review_due,
    is_revision_due,
    start_oversight_run,
)
from waystation.tasks.state import merge_unique
from waystation.tasks.task import TaskPhase, TaskProgress
from waystation.workflows.approvals import BudgetGate, request_revision_approval
from waystation.workflows.index_documents import IndexDocumentsWorkflow
from waystation.workflows.options import CONTEXT, JUDGEMENT, LEG, REPORT, SHORT, with_summary
from waystation.workflows.stored_state import store_state
from waystation.workflows.subagent import get_failure_reason
from waystation.workflows.task_runtime import TaskRuntime, notify_task_ended, start_detached_child


async def start_document_indexing(runtime: TaskRuntime) -> None:
    """Index the task's documents in a child that outlives the task.

    After a rewind it adds new documents only, and resumes an indexing run that was interrupted.
    """
    start = runtime.start
    has_some = start.documents or any(update.added for update in runtime.state.document_updates)
    if not (start.config.remembered_characters and has_some):
        return
    wanted = IndexingState(ref=start.ref, max_characters=start.config.remembered_characters)
    summary = f"index the documents of {start.ref.task_id} in memory"
    await start_detached_child(
        IndexDocumentsWorkflow.run, wanted, make_indexing_workflow_id(start.ref.task_id), summary, again=True
    )


async def run_plan_revision_if_due(runtime: TaskRuntime) -> None:
    """Revise the plan between the research and the steps that use it.

    If the revision may be expensive, no step starts before a person agrees to it.
    """
    if (made := runtime.state.proposed_revision) is None:
        if not is_revision_due(runtime.state, runtime.start.config):
            return
        made = await _revision(runtime)
    agreed = await request_revision_approval(runtime, made)
    if agreed is not None:
        made = made if agreed else await _revision(runtime, denied=True)
        runtime.replace_state(
            apply_revision(runtime.state.replace(proposed_revision=None), made, runtime.start.config.agent_budget)
        )


async def _revision(runtime: TaskRuntime, *, denied: bool = False) -> RevisionResult:
    """Have the plan revised, or, if the revision was denied, keep the previous plan."""
    start = runtime.start
    request = build_revision_request(runtime.state, start.ref, start.config).replace(denied=denied)
    runtime.replace_state(start_oversight_run(runtime.state, make_revision_id(request.number)))
    what = "keep the plan as it was" if denied else "revise the plan after the research"
    summary = f"{what}, {request.number} of at most {start.config.revisions}"
    try:
        return await workflow.execute_activity_method(
            OversightActivities.revise_plan, request, **with_summary(LEG, summary)
        )
    except ActivityError as error:
        note = f"The plan could not be revised ({_reason(error)}); it stays as it was."
        kept, totals = PlanRevision(number=request.number, reviewed_steps=request.reviewed_steps), await _spent(runtime)
        return RevisionResult(revision=kept, totals=totals, notes=(note,))


async def run_report_review_if_due(runtime: TaskRuntime) -> bool:
    """Have a new report reviewed. Return whether its writer works on it again."""
    terms = runtime.start.config
    if not terms.reviews:
        return False
    runtime.replace_state(finish_report_repair(runtime.state))
    if not is_review_due(runtime.state):
        return False
    request = build_review_request(runtime.state, terms)
    runtime.replace_state(start_oversight_run(runtime.state, make_review_id(request.number)))
    summary = f"review the report, {request.number}"
    try:
        made = await workflow.execute_activity_method(
            OversightActivities.review_report, request, **with_summary(LEG, summary)
        )
    except ActivityError as error:
        note = f"The report could not be reviewed ({_reason(error)})."
        made = ReviewResult(
            review=ReportReview(number=request.number, faults=0), totals=await _spent(runtime), notes=(note,)
        )
    runtime.replace_state(apply_review(runtime.state, made))
    return made.review.sent_back


async def run_sentence_judgement_if_due(runtime: TaskRuntime) -> None:
    """Have a model judge the report's cited sentences that code cannot decide."""
    start = runtime.start
    if not is_judgement_due(runtime.state, start.config):
        return
    request = build_judge_request(runtime.state, start.ref, start.config)
    runtime.replace_state(start_oversight_run(runtime.state, make_judge_id(request.number)))
    summary = f"judge cited sentences, {request.number}"
    try:
        made = await workflow.execute_activity_method(
            OversightActivities.judge_sentences, request, **with_summary(JUDGEMENT, summary)
        )
    except ActivityError as error:
        note = f"No model could judge the report's sentences ({_reason(error)})."
        totals = await _spent(runtime)
        state = book_oversight_cost(runtime.state, make_judge_id(request.number), totals)
        runtime.replace_state(state.replace(notes=merge_unique(state.notes, (note,))))
        return
    runtime.replace_state(apply_judgement(runtime.state, made))


async def settle_oversight(runtime: TaskRuntime) -> None:
    """Charge an interrupted revision, review or judgement with what the store says it spent."""
    if run_id := runtime.state.oversight.current_run:
        totals = await _spent(runtime)
        runtime.replace_state(book_oversight_cost(runtime.state, run_id, totals))


def _reason(error: ActivityError) -> str:
    if is_cancelled_exception(error):
        raise error
    return get_failure_reason(error)


async def _spent(runtime: TaskRuntime) -> RunUsage:
    run = RunRef(**runtime.start.ref.model_dump(), step_id=runtime.state.oversight.current_run, role="reviewing")
    return await workflow.execute_activity_method(LedgerActivities.read_run_totals, run, **SHORT)


async def notify_scheduled_run(runtime: TaskRuntime) -> None:
    """Wake the scheduled run that waits for the task."""
    if not runtime.start.scheduled_run:
        return
    try:
        await workflow.get_external_workflow_handle(runtime.start.scheduled_run).signal(TASK_ENDED)
    except ApplicationError:
        workflow.logger.warning("the scheduled run of this task is gone")


_T = TypeVar("_T")


class TaskFinalizer:
    """Ends a task: report, notification, settlement."""

    def __init__(self, runtime: TaskRuntime, gate: BudgetGate) -> None:
        self._runtime, self._gate = runtime, gate

    async def finish(self, phase: TaskPhase, reason: str = "") -> TaskProgress:
        """Store the report and the outcome, then notify people, also if storing failed."""
        try:
            await self._store(phase)
        except (ActivityError, ApplicationError) as error:
            if not is_cancelled_exception(error):
                await notify_task_ended(self._runtime, TaskPhase.FAILED, get_failure_reason(error))
            raise
        await notify_task_ended(self._runtime, self._runtime.state.phase, reason)
        # A grant whose handler is still running must reach the session before the settlement, or it comes too late.
        await workflow.wait_condition(workflow.all_handlers_finished)
        await self._gate.send_settlement_to_session()
        await notify_scheduled_run(self._runtime)
        if phase in {TaskPhase.DONE, TaskPhase.PARTIAL}:
            await start_document_indexing(self._runtime)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._runtime.progress

    async def _store(self, phase: TaskPhase) -> None:
        self._runtime.replace_state(self._runtime.state.replace(phase=TaskPhase.REPORTING))
        await self._settle_runs()
        await self._bring_passages_in()
        runtime, start = self._runtime, self._runtime.start
        ended = await store_state(start.ref, runtime.state.end_task(phase))
        published = await workflow.execute_activity_method(
            ReportActivities.store_report,
            PublishRequest(ref=start.ref, state=ended, title=start.title, privacy=start.privacy, at=workflow.now()),
            **with_summary(REPORT, "check citations, store the report"),
        )
        over = runtime.state.end_task(phase)
        if published.partial_reason:
            over = over.replace(phase=TaskPhase.PARTIAL, notes=merge_unique(over.notes, (published.partial_reason,)))
        runtime.replace_state(over.with_report_version(published.version))

    async def fail(self, error: BaseException) -> NoReturn:
        """Store that the work could not even be planned, then fail so that everyone sees it."""
        known = isinstance(error, ActivityError | ApplicationError)
        reason = get_failure_reason(error) if known else type(error).__name__
        self._runtime.replace_state(
            self._runtime.state.replace(notes=merge_unique(self._runtime.state.notes, (reason,)))
        )
        await self.finish(TaskPhase.FAILED, reason)
        raise ApplicationError(reason, type="TaskFailed", non_retryable=True)

    async def _settle_runs(self) -> None:
        """Settle interrupted runs with what the store says they spent."""
        runtime = self._runtime
        if runtime.state.plan is None:
            planning = RunRef(**runtime.start.ref.model_dump(), step_id=PLANNING_ID, role="planning")
            totals = await workflow.execute_activity_method(LedgerActivities.read_run_totals, planning, **SHORT)
            runtime.replace_state(runtime.state.with_planning_cost(totals))
        await settle_oversight(runtime)
        for step_id, run in self._runtime.state.runs.items():
            if run.phase != "delivered":
                totals = await workflow.execute_activity_method(LedgerActivities.read_run_totals, run.run, **SHORT)
                stopped = (
                    self._runtime.get_run(step_id).with_settled_usage(totals).finish_partial("the task was cancelled")
                )
                self._runtime.replace_state(self._runtime.state.with_run(stopped))

    async def _bring_passages_in(self) -> None:
        """Store passages that are still waiting for memory. If memory is still down, the report says so."""
        if not any(run.all_compactions.passages for run in self._runtime.state.runs.values()):
            return
        drained = await workflow.execute_activity_method(
            MemoryActivities.drain_outbox, **with_summary(CONTEXT, "write waiting passages to memory")
        )
        if drained.waiting:
            note = f"Memory does not answer: {drained.waiting} passages wait in the store and are written later."
            self._runtime.replace_state(
                self._runtime.state.replace(notes=merge_unique(self._runtime.state.notes, (note,)))
            )


async def run_shielded(work: Coroutine[object, object, _T]) -> _T:
    """Await the work to its end. A cancellation that arrives meanwhile is too late: the result stands."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task
