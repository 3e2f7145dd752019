"""What the client tells of requests, and how it answers them.

What the client tells of requests for money: those that wait, what they would deliver now, and who answered them.

What is usual for a task of the tenant's, for whoever is to agree to a plan.

Sends a task what a person decided, and looks what became of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from statistics import quantiles
from typing import TYPE_CHECKING, NamedTuple

from pydantic import JsonValue

from waystation.client.store_queries import load_owned_task, load_plan
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, UnknownTask
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import TenantScope
from waystation.kernel.value import Value
from waystation.planning.plan import Plan
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import get_placeholder_key
from waystation.tasks.approvals import SIGNALS_BY_DECISION, AnswerOrigin, find_answer_origin
from waystation.tasks.progress import apply_stored_usage
from waystation.tasks.signals import AnswerResult, find_answer_result, find_answer_results
from waystation.tasks.task import TaskPhase, TaskProgress, TaskRow
from waystation.tasks.view import (
    PendingApproval,
    TaskView,
    UnfinishedReport,
    as_stored,
    list_open_requests,
    list_pending_approvals,
    with_stored_details,
)

if TYPE_CHECKING:
    from waystation.runtime.temporal.task_client import TaskRun, TemporalTaskClient

NOT_TAKEN = (
    "the server does not know this task: no session has taken it yet; submitting it again is safe, and so is "
    "cancelling it"
)
"""What is said of a task that was submitted and stands in the store alone."""


async def load_pending_approvals(
    temporal: "TemporalTaskClient", store: SqlStore, reader: TenantScope
) -> tuple[PendingApproval, ...]:
    """Requests that wait, of the tenant's tasks that the server lists as waiting. Raises Unreachable."""
    rows = await asyncio.gather(*(_row(store, reader, task_id) for task_id in await temporal.list_waiting_task_ids()))
    found = await asyncio.gather(*(_requests(temporal, store, row) for row in rows if row is not None))
    return tuple(sorted((request for of_task in found for request in of_task), key=lambda request: request.urgency))


async def _requests(temporal: "TemporalTaskClient", store: SqlStore, row: TaskRow) -> Sequence[PendingApproval]:
    """As the task says itself; where no worker answers for it, as this store's audit has it."""
    task_id, then = row.ref.task_id, row.terms.unattended.then
    progress = await temporal.query_progress(task_id)
    if progress is not None:
        return list_pending_approvals(await with_spending(store, progress), then)
    return [
        PendingApproval(task_id=task_id, title=row.title, approval=approval, then=then)
        for approval in list_open_requests(await store.list_audit_entries(task_id, row.ref.scope))
    ]


async def _row(store: SqlStore, reader: TenantScope, task_id: str) -> TaskRow | None:
    """None for a task of another tenant or store, which the same namespace may have."""
    with suppress(UnknownTask):
        return await load_owned_task(store, reader, task_id)
    return None


async def build_report_draft(settings: Settings, store: SqlStore, ref: TaskRef, view: TaskView) -> UnfinishedReport:
    """The report over what agents have handed over so far. Raises BadInput where there is a report, or no work yet."""
    task_id, progress = ref.task_id, view.progress
    if progress.report is not None:
        raise BadInput(f"{task_id} is {progress.phase} and has its report: `waystation report {task_id}`")
    # Presidio takes seconds and hundreds of megabytes, which nothing else of the client needs.
    from waystation.agents.redaction import TextRedactor  # noqa: PLC0415
    from waystation.documents.redacted_documents import RedactedDocumentStore  # noqa: PLC0415
    from waystation.reports.publisher import CitationChecker, ReportPublisher  # noqa: PLC0415
    from waystation.runtime.redaction_setup import build_redaction_config, create_redactor  # noqa: PLC0415

    key = await get_placeholder_key(store, settings)
    opened = create_redactor(settings, key)
    redactor = TextRedactor(opened, titles=settings.titles)
    try:
        redacted = RedactedDocumentStore(store, redactor, build_redaction_config(opened, key), keeps=False)
        check = CitationChecker(store, redactor, redacted)
        publisher = ReportPublisher(store=store, redactor=redactor, check=check)
        composed = await publisher.compose(ref, progress)
    finally:
        opened.close()
    if composed.nothing:
        raise BadInput(
            f"{task_id} has no draft yet (it is {progress.phase}): no agent has noted, found or written anything; "
            f"`waystation show {task_id}` tells how far it is"
        )
    return UnfinishedReport(phase=progress.phase, markdown=composed.markdown)


async def build_stored_task_view(store: SqlStore, row: TaskRow, remark: str) -> TaskView:
    """A task that has not ended, as far as the store alone knows it."""
    phase = TaskPhase.WORKING if await store.get_newest_plan(row.ref.task_id, row.ref.scope) else TaskPhase.SUBMITTED
    view = TaskView(progress=await with_spending(store, as_stored(row, phase)), remark=remark)
    return with_stored_details(view, row)


async def with_spending(store: SqlStore, progress: TaskProgress) -> TaskProgress:
    """With what the store says was spent so far: every charge, also of legs that are not over, which the workflow does
    not know yet. One that is over stands as it ended.
    """
    if progress.phase.over:
        return progress
    return apply_stored_usage(progress, await store.get_usage_by_agent(progress.task_id))


