"""Approval requests and their answers: those that wait, what they would deliver now, who answered them, and how an
answer or another message is sent to a task.
"""

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from secrets import token_hex
from statistics import quantiles
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import JsonValue, ValidationError

from waystation.client.store_queries import load_owned_task, load_plan
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount
from waystation.kernel.errors import BadInput, NothingToDraft, UnknownTask
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import TenantScope
from waystation.kernel.value import Value
from waystation.planning.plan import Plan
from waystation.reports.cited_sentences import extract_cited_sentences
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import get_placeholder_key
from waystation.tasks.approvals import (
    SIGNALS_BY_DECISION,
    AnswerAuthor,
    AnswerOrigin,
    ApproveInput,
    DenyInput,
    describe_fault,
    find_answer_origin,
)
from waystation.tasks.details import validate_grant
from waystation.tasks.progress import apply_stored_usage
from waystation.tasks.signals import AnswerResult, UpdateResult
from waystation.tasks.task import TaskPhase, TaskProgress, TaskRow
from waystation.tasks.view import (
    ApprovalView,
    PendingApproval,
    ReportView,
    TaskView,
    as_stored,
    list_open_requests,
    list_pending_approvals,
)

if TYPE_CHECKING:
    from waystation.runtime.temporal.task_client import TaskRun, TemporalTaskClient

NOT_ADMITTED_REMARK = (
    "Temporal does not know this task yet: no session has accepted it. It is safe to submit the task again, or to "
    "cancel it"
)
"""Remark on a submitted task that so far exists in the store only."""


async def load_pending_approvals(
    temporal: "TemporalTaskClient", store: SqlStore, reader: TenantScope
) -> tuple[PendingApproval, ...]:
    """Return pending requests of the tenant's tasks that the server lists as waiting. Raises Unreachable."""
    rows = await asyncio.gather(*(_row(store, reader, task_id) for task_id in await temporal.list_waiting_task_ids()))
    found = await asyncio.gather(*(_requests(temporal, store, row) for row in rows if row is not None))
    return tuple(sorted((request for of_task in found for request in of_task), key=lambda request: request.urgency))


async def _requests(temporal: "TemporalTaskClient", store: SqlStore, row: TaskRow) -> Sequence[PendingApproval]:
    """Return the requests as the task reports them; if no worker answers for it, as this store's audit has them."""
    task_id, then = row.ref.task_id, row.config.unattended.at_deadline
    progress = await temporal.query_progress(task_id)
    if progress is not None:
        return list_pending_approvals(TaskView.from_progress(await with_spending(store, progress)), then)
    if row.progress is not None and row.progress.phase.over:
        # The server lists a task as waiting for a moment after its history was deleted.
        return []
    return [
        PendingApproval(
            task_id=task_id, title=row.title, approval=ApprovalView.from_request(approval), at_deadline=then
        )
        for approval in list_open_requests(await store.list_audit_entries(task_id, row.ref.scope))
    ]


async def _row(store: SqlStore, reader: TenantScope, task_id: str) -> TaskRow | None:
    """Return a task's row; None for a task of another tenant or store, which may share the namespace."""
    with suppress(UnknownTask):
        return await load_owned_task(store, reader, task_id)
    return None


async def build_report_draft(settings: Settings, store: SqlStore, ref: TaskRef, progress: TaskProgress) -> ReportView:
    """Build the report over the work that agents have submitted so far.

    Raises:
        BadInput: There is a report already, or no work yet.
    """
    task_id = ref.task_id
    if progress.report is not None:
        raise BadInput(f"{task_id} is {progress.phase} and already has its report: run `waystation report {task_id}`")
    # Presidio takes seconds and hundreds of megabytes; nothing else in the client needs it.
    from waystation.agents.citation_checker import CitationChecker  # noqa: PLC0415
    from waystation.agents.redaction import TextRedactor  # noqa: PLC0415
    from waystation.documents.redacted_documents import RedactedDocumentStore  # noqa: PLC0415
    from waystation.reports.publisher import ReportPublisher  # noqa: PLC0415
    from waystation.runtime.redaction_setup import build_redaction_config, create_redactor  # noqa: PLC0415

    key = await get_placeholder_key(store, settings)
    opened = create_redactor(settings, key)
    redactor = TextRedactor(opened, titles=settings.titles)
    try:
        redacted = RedactedDocumentStore(store, redactor, build_redaction_config(opened, key), stores_results=False)
        check = CitationChecker(store, redactor, redacted)
        publisher = ReportPublisher(store=store, redactor=redactor, check=check)
        composed = await publisher.compose(ref, progress)
    finally:
        opened.close()
    if composed.is_empty:
        raise NothingToDraft(
            f"{task_id} has no draft yet (it is {progress.phase}): no agent has noted, found or written "
            f"anything. `waystation show {task_id}` shows its progress"
        )
    return ReportView(
        task_id=task_id,
        phase=progress.phase,
        version=None,
        model=progress.model,
        markdown=composed.markdown,
        sentences=await asyncio.to_thread(extract_cited_sentences, composed.markdown),
    )


