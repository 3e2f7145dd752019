"""The Python client, also of the command line: submits, follows and forks tasks, answers requests, sends messages,
edits contexts.

The store knows what was requested and how it ended, Temporal what happens now. A task is looked up in both, so that
there is an answer even if the server has forgotten the task or no worker runs.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from waystation.agents.partial_replies import PartialReply
from waystation.client import store_queries
from waystation.client.approvals import (
    PlannedTask,
    TaskMessageClient,
    build_approval,
    build_denial,
    build_report_draft,
    describe_unresponsive_task,
    find_answer_origins,
    get_result_of_each,
    load_pending_approvals,
    load_planned_task,
    load_stored_task,
    resolve_only_request,
    translating_input_faults,
    with_spending,
)
from waystation.config.settings import Settings
from waystation.context.transcript import Transcript
from waystation.documents.documents import Document, SourceDocument, validate_document_count
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.files import create_private_folder
from waystation.kernel.text import format_names
from waystation.planning.plan import Plan
from waystation.privacy.policy import PLACEHOLDER_PATTERN
from waystation.reports.cited_sentences import extract_cited_sentences
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_client_data_converter, open_store, require_store_key
from waystation.security.untrusted import neutralize_markdown
from waystation.tasks.approvals import AnswerAuthor, DeliverInput, ReviewPlanInput
from waystation.tasks.events import EventPage, TaskEvent
from waystation.tasks.progress import (
    CostBreakdown,
    DayRange,
    SessionSummary,
    SpendingReport,
    TaskCharges,
    TemporalActionCounts,
)
from waystation.tasks.signals import (
    APPROVAL,
    DELIVERY,
    DENIAL,
    EDIT,
    MESSAGE,
    PLAN,
    UPDATE,
    AnswerResult,
    ContextEditInput,
    DocumentsUpdateInput,
    InputT,
    TaskMessageInput,
    TaskSignalDefinition,
    UpdateResult,
)
from waystation.tasks.state_storage import cancel_submitted_task
from waystation.tasks.task import (
    TaskPhase,
    TaskProgress,
    TaskRequest,
    TaskRow,
    build_reader_scope,
    make_session_workflow_id,
)
from waystation.tasks.task_repository import build_unknown_task_error
from waystation.tasks.view import (
    AgentCompactionAudits,
    ApprovalView,
    MemoryWithEmbedder,
    NextPromptView,
    PendingApproval,
    ReportView,
    SubmittedTask,
    TaskFilter,
    TaskView,
    as_stored,
    with_stored_reports,
)

if TYPE_CHECKING:
    from waystation.client.erasure import ForgetResult
    from waystation.client.file_previews import FilePreviews
    from waystation.client.schedules import ScheduleClient
    from waystation.client.submission import DocumentUpdateAnswer, ForkRequest
    from waystation.documents.document_loading import DocumentLoadResult
    from waystation.runtime.temporal.task_client import TemporalTaskClient
    from waystation.tasks.activity import ActivityFilter, ActivityView
    from waystation.tasks.report_links import MadeReportLink, NewReportLink, ReportLink, SharedReport

# temporalio takes as long to load as the store, and agents' tools as long as the domain: a command that the store alone
# can answer, such as `waystation list` of finished tasks, loads neither. It does not load what reads and submits
# documents either.

EVENT_PAGE_LIMIT = 200
EVERY_TASK = TaskFilter()
_Finish = Literal["partial", "cancel"]
START_TIMEOUT = timedelta(seconds=20)


MAX_WATCH_SECONDS = 3.0
"""Maximum pause between two looks of `watch`."""


WATCH_LIFETIME = timedelta(seconds=15)
"""How long a task's agents store what they are thinking and writing after someone has asked for it."""


MAX_HEAD_LINES = 20
"""Lines at the top of a report among which its question is."""