async def find_answer_origins(temporal: "TemporalTaskClient", progress: TaskProgress) -> dict[str, AnswerOrigin]:
    """By request id, where each answer came from. The server is not asked where nobody has answered."""
    answered = [approval for approval in progress.approvals if approval.decision in SIGNALS_BY_DECISION]
    asked_at = [approval.requested_at for approval in answered if approval.requested_at is not None]
    if not asked_at:
        return {}
    sent = await temporal.list_sent_answers(progress.task_id, min(asked_at))
    found = {approval.request_id: find_answer_origin(approval, sent) for approval in answered}
    return {request_id: origin for request_id, origin in found.items() if origin is not None}


def describe_unresponsive_task(run: "TaskRun | None") -> tuple[TaskPhase, str]:
    """How a task stands that does not answer, and a remark on it."""
    if run is None:
        return TaskPhase.SUBMITTED, NOT_TAKEN
    if run.ended is not None:
        return run.ended, "it was ended in Temporal, without a report"
    return TaskPhase.WORKING, "no worker answers: it goes on when one runs; the numbers are not known until then"


MIN_SAMPLE_TASKS, MAX_SAMPLE_TASKS = 5, 50
"""Tasks: fewer tell nothing of what is usual; of more, the newest count."""


class StepTokenSummary(Value):
    """What a step of a tenant's earlier tasks has spent, in tokens: every tenth task spent less than the least, every
    tenth more than the most.
    """

    tasks: int
    least: int
    middle: int
    most: int


def compute_step_token_summary(rows: Iterable[TaskRow]) -> StepTokenSummary | None:
    """None where there are too few tasks that ended as they should."""
    ended = (row.progress for row in rows if row.progress is not None and row.progress.phase is TaskPhase.DONE)
    each = [one.budget.spent.tokens // len(one.steps) for one in ended if one.steps]
    if len(each) < MIN_SAMPLE_TASKS:
        return None
    tenths = [round(tenth) for tenth in quantiles(each, n=10, method="inclusive")]
    return StepTokenSummary(tasks=len(each), least=tenths[0], middle=tenths[4], most=tenths[-1])


class PlannedTask(Value):
    """A plan, and what a person wants to know who is to agree to it."""

    plan: Plan
    """With its goals."""
    progress: TaskProgress
    documents: tuple[str, ...]
    """Names of what the task may read."""
    usual: StepTokenSummary | None


async def load_planned_task(store: SqlStore, row: TaskRow, progress: TaskProgress) -> PlannedTask:
    """The plan with what a person wants to know of it. Raises BadInput as `load_plan` does."""
    documents = await store.list_documents(row.ref.task_id, row.ref.scope)
    return PlannedTask(
        plan=await load_plan(store, row),
        progress=progress,
        documents=tuple(sorted(document.name for document in documents)),
        usual=compute_step_token_summary(await store.list_tasks(TenantScope(tenant=row.ref.tenant), MAX_SAMPLE_TASKS)),
    )


ANSWER_SECONDS = 10.0
EDIT_SECONDS = 60.0
"""So long a summary may take, or the rest of a leg, before nobody looks any more."""
ANSWER_POLL_SECONDS = 0.2
UNATTENDED = AnswerResult(outcome="unseen", reason="no worker answers for this task; it will be read when one runs")
UNREAD = AnswerResult(outcome="unseen", reason="no worker has read it yet; `waystation show` tells when one has")

ENDED = AnswerResult(outcome="refused", reason="the task ended before it had read this; it has no effect")


class TaskSignalClient(NamedTuple):
    """A task at work, to which messages are sent; each is known again by an id of its own."""

    temporal: "TemporalTaskClient"
    task_id: str
    look: Callable[[], Awaitable[TaskProgress]]
    """Gives the task as it is now."""

    async def send(self, signal: str, said: Mapping[str, JsonValue], answer_id: str = "") -> AnswerResult:
        """Send the signal, and wait until it has had its effect; an edit that still waits by then, waits.

        Raises BadInput where the task does not run; Unreachable.
        """
        answer_id = answer_id or token_hex(8)
        attended = await self.temporal.query_progress(self.task_id) is not None
        await self.temporal.signal(self.task_id, signal, {**said, "answer_id": answer_id})
        if not attended:
            return UNATTENDED
        seen: AnswerResult | None = None
        patience, began = ANSWER_SECONDS, asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - began < patience:
            seen = find_answer_result(answer_id, await self.look())
            if seen is not None and seen.outcome != "waiting":
                return seen
            patience = ANSWER_SECONDS if seen is None else EDIT_SECONDS
            await asyncio.sleep(ANSWER_POLL_SECONDS)
        return seen or (UNREAD if await self._runs() else ENDED)

    async def _runs(self) -> bool:
        """Whether the task can still read what was sent to it."""
        run = await self.temporal.find_task_run(self.task_id)
        return run is not None and run.ended is None and (run.progress is None or not run.progress.phase.over)

    async def answer_requests(
        self, signal: str, request_ids: Sequence[str], said: Mapping[str, JsonValue]
    ) -> dict[str, AnswerResult]:
        """Answer these requests in one moment; by request id what became of each. Raises as `send` does."""
        if not request_ids:
            return {}
        first, *others = request_ids
        named: dict[str, JsonValue] = {"request_id": first, "also": list[JsonValue](others)}
        sent = await self.send(signal, {**said, **named}, answer_id := token_hex(8))
        if sent.outcome == "unseen" or not others:
            return dict.fromkeys(request_ids, sent)
        return find_answer_results(answer_id, request_ids, await self.look())