async def load_stored_task(store: SqlStore, row: TaskRow, remark: str) -> tuple[TaskProgress, TaskView]:
    """Load what the store alone knows of an unfinished task, and its view with this remark."""
    phase = TaskPhase.WORKING if await store.get_newest_plan(row.ref.task_id, row.ref.scope) else TaskPhase.SUBMITTED
    progress = await with_spending(store, as_stored(row, phase))
    return progress, TaskView.from_progress(progress).with_stored_request(row).replace(remark=remark)


async def with_spending(store: SqlStore, progress: TaskProgress) -> TaskProgress:
    """Return the progress with the spending that the store has: every charge, including those of unfinished legs, which
    the workflow does not know yet.

    A task that is over stays as it ended.
    """
    if progress.phase.over:
        return progress
    return apply_stored_usage(progress, await store.get_usage_by_agent(progress.task_id))


async def find_answer_origins(temporal: "TemporalTaskClient", progress: TaskProgress) -> dict[str, AnswerOrigin]:
    """Return where each answer came from, by request id. The server is not asked if no request was answered."""
    answered = [approval for approval in progress.approvals if approval.decision in SIGNALS_BY_DECISION]
    asked_at = [approval.requested_at for approval in answered if approval.requested_at is not None]
    if not asked_at:
        return {}
    sent = await temporal.list_sent_answers(progress.task_id, min(asked_at))
    found = {approval.request_id: find_answer_origin(approval, sent) for approval in answered}
    return {request_id: origin for request_id, origin in found.items() if origin is not None}


def describe_unresponsive_task(run: "TaskRun | None") -> tuple[TaskPhase, str]:
    """Return the phase of a task that does not answer, and a remark on it."""
    if run is None:
        return TaskPhase.SUBMITTED, NOT_ADMITTED_REMARK
    if run.final_phase is not None:
        return run.final_phase, "the task was ended in Temporal, without a report"
    return (
        TaskPhase.WORKING,
        "no worker answers. The task continues when a worker runs; until then, its progress is unknown",
    )


MIN_SAMPLE_TASKS, MAX_SAMPLE_TASKS = 5, 50
"""Sample size in tasks: fewer say nothing about what is usual; of more, the newest count."""


class StepTokenSummary(Value):
    """Average spending of a step in the tenant's earlier tasks, in tokens: 10th percentile, median and 90th
    percentile.
    """

    tasks: int
    minimum: int
    median: int
    maximum: int