class Client:
    """The tasks of one tenant, of one store and one Temporal server. Close it, or use it with `async with`."""

    watch_seconds = 0.5
    """Pause of `watch` after a change. It grows while nothing changes: each look is a query, which a worker answers."""

    def __init__(self, settings: Settings, store: SqlStore) -> None:
        self._settings = settings
        self._store = store
        self._reader = build_reader_scope(settings.tenant)
        self._connected: TemporalTaskClient | None = None

    @classmethod
    async def connect(cls, settings: Settings) -> Self:
        """Open the store; Temporal is connected when it is first needed. Raises BadInput for an invalid URL or key."""
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
        from waystation.runtime.temporal.connect import resolve_temporal_target  # noqa: PLC0415
        from waystation.runtime.temporal.task_client import TemporalTaskClient  # noqa: PLC0415

        if self._connected is None or self._connected.has_ended:
            await require_store_key(self._store, self._settings)
            converter = build_client_data_converter(self._settings)
            self._connected = await TemporalTaskClient.connect(resolve_temporal_target(self._settings), converter)
        return self._connected

    def build_placeholder_client(self) -> "Client":
        """Return a client of the same store that restores no private value, for readers who may know no more than a
        model. It is closed with this one.
        """
        client = Client(self._settings, self._store)
        client._connected = self._connected
        return client

    async def list_unattended_queues(self) -> tuple[str, ...]:
        """Return task queues without a worker; submitted tasks wait until one starts. Raises Unreachable."""
        return await (await self._temporal()).list_queues_without_workers()

    async def forget_session(self, session: str, *, everything: bool) -> "ForgetResult":
        """Delete the session's tasks, all of them over, from memory; with `everything` from the store as well, and
        remove the session's schedules.

        Raises:
            BadInput: The session has no task, or one still runs.
            Unreachable: There is no server, or no worker.
        """
        from waystation.client.erasure import TaskSelection, forget_tasks_and_schedules, select_task_ids  # noqa: PLC0415

        selection = TaskSelection(session=session)
        task_ids = await select_task_ids(self, self._settings, selection)
        if unattended := await self.list_unattended_queues():
            raise Unreachable(
                f"no worker polls the {format_names('queue', unattended)}: start a worker (`waystation up`), "
                "then try again"
            )
        return await forget_tasks_and_schedules(self, self._settings, selection, task_ids, everything=everything)

    async def prepare_task(self, request: TaskRequest) -> TaskRow:
        """Build the task with its configuration; nothing is stored yet.

        Raises:
            BadInput: The configuration cannot work, or the request belongs to another tenant.
        """
        from waystation.client.submission import prepare_task_row  # noqa: PLC0415

        store_queries.require_same_tenant(request, self._settings.tenant)
        return await prepare_task_row(self._settings, self._store, request)

    async def submit(
        self,
        request: TaskRequest | TaskRow,
        documents: Sequence[SourceDocument],
        *,
        start_timeout: timedelta = START_TIMEOUT,
    ) -> SubmittedTask:
        """Store the task and start it in its session. The same request id always finds the same task.

        Args:
            request: The request, or a row from `prepare_task`, whose configuration is used exactly as it was shown.
            documents: The documents with their texts.
            start_timeout: Maximum time to wait until the session has accepted the task.

        Raises:
            BadInput: As `prepare_task`.
            RequestConflict: The id was used for another question, other documents or other options.
            Unreachable: It is unknown whether the task was accepted.
        """
        from waystation.client.submission import submit_stored_task  # noqa: PLC0415
        from waystation.documents.document_loading import assign_unique_names  # noqa: PLC0415

        validate_document_count(len(documents))
        temporal = await self._temporal()
        row = request if isinstance(request, TaskRow) else await self.prepare_task(request)
        await self._store.register_task(row, assign_unique_names(documents))
        return await submit_stored_task(self._settings, self._store, temporal, row, start_timeout)

    async def get_schedule_client(self) -> "ScheduleClient":
        """Return the client of the tenant's schedules. Raises Unreachable."""
        from waystation.client.schedules import ScheduleClient  # noqa: PLC0415
        from waystation.runtime.temporal.connect import resolve_temporal_target  # noqa: PLC0415
        from waystation.runtime.temporal.schedule_client import TemporalScheduleClient  # noqa: PLC0415

        await require_store_key(self._store, self._settings)
        target = resolve_temporal_target(self._settings)
        temporal = await TemporalScheduleClient.connect(target, build_client_data_converter(self._settings))
        return ScheduleClient(self._settings, self._store, temporal)

    async def fork(self, task_id: str, fork: "ForkRequest") -> SubmittedTask:
        """Start a new task that reuses the finished steps of one that is over. The same request id finds the same task.

        Raises:
            BadInput, RequestConflict, Unreachable: As `submit`.
            UnknownTask: There is no such task.
        """
        from waystation.client.submission import register_fork, submit_stored_task  # noqa: PLC0415

        temporal = await self._temporal()
        row = await register_fork(self._settings, self._store, await self._load_row(task_id), fork)
        return await submit_stored_task(self._settings, self._store, temporal, row, START_TIMEOUT)

    async def get_session_documents(self, session: str) -> tuple[SourceDocument, ...]:
        """Return the documents of the session's newest task, which a follow-up uses if it is given none."""
        from waystation.client.submission import load_session_documents  # noqa: PLC0415

        return await load_session_documents(self._store, self._settings.tenant, session)

    async def set_session_limit(self, session: str, limit: Limit) -> None:
        """Set the spending limit of a whole session.

        Raises:
            BadInput: The name is not a valid session name.
            Unreachable: The server does not answer.
        """
        from waystation.client.submission import build_session_start, require_one_line  # noqa: PLC0415

        require_one_line("a session", session)
        tenant = self._settings.tenant
        start = await build_session_start(self._store, tenant, session)
        await (await self._temporal()).set_session_limit(start, make_session_workflow_id(tenant, session), limit)

    async def resolve_task_id(self, prefix: str) -> str:
        """Return the only task id that starts with `prefix`, with or without `task-`.

        Raises UnknownTask; BadInput if several do.
        """
        return await store_queries.resolve_task_id(self._store, self._reader, prefix)

    async def get_task(self, task_id: str, *, details: bool = False) -> TaskView:
        """Return the task as it is now, or as well as it is known.

        Args:
            task_id: ID of the task.
            details: Whether to look up where answers came from, and what the store has besides: plans, messages, and
                what memory lacks of the task.

        Raises:
            UnknownTask: There is no such task.
            Unreachable: No server answers, and the task has not ended.
        """
        row = await self._load_titled_row(task_id)
        progress, view = await self._look_up(row)
        if details:
            view = await self._with_details(row, progress, view)
        if not view.over:
            return view
        # The store has everything that matters about a finished task; the server may still show its history.
        with suppress(Unreachable):
            temporal = await self._temporal()
            run_id = await temporal.run_id(task_id)
            return view.replace(run_id=run_id, ui_url=temporal.build_task_link(task_id) if run_id else None)
        return view

    async def get_last_known_task(self, task_id: str, *, details: bool = False) -> TaskView:
        """Return the task as `get_task` does; if no server answers, from the store, with a remark that says so.

        Raises UnknownTask.
        """
        try:
            return await self.get_task(task_id, details=details)
        except Unreachable as unreachable:
            row = await self._load_titled_row(task_id)
            progress, view = await load_stored_task(self._store, row, str(unreachable))
            return await self._with_details(row, progress, view) if details else view

    async def _load_row(self, task_id: str) -> TaskRow:
        return await self._store.get_task(task_id, self._reader)

    async def get_task_request(self, task_id: str) -> TaskRequest:
        """Return what a person asked for with this task. Raises UnknownTask."""
        return (await self._load_row(task_id)).request

    async def restore_placeholders(self, texts: Sequence[str]) -> Sequence[str]:
        """Return redacted texts as the reader of this client sees them: here with their placeholders."""
        return texts

    async def _restore_calls(self, approvals: Sequence[ApprovalView]) -> tuple[ApprovalView, ...]:
        """Restore in calls that wait for a person what they send, for readers who see originals."""
        actions = [one.action for one in approvals if one.action is not None]
        replaced = list(dict.fromkeys(found for action in actions for found in action.list_replaced_placeholders()))
        restored = dict(zip(replaced, await self.restore_placeholders(replaced), strict=True)) if replaced else {}
        originals = {placeholder: original for placeholder, original in restored.items() if placeholder != original}
        return tuple(
            [
                one if one.action is None else one.replace(action=one.action.with_originals(originals))
                for one in approvals
            ]
        )

    async def _load_titled_row(self, task_id: str) -> TaskRow:
        (row,) = await self._with_titles([await self._load_row(task_id)])
        return row

    async def _with_titles(self, rows: Sequence[TaskRow]) -> list[TaskRow]:
        titles = await self.restore_placeholders([row.title for row in rows])
        return [row.replace(title=title) for row, title in zip(rows, titles, strict=True)]

    async def _look_up(self, row: TaskRow) -> tuple[TaskProgress, TaskView]:
        """Return what the store or the workflow knows of the task, and its view. Raises Unreachable."""
        if row.progress is not None and row.progress.phase.over:
            return row.progress, TaskView.from_progress(row.progress).with_stored_request(row)
        temporal = await self._temporal()
        run = await temporal.find_task_run(row.ref.task_id)
        remark = ""
        if run is not None and run.progress is not None:
            progress = with_stored_reports(row, run.progress)
        else:
            phase, remark = describe_unresponsive_task(run)
            progress = as_stored(row, phase)
        progress = await with_spending(self._store, progress)
        view = TaskView.from_progress(progress).with_stored_request(row)
        return progress, view.replace(
            approvals=await self._restore_calls(view.approvals),
            run_id=run.run_id if run is not None else None,
            ui_url=temporal.build_task_link(row.ref.task_id),
            remark=remark,
            waiting_for=run.retry_reasons if run is not None and not remark else (),
            activity=run.agent_statuses if run is not None and not remark else (),
        )

    async def _look_up_or_load(self, row: TaskRow) -> tuple[TaskProgress, TaskView]:
        """Return the same; if no server answers, from the store."""
        try:
            return await self._look_up(row)
        except Unreachable as unreachable:
            return await load_stored_task(self._store, row, str(unreachable))

    async def _with_details(self, row: TaskRow, progress: TaskProgress, view: TaskView) -> TaskView:
        from waystation.client.submission import load_task_messages  # noqa: PLC0415

        with suppress(Unreachable):
            view = view.with_origins(await find_answer_origins(await self._temporal(), progress))
        view = await store_queries.add_stored_details(self._store, view, row)
        return view.replace(messages=await load_task_messages(self._store, progress, self._reader))

    async def watch(self, task_id: str, again: float = inf) -> AsyncGenerator[TaskView]:
        """Yield the task whenever it has changed, or after `again` seconds without a change, until it is over."""
        clock, yielded, shown = asyncio.get_running_loop().time, 0.0, None
        pause = self.watch_seconds
        while shown is None or not shown.over:
            if (seen := await self.get_task(task_id)) == shown and clock() - yielded < again:
                await asyncio.sleep(pause)
                pause = max(self.watch_seconds, min(pause * 1.5, MAX_WATCH_SECONDS))
                continue
            if seen != shown:
                pause = self.watch_seconds
            shown, yielded = seen, clock()
            yield seen

    async def list_tasks(
        self, task_filter: TaskFilter = EVERY_TASK, maximum: int = store_queries.DEFAULT_TASK_LIMIT
    ) -> tuple[TaskView, ...]:
        """Return the newest tasks, or all that match the filter. Without a server, running tasks are as last stored."""
        listed = await store_queries.list_task_rows(self._store, self._settings.tenant, task_filter, maximum)
        rows = [row for row in await self._with_titles(listed) if task_filter.may_match(row)]
        found = await asyncio.gather(*map(self._look_up_or_load, rows))
        return tuple(view for _, view in found if task_filter.matches_phase(view.phase))

    async def list_events(self, after: int, task_id: str | None = None, limit: int = EVENT_PAGE_LIMIT) -> EventPage:
        """Return up to `limit` events after the number `after`, of one task or of all of the tenant's.

        Raises UnknownTask.
        """
        if task_id is not None:
            await self._load_row(task_id)
        return await self._store.list_events(self._reader, after, limit, task_id)

    async def get_newest_event_number(self) -> int:
        """Return the number of the newest event of the tenant's tasks; 0 before the first."""
        return await self._store.get_newest_event_number(self._reader)

    async def watch_task(self, task_id: str) -> None:
        """Have the task's agents store what they are thinking and writing, for the next `WATCH_LIFETIME`.

        Raises UnknownTask.
        """
        if not await self.is_over(task_id):
            await self._store.watch_task(task_id, utc_now() + WATCH_LIFETIME, self._reader)

    async def list_partial_replies(self, task_id: str) -> tuple[PartialReply, ...]:
        """Return what the task's agents are thinking and writing, if `watch_task` was called in time."""
        return await self._store.list_partial_replies(task_id, self._reader)

    async def is_over(self, task_id: str) -> bool:
        """Return whether the task has ended, according to the store. Raises UnknownTask."""
        progress = (await self._load_row(task_id)).progress
        return progress is not None and progress.phase.over

    async def get_report(self, task_id: str, version: int | None = None) -> str:
        """Return the newest report, or this version of it, as Markdown, from the store. Raises BadInput."""
        return (await self.load_report(task_id, version)).markdown

    async def load_report(self, task_id: str, version: int | None = None) -> ReportView:
        """Return the newest report, or this version of it, also if no server answers.

        Raises BadInput if there is none; UnknownTask.
        """
        progress, view = await self._look_up_or_load(await self._load_titled_row(task_id))
        number = store_queries.get_report_version(view, version).number
        blob = next(one.report for one in progress.report_versions if one.number == number)
        markdown = await self._restore_question(await self._store.get_text(blob, self._reader))
        return ReportView(
            task_id=task_id,
            phase=view.phase,
            version=number,
            versions=view.reports,
            model=view.model,
            markdown=markdown,
            sentences=await asyncio.to_thread(extract_cited_sentences, markdown),
        )

    async def _restore_question(self, markdown: str) -> str:
        """Restore the question at the top of a report: its title, and a paragraph of its own."""
        from waystation.reports.report import QUESTION_LABEL  # noqa: PLC0415  lists show no report

        lines = markdown.split("\n")
        places = [place for place, line in enumerate(lines[:MAX_HEAD_LINES]) if line.startswith(("# ", QUESTION_LABEL))]
        placeholders = list(dict.fromkeys(PLACEHOLDER_PATTERN.findall("\n".join(lines[place] for place in places))))
        originals = await self.restore_placeholders(placeholders)
        for placeholder, original in zip(placeholders, originals, strict=True):
            for place in places:
                lines[place] = lines[place].replace(placeholder, neutralize_markdown(original))
        return "\n".join(lines)

    async def build_draft(self, task_id: str) -> ReportView:
        """Build the report that the task would deliver if it ended now. Raises BadInput if there is nothing to show."""
        row = await self._load_row(task_id)
        store_queries.require_not_forgotten(task_id, row.title)
        progress, _ = await self._look_up_or_load(row)
        return await build_report_draft(self._settings, self._store, row.ref, progress)

    async def get_bill(self, task_id: str) -> CostBreakdown:
        """Return the task's cost so far, from the store. Raises UnknownTask."""
        return (await self.get_payments(task_id)).cost_breakdown

    async def count_temporal_actions(self, task_id: str) -> TemporalActionCounts | None:
        """Count the task's Temporal actions in histories; None if the server no longer has them.

        Raises UnknownTask.
        """
        row = await self._load_row(task_id)
        return await (await self._temporal()).count_actions(row.ref.task_id)

    async def get_payments(self, task_id: str) -> TaskCharges:
        """Return the task's charges, call by call."""
        reused = progress.reused if (progress := (await self._load_row(task_id)).progress) else None
        return (await self._store.list_task_charges(task_id, self._reader)).replace(reused=reused)

    async def get_spending(self, days: DayRange, session: str | None = None) -> SpendingReport:
        """Return the spending of the tenant's tasks, or of a session's, in these days.

        Raises BadInput if that is too much.
        """
        found = await self._store.get_spending(days, build_reader_scope(self._settings.tenant, session))
        titles = await self.restore_placeholders([*found.titles.values()])
        return found.replace(titles=dict(zip(found.titles, titles, strict=True)))

    async def list_sessions(
        self, first: int = 0, count: int = store_queries.DEFAULT_TASK_LIMIT
    ) -> tuple[SessionSummary, ...]:
        """Return `count` of the tenant's sessions, starting at index `first`, those with the newest tasks first."""
        found = await self._store.list_sessions(self._reader, first, count)
        titles = await self.restore_placeholders([one.first_title for one in found])
        return tuple([one.replace(first_title=title) for one, title in zip(found, titles, strict=True)])

    async def get_transcript(self, task_id: str, agent: str) -> Transcript:
        """Return the transcript of one agent. Raises BadInput for an agent that the task does not have."""
        store_queries.require_not_forgotten(task_id, (await self._load_row(task_id)).title)
        (agent,) = await store_queries.list_agent_ids(self._store, task_id, self._reader, agent)
        return await self._store.load_transcript(f"{task_id}/{agent}", self._reader)

    async def audit_compactions(
        self, task_id: str, agent: str | None = None, memory: MemoryWithEmbedder | None = None
    ) -> tuple[AgentCompactionAudits, ...]:
        """Return what the compactions of one agent, or of all, kept and lost.

        Raises as `agent_contexts.audit_compactions`.
        """
        from waystation.client.agent_contexts import audit_compactions  # noqa: PLC0415

        return await audit_compactions(self._settings, self._store, await self._load_row(task_id), agent, memory)

    async def create_report_link(self, task_id: str, wanted: "NewReportLink", made_by: str = "") -> "MadeReportLink":
        """Make a read-only link to a task's report as it is now. Its address is in the result only.

        Args:
            task_id: Id of the task.
            wanted: What the link shows, and for how long.
            made_by: Name of the person who makes it.

        Raises BadInput if there is no report yet, or too many links are open; UnknownTask.
        """
        from waystation.client.report_links import create_link  # noqa: PLC0415

        version = (await self.load_report(task_id)).version
        if version is None:
            raise BadInput(f"{task_id} has no report yet")
        return await create_link(self._store, await self._load_row(task_id), version, wanted, made_by)

    async def list_report_links(self, task_id: str) -> "tuple[ReportLink, ...]":
        """Return the links to a task's report, the newest first."""
        return await self._store.list_report_links(task_id, self._reader)

    async def revoke_report_link(self, task_id: str, link_id: str) -> "ReportLink":
        """Revoke a link from now on. Raises BadInput for one that this task does not have; UnknownTask."""
        return await self._store.revoke_report_link((await self._load_row(task_id)).ref.task_id, link_id, utc_now())

    async def open_report_link(self, address: str) -> "SharedReport | None":
        """Return what the address of a link opens, of whatever tenant; None if it opens nothing (any more)."""
        from waystation.client.report_links import open_link  # noqa: PLC0415

        return await open_link(self._store, address)

    async def get_activity(
        self,
        task_id: str,
        activity_filter: "ActivityFilter | None" = None,
        events: Sequence[TaskEvent] | None = None,
    ) -> "ActivityView":
        """Return what a task's agents did: its events, and figures about tool calls and compactions.

        Args:
            task_id: Id of the task.
            activity_filter: What to return. None: everything.
            events: All events of the task, if they are known already.

        Raises UnknownTask.
        """
        from waystation.client.activity import load_activity  # noqa: PLC0415

        row = await self._load_row(task_id)
        _, view = await self._look_up_or_load(row)
        return await load_activity(self._store, row, view, activity_filter, events)

    async def list_agent_contexts(self, task_id: str, agent: str | None = None) -> tuple[NextPromptView, ...]:
        """Return the prompt sections of agents' next requests. Raises as `agent_contexts.load_agent_contexts`."""
        from waystation.client.agent_contexts import load_agent_contexts  # noqa: PLC0415

        view = await self.get_task(task_id)
        return await load_agent_contexts(
            self._store, await self._load_row(task_id), view, agent, self._settings.tool_policy
        )

    async def list_approvals(self, session: str | None = None) -> tuple[PendingApproval, ...]:
        """Return pending requests of the tenant's tasks, or of a session's, the most urgent first.

        Raises Unreachable.
        """
        found = await load_pending_approvals(
            await self._temporal(), self._store, build_reader_scope(self._settings.tenant, session)
        )
        titles = await self.restore_placeholders([one.title for one in found])
        approvals = await self._restore_calls([one.approval for one in found])
        shown = zip(found, titles, approvals, strict=True)
        return tuple([one.replace(title=title, approval=approval) for one, title, approval in shown])

    async def approve(
        self,
        task_id: str,
        *,
        request_id: str | None = None,
        amount: Amount | None = None,
        by: AnswerAuthor = "",
        note: str = "",
    ) -> AnswerResult:
        """Approve a request with the requested amount or another one. Without a request id: the only pending request.

        Raises:
            BadInput: The task does not run.
            Unreachable: The server does not answer.
        """
        meant = request_id or await self._resolve_only_request(task_id, approving=True)
        if isinstance(meant, AnswerResult):
            return meant
        given = build_approval([] if meant is None else [meant], amount, by, note)
        return (await self.send(task_id, APPROVAL, given)).answer

    async def deny(
        self,
        task_id: str,
        *,
        request_id: str | None = None,
        finish: _Finish = "partial",
        by: AnswerAuthor = "",
        note: str = "",
    ) -> AnswerResult:
        """Deny a budget request: the task ends with a partial report, or is cancelled. Raises as `approve` does."""
        meant = request_id or await self._resolve_only_request(task_id, approving=False)
        if isinstance(meant, AnswerResult):
            return meant
        given = build_denial([] if meant is None else [meant], finish, by, note)
        return (await self.send(task_id, DENIAL, given)).answer

    async def deliver(self, task_id: str, *, by: AnswerAuthor = "", note: str = "") -> UpdateResult:
        """End a task with a report of what it has: deny its open requests, and ask its agents to submit their results.

        Raises as `approve` does. The result has the denied requests in `each`.
        """
        with translating_input_faults():
            given = DeliverInput(note=note).sign(by)
        view = await self.get_task(task_id)
        if view.over:
            read = f"; `waystation report {task_id}` prints its report" if view.reports else ""
            raise BadInput(f"{task_id} has already ended: {view.phase}{read}")
        return await self.send(task_id, DELIVERY, given)

    async def _resolve_only_request(self, task_id: str, *, approving: bool) -> str | AnswerResult | None:
        row = await self._load_row(task_id)
        return await resolve_only_request(await self._temporal(), self._store, row, approving=approving)

    async def approve_many(
        self,
        task_id: str,
        request_ids: Sequence[str],
        amount: Amount | None = None,
        *,
        by: AnswerAuthor = "",
        note: str = "",
    ) -> dict[str, AnswerResult]:
        """Approve several requests in one signal.

        Returns the result of each by request id; raises as `approve` does.
        """
        if not request_ids:
            return {}
        given = build_approval(request_ids, amount, by, note)
        return get_result_of_each(await self.send(task_id, APPROVAL, given), request_ids)

    async def deny_many(
        self, task_id: str, request_ids: Sequence[str], *, by: AnswerAuthor = "", note: str = ""
    ) -> dict[str, AnswerResult]:
        """Refuse several in one moment, so that none goes on with what another leaves. Raises as `approve` does."""
        if not request_ids:
            return {}
        given = build_denial(request_ids, "partial", by, note)
        return get_result_of_each(await self.send(task_id, DENIAL, given), request_ids)

    async def get_plan(self, task_id: str) -> Plan:
        """Return a task's newest plan, goals included. Raises UnknownTask; BadInput if it has none yet."""
        return await store_queries.load_plan(self._store, await self._load_row(task_id))

    async def get_planned_task(self, task_id: str) -> PlannedTask:
        """Return the plan with the budget of each step, the documents and the usual spending.

        Raises as `get_plan`; Unreachable.
        """
        row = await self._load_row(task_id)
        _, view = await self._look_up_or_load(row)
        return await load_planned_task(self._store, row, view)

    async def review_plan(
        self, task_id: str, plan: Plan, by: str = "", note: str = "", request_id: str | None = None
    ) -> AnswerResult:
        """Replace the plan of a task that waits for its approval. `request_id`: only if this request still waits.

        Raises:
            BadInput: Also if there is no plan yet.
            Unreachable: The server does not answer.
        """
        row = await self._load_row(task_id)
        await store_queries.load_plan(self._store, row)
        _, view = await self._look_up_or_load(row)
        store_queries.validate_plan_shares(plan, view)
        blob = await self._store.put_text(plan.model_dump_json(), row.ref.scope)
        with translating_input_faults():
            given = ReviewPlanInput(plan=blob, note=note, request_id=request_id)
        return (await self.send(task_id, PLAN, given.sign(by))).answer

    async def edit_context(self, task_id: str, edit: ContextEditInput, instructions: str = "") -> AnswerResult:
        """Edit the context of a running agent, or rewind an agent of a finished task, which then continues.

        Args:
            task_id: Id of the task.
            edit: The edit.
            instructions: What the summary of a compaction must preserve or stress.

        Raises:
            BadInput: The edit is not possible.
            Unreachable: The server does not answer.
        """
        from waystation.client.agent_contexts import rewind_finished_task, validate_summary_instructions  # noqa: PLC0415

        if (await self.get_task(task_id)).over:
            return await rewind_finished_task(self._store, await self._temporal(), await self._load_row(task_id), edit)
        task = (await self._load_row(task_id)).ref.scope
        blob = await self._store.put_text(validate_summary_instructions(instructions), task) if instructions else None
        return (await self.send(task_id, EDIT, edit.replace(instructions=blob))).answer

    async def send_message(self, task_id: str, words: str, by: str = "") -> AnswerResult:
        """Send all agents of a running task a message, each at its next turn. Raises BadInput, Unreachable."""
        from waystation.client.submission import annotate_message_answer, validate_message_text  # noqa: PLC0415

        view = await self.get_task(task_id)
        row = await self._load_row(task_id)
        blob = await self._store.put_text(validate_message_text(row, view.phase, words), row.ref.scope)
        result = await self.send(task_id, MESSAGE, TaskMessageInput(message=blob).sign(by))
        return annotate_message_answer(result.answer, view.model)

    async def list_documents(self, task_id: str) -> tuple[Document, ...]:
        """Return a task's current documents, in the order of their numbers. Raises UnknownTask."""
        return await self._store.list_documents((await self._load_row(task_id)).ref.task_id, self._reader)

    async def get_document_text(self, task_id: str, name: str) -> str:
        """Return the text of a document as it was submitted.

        Raises UnknownTask; BadInput if no document has that name now.
        """
        return await store_queries.load_document_text(self._store, await self._load_row(task_id), name)

    async def get_redacted_document_text(self, task_id: str, name: str) -> str:
        """Return the text of a document as agents were shown it, with the same lines. It may take seconds.

        Raises UnknownTask; BadInput if no document has that name now; RedactionFailed.
        """
        return await store_queries.load_redacted_document_text(self._settings, task_id, name)

    async def redact_file_previews(self, found: "FilePreviews") -> "FilePreviews":
        """Replace private values in previews of files, as the policy of the settings does before a model call.

        It loads the redactor, which takes seconds and hundreds of megabytes. Raises BadInput for the key.
        """
        from waystation.client.file_previews import redact_file_previews  # noqa: PLC0415

        return await redact_file_previews(found, self._settings)

    async def update_documents(
        self, task_id: str, paths: Sequence[Path], *, remove_missing: bool = False, by: str = ""
    ) -> "DocumentUpdateAnswer":
        """Read those documents of a running task that have changed, and notify its agents.

        Raises BadInput, Unreachable.
        """
        from waystation.client.submission import load_changed_documents  # noqa: PLC0415

        loaded = await load_changed_documents(await self.list_documents(task_id), paths)
        return await self.apply_loaded_documents(task_id, loaded, remove_missing=remove_missing, by=by)

    async def apply_loaded_documents(
        self, task_id: str, loaded: "DocumentLoadResult", *, remove_missing: bool = False, by: str = ""
    ) -> "DocumentUpdateAnswer":
        """Update a running task with documents that were read already. Raises BadInput, Unreachable."""
        from waystation.client import submission  # noqa: PLC0415

        row = await self._load_row(task_id)
        progress, _ = await self._look_up(row)
        submission.require_running(row, progress.phase)
        again = await submission.compare_documents(self._store, row.ref.scope, loaded, remove_missing=remove_missing)
        if submission.is_document_set_unchanged(again, progress):
            return again.to_answer(submission.UNCHANGED)
        given = DocumentsUpdateInput(documents=await submission.store_document_set(self._store, again, row.ref.scope))
        return again.to_answer((await self.send(task_id, UPDATE, given.sign(by))).answer)

    async def send(self, task_id: str, signal: TaskSignalDefinition[InputT], message: InputT) -> UpdateResult:
        """Send a task a message, and return what became of it.

        Args:
            task_id: Id of the task.
            signal: The row of `SIGNALS`.
            message: The message, of the model that the row names.

        Raises:
            BadInput: The task does not run.
            Unreachable: The server does not answer.
            UnknownTask: There is no such task.
        """
        # Not the whole row: its question and documents are not needed to send a task something.
        if task_id not in await self._store.find_task_ids(task_id, self._reader):
            raise build_unknown_task_error(task_id)
        task = TaskMessageClient(await self._temporal(), task_id)
        return await task.send(signal.name, message.model_dump(mode="json", exclude_defaults=True))

    async def cancel(self, task_id: str) -> TaskPhase:
        """Ask the task to stop, unless it is over. Returns its phase from before. Raises UnknownTask, Unreachable."""
        phase = (await self.get_task(task_id)).phase
        if phase.over:
            return phase
        try:
            await (await self._temporal()).cancel(task_id)
        except BadInput:
            if phase is not TaskPhase.SUBMITTED:
                raise
            await cancel_submitted_task(self._store, await self._load_row(task_id))
        return phase
