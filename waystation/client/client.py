"""The Python client, also of the command line: submits, follows and forks tasks, answers and tells, edits contexts.

The store knows what was asked for and how it ended, Temporal what happens now; a task is looked up in both, so that an
answer comes also when the server has forgotten the task or no worker runs.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from pydantic import JsonValue

from waystation.client import store_queries
from waystation.client.approvals import (
    PlannedTask,
    TaskMessageClient,
    build_report_draft,
    build_stored_task_view,
    describe_unresponsive_task,
    find_answer_origins,
    load_pending_approvals,
    load_planned_task,
    with_spending,
)
from waystation.client.submission import (
    START_TIMEOUT,
    UNCHANGED,
    DocumentUpdateAnswer,
    ForkRequest,
    annotate_message_answer,
    build_session_start,
    compare_documents,
    is_document_set_unchanged,
    load_session_documents,
    prepare_task_row,
    register_fork,
    reload_changed_documents,
    require_one_line,
    require_running,
    store_document_set,
    submit_stored_task,
    validate_message_text,
    with_task_messages,
)
from waystation.config.settings import Settings
from waystation.context.transcript import Transcript
from waystation.documents.document_loading import DocumentLoadResult, assign_unique_names
from waystation.documents.documents import Document, SourceDocument, validate_document_count
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.files import create_private_folder
from waystation.planning.plan import Plan
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_client_data_converter, open_store, require_store_key
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET, REVIEW_PLAN, AnswerAuthor, build_author_fields
from waystation.tasks.details import build_optional_grant_fields
from waystation.tasks.events import EventPage
from waystation.tasks.progress import CostBreakdown, DayRange, SessionSummary, SpendingReport, TaskCharges
from waystation.tasks.signals import EDIT_CONTEXT, TELL, UPDATE_DOCUMENTS, AnswerResult, ContextEditInput
from waystation.tasks.state_storage import cancel_submitted_task
from waystation.tasks.task import (
    ReportVersion,
    TaskPhase,
    TaskProgress,
    TaskRequest,
    TaskRow,
    build_reader_scope,
    make_session_workflow_id,
)
from waystation.tasks.view import (
    AgentCompactionAudits,
    AgentPromptView,
    MemoryWithEmbedder,
    PendingApproval,
    SubmittedTask,
    TaskFilter,
    TaskView,
    UnfinishedReport,
    as_stored,
    with_stored_details,
    with_stored_reports,
    without_empty,
)

if TYPE_CHECKING:
    from waystation.client.schedules import ScheduleClient
    from waystation.runtime.temporal.task_client import TemporalTaskClient

# temporalio takes as long to load as the store, and agents' tools as long as the domain: what is answered by the store
# alone, as `waystation list` of finished tasks, loads neither.

EVENT_PAGE_LIMIT = 200
EVERY_TASK = TaskFilter()
_Finish = Literal["partial", "cancel"]


class Client:
    """One tenant's tasks, of one store and one Temporal server. Close it, or use it with `async with`."""

    watch_seconds = 0.5  # between two looks at a task that is followed

    def __init__(self, settings: Settings, store: SqlStore) -> None:
        self._settings = settings
        self._store = store
        self._reader = build_reader_scope(settings.tenant)
        self._connected: TemporalTaskClient | None = None

    @classmethod
    async def connect(cls, settings: Settings) -> Self:
        """Open the store; Temporal is connected when it is first needed. Raises BadInput for a URL or key of no use."""
        store_queries.require_local_store(settings)
        create_private_folder(settings.home)
        return cls(settings, await open_store(settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()

    async def _temporal(self) -> "TemporalTaskClient":
        from waystation.runtime.temporal.connect import find_target  # noqa: PLC0415
        from waystation.runtime.temporal.task_client import TemporalTaskClient  # noqa: PLC0415

        if self._connected is None or self._connected.has_ended:
            await require_store_key(self._store, self._settings)
            converter = build_client_data_converter(self._settings)
            self._connected = await TemporalTaskClient.connect(find_target(self._settings), converter)
        return self._connected

    async def list_unattended_queues(self) -> tuple[str, ...]:
        """Task queues without a worker: what is submitted waits until one comes. Raises Unreachable."""
        return await (await self._temporal()).list_queues_without_workers()

    async def prepare_task(self, request: TaskRequest) -> TaskRow:
        """The task with its terms; nothing is stored yet. Raises BadInput where they cannot work, or are another's."""
        store_queries.require_same_tenant(request, self._settings.tenant)
        return await prepare_task_row(self._settings, self._store, request)

    async def submit(
        self,
        request: TaskRequest | TaskRow,
        documents: Sequence[SourceDocument],
        *,
        start_timeout: timedelta = START_TIMEOUT,
    ) -> SubmittedTask:
        """Store the task and hand it to its session. The same request id again finds the same task.

        A row is what `prepare` gave: its terms hold as they were shown. Raises BadInput as that does; RequestConflict
        where the id was used for another question, other documents or other terms; Unreachable, where it is unknown
        whether the task was accepted.
        """
        validate_document_count(len(documents))
        temporal = await self._temporal()
        row = request if isinstance(request, TaskRow) else await self.prepare_task(request)
        await self._store.register_task(row, assign_unique_names(documents))
        return await submit_stored_task(self._settings, self._store, temporal, row, start_timeout)

    async def get_schedule_client(self) -> "ScheduleClient":
        """The tenant's questions that come back. Raises Unreachable."""
        from waystation.client.schedules import ScheduleClient  # noqa: PLC0415
        from waystation.runtime.temporal.connect import find_target  # noqa: PLC0415
        from waystation.runtime.temporal.schedule_client import TemporalScheduleClient  # noqa: PLC0415

        await require_store_key(self._store, self._settings)
        target = find_target(self._settings)
        temporal = await TemporalScheduleClient.connect(target, build_client_data_converter(self._settings))
        return ScheduleClient(self._settings, self._store, temporal)

    async def fork(self, task_id: str, wish: ForkRequest) -> SubmittedTask:
        """A new task that reuses the finished steps of one that is over. The same request id finds the same task.

        Raises BadInput, RequestConflict and Unreachable as `submit` does; UnknownTask.
        """
        temporal = await self._temporal()
        row = await register_fork(self._settings, self._store, await self._load_row(task_id), wish)
        return await submit_stored_task(self._settings, self._store, temporal, row)

    async def get_session_documents(self, session: str) -> tuple[SourceDocument, ...]:
        """Those of the newest task of a session of this tenant: what a follow-up works on if it is given no others."""
        return await load_session_documents(self._store, self._settings.tenant, session)

    async def set_session_limit(self, session: str, limit: Limit) -> None:
        """Set what a session of this tenant may spend in all. Raises BadInput for a name that no session may have;
        Unreachable.
        """
        require_one_line("a session", session)
        tenant = self._settings.tenant
        start = await build_session_start(self._store, tenant, session)
        await (await self._temporal()).set_session_limit(start, make_session_workflow_id(tenant, session), limit)

    async def resolve_task_id(self, prefix: str) -> str:
        """The one task id that starts so, with or without `task-`. Raises UnknownTask; BadInput if several do."""
        return await store_queries.resolve_task_id(self._store, self._reader, prefix)

    async def get_task(self, task_id: str) -> TaskView:
        """The task as it is now, or as well as can be told. Raises UnknownTask; Unreachable while it has not ended."""
        row = await self._load_row(task_id)
        view = with_stored_details(await self._view(row), row)
        if not view.progress.phase.over:
            return view
        # The store has all that matters of a task that is over; the server may still show its history.
        with suppress(Unreachable):
            temporal = await self._temporal()
            run_id = await temporal.run_id(task_id)
            return view.replace(run_id=run_id, ui_url=temporal.build_task_link(task_id) if run_id else None)
        return view

    async def get_last_known_task(self, task_id: str) -> TaskView:
        """The same where no server answers, too: then from the store, with a remark on why. Raises UnknownTask."""
        row = await self._load_row(task_id)
        try:
            return await self.get_task(task_id)
        except Unreachable as unreachable:
            return await build_stored_task_view(self._store, row, str(unreachable))

    async def _load_row(self, task_id: str) -> TaskRow:
        return await self._store.get_task(task_id, self._reader)

    async def _view(self, row: TaskRow) -> TaskView:
        if row.progress is not None and row.progress.phase.over:
            return TaskView(progress=row.progress)
        temporal = await self._temporal()
        run = await temporal.find_task_run(row.ref.task_id)
        ui_url = temporal.build_task_link(row.ref.task_id)
        if run is not None and run.progress is not None:
            progress = await with_spending(self._store, with_stored_reports(row, run.progress))
            return TaskView(progress=progress, run_id=run.run_id, ui_url=ui_url, waits=run.waits, doing=run.doing)
        phase, remark = describe_unresponsive_task(run)
        progress = await with_spending(self._store, as_stored(row, phase))
        return TaskView(progress=progress, run_id=run.run_id if run else None, ui_url=ui_url, remark=remark)

    async def watch(self, task_id: str, again: float = inf) -> AsyncGenerator[TaskView]:
        """The task whenever it has changed, or after so many seconds in which it has not, until it is over."""
        clock, yielded, shown = asyncio.get_running_loop().time, 0.0, None
        while shown is None or not shown.progress.phase.over:
            if (seen := await self.get_task(task_id)) == shown and clock() - yielded < again:
                await asyncio.sleep(self.watch_seconds)
                continue
            shown, yielded = seen, clock()
            yield seen

    async def list_tasks(
        self, wanted: TaskFilter = EVERY_TASK, most: int = store_queries.DEFAULT_TASK_LIMIT
    ) -> tuple[TaskView, ...]:
        """The newest tasks, or all that the filter means. Without a server, those at work are as last stored."""
        rows = await store_queries.list_task_rows(self._store, self._settings.tenant, wanted, most)
        views = await asyncio.gather(*(self._view_or_stored(row) for row in rows))
        return tuple(view for view in views if wanted.matches_phase(view.progress.phase))

    async def _view_or_stored(self, row: TaskRow) -> TaskView:
        try:
            return with_stored_details(await self._view(row), row)
        except Unreachable as unreachable:
            return await build_stored_task_view(self._store, row, str(unreachable))

    async def list_events(self, after: int, task_id: str | None = None, limit: int = EVENT_PAGE_LIMIT) -> EventPage:
        """What happened to one task, or to all of the tenant's, behind that number: so many. Raises UnknownTask."""
        if task_id is not None:
            await self._load_row(task_id)
        return await self._store.list_events(self._reader, after, limit, task_id)

    async def get_newest_event_number(self) -> int:
        """The number of the newest event of the tenant's tasks; 0 before the first."""
        return await self._store.get_newest_event_number(self._reader)

    async def is_over(self, task_id: str) -> bool:
        """Whether the task has ended, as the store knows it. Raises UnknownTask."""
        progress = (await self._load_row(task_id)).progress
        return progress is not None and progress.phase.over

    async def get_report(self, task_id: str, version: int | None = None) -> str:
        """The report as Markdown, from the store: the one delivered last, or this version. Raises BadInput."""
        return await self.get_report_text(
            store_queries.get_report_version(await self.get_last_known_progress(task_id), version)
        )

    async def get_last_known_progress(self, task_id: str) -> TaskProgress:
        """The task with the versions of its report, also where no server answers. Raises UnknownTask."""
        return (await self._view_or_stored(await self._load_row(task_id))).progress

    async def get_report_text(self, version: ReportVersion) -> str:
        """One version of a report as Markdown."""
        return await self._store.get_text(version.report, self._reader)

    async def build_draft(self, task_id: str) -> UnfinishedReport:
        """What the task would deliver if it ended now. Raises BadInput where there is nothing to show."""
        row = await self._load_row(task_id)
        store_queries.require_not_forgotten(task_id, row.title)
        return await build_report_draft(self._settings, self._store, row.ref, await self._view_or_stored(row))

    async def with_origins(self, view: TaskView) -> TaskView:
        """The view with where the answers to its requests came from, where a server can be asked."""
        with suppress(Unreachable):
            return view.replace(origins=await find_answer_origins(await self._temporal(), view.progress))
        return view

    async def with_stored_details(self, view: TaskView) -> TaskView:
        """The view with what memory does not have of the task, and what was told to it, from the store."""
        known = await store_queries.with_stored_details(self._store, view, self._reader)
        return await with_task_messages(self._store, known, self._reader)

    async def get_bill(self, task_id: str) -> CostBreakdown:
        """What the task has cost so far, from the store. Raises UnknownTask."""
        return (await self.get_payments(task_id)).cost_breakdown

    async def get_payments(self, task_id: str) -> TaskCharges:
        """The same call by call."""
        reused = progress.reused if (progress := (await self._load_row(task_id)).progress) else None
        return (await self._store.list_task_charges(task_id, self._reader)).replace(reused=reused)

    async def get_spending(self, days: DayRange, session: str | None = None) -> SpendingReport:
        """What the tenant's tasks, or those of a session, have spent in these days. Raises BadInput for too much."""
        return await self._store.get_spending(days, build_reader_scope(self._settings.tenant, session))

    async def list_sessions(
        self, first: int = 0, count: int = store_queries.DEFAULT_TASK_LIMIT
    ) -> tuple[SessionSummary, ...]:
        """So many of the tenant's sessions from the `first` on, those with the newest tasks before others."""
        return await self._store.list_sessions(self._reader, first, count)

    async def get_transcript(self, task_id: str, agent: str) -> Transcript:
        """Everything that one agent said and was told. Raises BadInput for an agent that the task does not have."""
        store_queries.require_not_forgotten(task_id, (await self._load_row(task_id)).title)
        (agent,) = await store_queries.list_agent_ids(self._store, task_id, self._reader, agent)
        return await self._store.load_transcript(f"{task_id}/{agent}", self._reader)

    async def audit_compactions(
        self, task_id: str, agent: str | None = None, memory: MemoryWithEmbedder | None = None
    ) -> tuple[AgentCompactionAudits, ...]:
        """What the compactions of one agent, or of all of them, kept and lost. Raises as `client_audit.audits` does."""
        from waystation.client.agent_contexts import audit_compactions  # noqa: PLC0415

        return await audit_compactions(self._settings, self._store, await self._load_row(task_id), agent, memory)

    async def list_agent_contexts(self, task_id: str, agent: str | None = None) -> tuple[AgentPromptView, ...]:
        """Who gets how much of agents' next requests. Raises as `client_context.contexts` does."""
        from waystation.client.agent_contexts import load_agent_contexts  # noqa: PLC0415

        progress = (await self.get_task(task_id)).progress
        return await load_agent_contexts(
            self._store, await self._load_row(task_id), progress, agent, self._settings.tool_policy
        )

    async def list_approvals(self, session: str | None = None) -> tuple[PendingApproval, ...]:
        """What waits for an answer in the tenant's tasks, or a session's, the most urgent first. Raises Unreachable."""
        return await load_pending_approvals(
            await self._temporal(), self._store, build_reader_scope(self._settings.tenant, session)
        )

    async def approve(
        self,
        task_id: str,
        *,
        request_id: str | None = None,
        amount: Amount | None = None,
        by: AnswerAuthor = "",
        note: str = "",
    ) -> AnswerResult:
        """Grant what was asked for, or another amount. Without a request id the one pending request is meant.

        Raises BadInput where the task does not run; Unreachable.
        """
        answer = {
            "request_id": request_id,
            **build_optional_grant_fields(amount),
            **build_author_fields(by),
            "note": note,
        }
        return await self._send(task_id, APPROVE_BUDGET, without_empty(answer))

    async def deny(
        self,
        task_id: str,
        *,
        request_id: str | None = None,
        finish: _Finish = "partial",
        by: AnswerAuthor = "",
        note: str = "",
    ) -> AnswerResult:
        """Refuse the money: the task ends with what there is, or is cancelled. Raises as `approve` does."""
        answer = {"request_id": request_id, "finish": finish, **build_author_fields(by), "note": note}
        return await self._send(task_id, DENY_BUDGET, without_empty(answer))

    async def approve_many(
        self,
        task_id: str,
        request_ids: Sequence[str],
        amount: Amount | None = None,
        *,
        by: AnswerAuthor = "",
        note: str = "",
    ) -> dict[str, AnswerResult]:
        """Grant several requests in one moment; by request id what became of it. Raises as `approve` does."""
        said = {**build_optional_grant_fields(amount), **build_author_fields(by), "note": note}
        return await (await self._messages(task_id)).answer_requests(APPROVE_BUDGET, request_ids, said)

    async def deny_many(
        self, task_id: str, request_ids: Sequence[str], *, by: AnswerAuthor = "", note: str = ""
    ) -> dict[str, AnswerResult]:
        """Refuse several in one moment, so that none goes on with what another leaves. Raises as `approve` does."""
        return await (await self._messages(task_id)).answer_requests(
            DENY_BUDGET, request_ids, {**build_author_fields(by), "note": note}
        )

    async def get_plan(self, task_id: str) -> Plan:
        """The newest plan of a task, goals included. Raises UnknownTask; BadInput where it has none yet."""
        return await store_queries.load_plan(self._store, await self._load_row(task_id))

    async def get_planned_task(self, task_id: str) -> PlannedTask:
        """The same with what each step may spend, what it may read and what is usual. Raises as above; Unreachable."""
        row = await self._load_row(task_id)
        return await load_planned_task(self._store, row, (await self._view_or_stored(row)).progress)

    async def review_plan(self, task_id: str, plan: Plan, by: str = "", note: str = "") -> AnswerResult:
        """Have a task whose plan waits work by this one instead. Raises BadInput, also where there is no plan yet;
        Unreachable.
        """
        row = await self._load_row(task_id)
        await store_queries.load_plan(self._store, row)
        store_queries.validate_plan_shares(plan, (await self._view_or_stored(row)).progress)
        blob = await self._store.put_text(plan.model_dump_json(), row.ref.scope)
        return await self._send(task_id, REVIEW_PLAN, without_empty({"plan": blob, "by": by, "note": note}))

    async def edit_context(self, task_id: str, edit: ContextEditInput, instructions: str = "") -> AnswerResult:
        """Change the context of an agent at work; or take an agent of a finished task back, which then goes on.

        `instructions`: what a compaction's summary is to heed. Raises BadInput, Unreachable.
        """
        from waystation.client.agent_contexts import rewind_finished_task, validate_instructions  # noqa: PLC0415

        if (await self.get_task(task_id)).progress.phase.over:
            return await rewind_finished_task(self._store, await self._temporal(), await self._load_row(task_id), edit)
        task = (await self._load_row(task_id)).ref.scope
        blob = await self._store.put_text(validate_instructions(instructions), task) if instructions else None
        return await self._send(
            task_id, EDIT_CONTEXT, without_empty({**edit.model_dump(mode="json"), "instructions": blob})
        )

    async def send_message(self, task_id: str, words: str, by: str = "") -> AnswerResult:
        """Tell all agents of a task at work something, each at its next turn. Raises BadInput, Unreachable."""
        progress = (await self.get_task(task_id)).progress
        row = await self._load_row(task_id)
        blob = await self._store.put_text(validate_message_text(row, progress.phase, words), row.ref.scope)
        answer = await self._send(task_id, TELL, without_empty({"message": blob, "by": by}))
        return annotate_message_answer(answer, progress.model)

    async def list_documents(self, task_id: str) -> tuple[Document, ...]:
        """A task's documents as they are now, in the order of their numbers. Raises UnknownTask."""
        return await self._store.list_documents((await self._load_row(task_id)).ref.task_id, self._reader)

    async def get_document_text(self, task_id: str, name: str) -> str:
        """One of them, as it was handed in. Raises UnknownTask; BadInput where no document has that name now."""
        return await store_queries.load_document_text(self._store, await self._load_row(task_id), name)

    async def update_documents(
        self, task_id: str, paths: Sequence[Path], *, remove_missing: bool = False, by: str = ""
    ) -> DocumentUpdateAnswer:
        """Read what has changed of a running task's documents, and tell its agents. Raises BadInput, Unreachable."""
        loaded = await reload_changed_documents(await self.list_documents(task_id), paths)
        return await self.apply_loaded_documents(task_id, loaded, remove_missing=remove_missing, by=by)

    async def apply_loaded_documents(
        self, task_id: str, loaded: DocumentLoadResult, *, remove_missing: bool = False, by: str = ""
    ) -> DocumentUpdateAnswer:
        """The same with what was read. Raises BadInput, Unreachable."""
        row = await self._load_row(task_id)
        progress = require_running(row, (await self.get_task(task_id)).progress)
        again = await compare_documents(self._store, row.ref.scope, loaded, remove_missing=remove_missing)
        if is_document_set_unchanged(again, progress):
            return again.to_answer(UNCHANGED)
        sent = {"documents": await store_document_set(self._store, again, row.ref.scope), "by": by}
        return again.to_answer(await self._send(task_id, UPDATE_DOCUMENTS, without_empty(sent)))

    async def _messages(self, task_id: str) -> TaskMessageClient:
        await self._load_row(task_id)
        return TaskMessageClient(await self._temporal(), task_id)

    async def _send(self, task_id: str, name: str, message: Mapping[str, JsonValue]) -> AnswerResult:
        return await (await self._messages(task_id)).send(name, message)

    async def cancel(self, task_id: str) -> TaskPhase:
        """Ask the task to stop, unless it is over; the phase that it had. Raises UnknownTask, Unreachable."""
        phase = (await self.get_task(task_id)).progress.phase
        if phase.over:
            return phase
        try:
            await (await self._temporal()).cancel(task_id)
        except BadInput:
            if phase is not TaskPhase.SUBMITTED:
                raise
            await cancel_submitted_task(self._store, await self._load_row(task_id))
        return phase