def compute_step_token_summary(rows: Iterable[TaskRow]) -> StepTokenSummary | None:
    """Compute the summary. None if too few tasks ended regularly."""
    ended = (row.progress for row in rows if row.progress is not None and row.progress.phase is TaskPhase.DONE)
    each = [one.budget.spent.tokens // len(one.steps) for one in ended if one.steps]
    if len(each) < MIN_SAMPLE_TASKS:
        return None
    tenths = [round(tenth) for tenth in quantiles(each, n=10, method="inclusive")]
    return StepTokenSummary(tasks=len(each), minimum=tenths[0], median=tenths[4], maximum=tenths[-1])


class PlannedTask(Value):
    """A plan with what a person needs to know before approving it."""

    plan: Plan
    """Includes the goals of its steps."""
    task: TaskView
    documents: tuple[str, ...]
    """Names of the documents that the task may read."""
    typical_usage: StepTokenSummary | None


async def load_planned_task(store: SqlStore, row: TaskRow, view: TaskView) -> PlannedTask:
    """Load a task's plan with what a person needs to know before approving it. Raises BadInput as `load_plan` does."""
    documents = await store.list_documents(row.ref.task_id, row.ref.scope)
    return PlannedTask(
        plan=await load_plan(store, row),
        task=view,
        documents=tuple(sorted(document.name for document in documents)),
        typical_usage=compute_step_token_summary(
            await store.list_tasks(TenantScope(tenant=row.ref.tenant), MAX_SAMPLE_TASKS)
        ),
    )


UNSEEN_RESULT = AnswerResult(
    outcome="unseen",
    reason=(
        "no worker has answered yet. When a worker runs, it reads the message, and `waystation show` shows the result"
    ),
)
RESULT_NOT_KEPT = AnswerResult(
    outcome="refused", reason="the reason is no longer stored. `waystation show` shows the task's state"
)
"""Of one of so many answers that a task does not keep all."""


class TaskMessageClient(NamedTuple):
    """A task at work, to which messages are sent."""

    temporal: "TemporalTaskClient"
    task_id: str

    async def send(self, name: str, message: Mapping[str, JsonValue]) -> UpdateResult:
        """Send by an Update; if no one answers, by a signal of the same id, which waits for a worker.

        Before anything is sent the task is asked something, so that a client without the key raises WrongKey and sends
        nothing in plain.

        Returns:
            What became of the message; an edit that still waits for the end of a leg, waits.

        Raises:
            BadInput: The task does not run.
            Unreachable: The server does not answer.
        """
        answer_id = token_hex(8)
        if await self.temporal.is_answering(self.task_id):
            result = await self.temporal.update(self.task_id, name, message, answer_id)
            if result is not None:
                return result
        await self.temporal.signal(self.task_id, name, {**message, "answer_id": answer_id})
        return UpdateResult(outcome=UNSEEN_RESULT.outcome, reason=UNSEEN_RESULT.reason)


@contextmanager
def translating_input_faults() -> Generator[None]:
    """Raise BadInput, with the reason, for a message that no task would take."""
    try:
        yield
    except ValidationError as error:
        raise BadInput(describe_fault(error)) from None


async def resolve_only_request(
    temporal: "TemporalTaskClient", store: SqlStore, row: TaskRow, *, approving: bool
) -> str | AnswerResult | None:
    """Return the id of a task's only open request, for an answer that names none.

    The answer is sent with it: of two answers at the same moment, the second one is refused, and does not meet the
    request that the agent makes next.

    Returns:
        The refusal if there is not exactly one request, or if a tool call would be approved unseen. None if no one
        says which requests are open: no worker answers, or the task is over.
    """
    task_id = row.ref.task_id
    progress = await temporal.query_progress(task_id)
    if progress is None:
        known = list_open_requests(await store.list_audit_entries(task_id, row.ref.scope))
        is_clear = len(known) == 1 and not (approving and known[0].action is not None)
        return known[0].request_id if is_clear else None
    if progress.phase.over:
        return None
    waiting = TaskView.from_progress(progress).pending_approvals
    if len(waiting) != 1:
        named = f"request_id is missing; open requests: {', '.join(one.request_id for one in waiting)}"
        return AnswerResult(outcome="refused", reason=named if waiting else "no request is open")
    (asked,) = waiting
    if approving and asked.action is not None:
        reason = (
            f"the request {asked.request_id} asks to call {asked.action.tool}: look at the call, then answer with "
            "this request_id"
        )
        return AnswerResult(outcome="refused", reason=reason)
    return asked.request_id


def build_approval(
    request_ids: Sequence[str], amount: Amount | None, by: AnswerAuthor = "", note: str = ""
) -> ApproveInput:
    """Build the approval of these requests, or of the only pending one if none is named. Raises BadInput.

    A request about a tool call must be named.
    """
    granted = validate_grant(amount) or Amount()
    with translating_input_faults():
        given = ApproveInput(
            request_id=request_ids[0] if request_ids else None,
            also=tuple(request_ids[1:]),
            tokens=granted.tokens or None,
            usd=Decimal(granted.micro_usd) / 1_000_000 if granted.micro_usd else None,
            note=note,
        )
    return given.sign(by)


def build_denial(
    request_ids: Sequence[str], finish: Literal["partial", "cancel"], by: AnswerAuthor = "", note: str = ""
) -> DenyInput:
    """Build the denial of these requests, or of the only pending one if none is named. Raises BadInput."""
    with translating_input_faults():
        given = DenyInput(
            request_id=request_ids[0] if request_ids else None, also=tuple(request_ids[1:]), finish=finish, note=note
        )
    return given.sign(by)


def get_result_of_each(result: UpdateResult, request_ids: Sequence[str]) -> dict[str, AnswerResult]:
    """Return the results of a message that answers several requests, by request id."""
    if not result.each:
        return dict.fromkeys(request_ids, result.answer)
    return {request_id: result.each.get(request_id, RESULT_NOT_KEPT) for request_id in request_ids}
