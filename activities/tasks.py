"""Activities of a task as a whole: admission, planning, revision and review, report, notification."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from pydantic import TypeAdapter
from temporalio import activity

from waystation.activities.activity_errors import heartbeating, translating_errors
from waystation.agents.planner import Planner, PlanningResult
from waystation.agents.structured_caller import CallOptions
from waystation.documents.ports import DocumentReader, TextStore
from waystation.kernel.amount import Limit
from waystation.kernel.errors import WebhookUnavailable, WrongStore
from waystation.kernel.json_chunks import StateRef
from waystation.kernel.refs import TaskRef
from waystation.kernel.value import Value
from waystation.models.profiles import Effort, Price
from waystation.planning.plan import PlanEdit, PlanEditResult, RevisionResult
from waystation.privacy.policy import RedactionPolicy, TextDestination, truncate_redacted
from waystation.privacy.ports import Redactor
from waystation.reports.publisher import PublishedReport, ReportPublisher
from waystation.reports.reviewers import PlanReviser, ReportReviewer
from waystation.reports.sentence_judge import SentenceJudge
from waystation.tasks.notifications import Notification
from waystation.tasks.ports import Notifier, TaskReader, TaskRepository
from waystation.tasks.progress import build_task_progress
from waystation.tasks.reviews import JudgeRequest, JudgeResult, ReviewRequest, ReviewResult, RevisionRequest
from waystation.tasks.session import AdmissionResult, WorkerCapabilities
from waystation.tasks.state_storage import clear_task_refusal, load_state

_TITLE_CHARACTERS = 120


class PlanRequest(Value):
    """Which task to plan, with which model, prices and limit."""

    ref: TaskRef
    model: str
    effort: Effort | None = None
    limit: Limit
    prices: tuple[Price, ...] = ()


class EditedPlanRequest(Value):
    """A person's plan for a task."""

    ref: TaskRef
    edit: PlanEdit
    left: Limit
    """Limit for the steps of the plan."""


class AdmissionStore(TaskRepository, DocumentReader, Protocol):
    """Tasks that ask for admission, with their documents."""


class PlanningActivities:
    """Admission and planning."""

    def __init__(
        self,
        planner: Planner,
        store: AdmissionStore,
        redactor: Redactor,
        equipment: WorkerCapabilities,
        tenant_weights: Mapping[str, float],
    ) -> None:
        """Build the activities. `tenant_weights` has the fairness weights of tenants, by the tenant's hash; 1 for those
        that are not in it.
        """
        self._planner, self._store, self._redactor = planner, store, redactor
        self._capabilities, self._tenant_weights = equipment, tenant_weights

    @activity.defn(name="AdmitTask")
    async def admit_task(self, ref: TaskRef) -> AdmissionResult:
        """Return what workflows may know of a task: its configuration, and its question redacted and shortened."""
        async with heartbeating():
            with translating_errors():
                store_id = await self._store.get_store_id()
                if store_id != ref.store_id:
                    raise WrongStore(ref.store_id, store_id)
                row, documents = await asyncio.gather(
                    self._store.get_task(ref.task_id, ref.scope), self._store.list_documents(ref.task_id, ref.scope)
                )
                row = await clear_task_refusal(self._store, row)
                title = row.title or await self._title(row.request.question, ref.tenant)
                await self._store.save_task_title(ref.task_id, title)
                ended = row.progress if row.progress is not None and row.progress.phase.over else None
                return AdmissionResult(
                    ref=ref,
                    config=row.config,
                    title=title,
                    documents=len(documents),
                    finished=ended is not None,
                    forked=row.request.forked_from is not None,
                    fairness_weight=self._tenant_weights.get(ref.tenant, 1.0),
                    budget=ended.budget if ended is not None else None,
                    **self._capabilities.model_dump(),
                )

    @activity.defn(name="PlanTask")
    async def create_plan(self, request: PlanRequest) -> PlanningResult:
        """Create a runnable plan, returned without its goals."""
        async with heartbeating():
            with translating_errors(gives_up=True):
                return await self._planner.create_plan(
                    request.ref, CallOptions(request.model, request.limit, request.prices, request.effort)
                )

    @activity.defn(name="TakePlanEdit")
    async def apply_plan_edit(self, request: EditedPlanRequest) -> PlanEditResult:
        """Store a person's plan and return it without its goals, or return why it cannot be run, without its text."""
        with translating_errors():
            return await self._planner.apply_plan_edit(request.ref, request.edit, request.left)

    async def _title(self, question: str, tenant: str) -> str:
        (redacted,) = await self._redactor.redact([question], TextDestination.TITLE, tenant)
        line = " ".join(redacted.text.split())
        return truncate_redacted(line, _TITLE_CHARACTERS, " …")


class OversightActivities:
    """Plan revisions, report reviews and judgements of sentences."""

    def __init__(self, reviser: PlanReviser, reviewer: ReportReviewer, judge: SentenceJudge) -> None:
        self._reviser, self._reviewer, self._judge = reviser, reviewer, judge

    @activity.defn(name="RevisePlan")
    async def revise_plan(self, request: RevisionRequest) -> RevisionResult:
        """Return a revised plan without its goals, or none if the plan is kept."""
        async with heartbeating():
            with translating_errors(gives_up=True):
                return await self._reviser.revise(request)

    @activity.defn(name="ReviewReport")
    async def review_report(self, request: ReviewRequest) -> ReviewResult:
        """Return the number of faults found. The faults themselves are in the store, for the report's writer."""
        async with heartbeating():
            with translating_errors(gives_up=True):
                return await self._reviewer.review(request)

    @activity.defn(name="JudgeSentences")
    async def judge_sentences(self, request: JudgeRequest) -> JudgeResult:
        """Return the number of sentences that a model decided. The verdicts are in the store, for the report."""
        async with heartbeating():
            with translating_errors(gives_up=True):
                return await self._judge.judge(request)


class PublishRequest(Value):
    """Which task to report on. Its outcome is in the store, since it grows with the task."""

    ref: TaskRef
    state: StateRef
    """State in which the task ended, and from which it continues if it is rewound."""
    title: str
    privacy: RedactionPolicy | None = None
    at: datetime
    """When the task ended."""


class StateSource(TaskReader, TextStore, Protocol):
    """Tasks and their states."""


class ReportActivities:
    """Storing of reports."""

    def __init__(self, publisher: ReportPublisher, store: StateSource) -> None:
        self._publisher, self._store = publisher, store

    @activity.defn(name="StoreReport")
    async def store_report(self, request: PublishRequest) -> PublishedReport:
        """Assemble, check and store the report, and store the task's outcome."""
        async with heartbeating():
            with translating_errors():
                ref = request.ref
                terms = (await self._store.get_task(ref.task_id, ref.scope)).config
                state = await load_state(self._store, request.state, ref.scope)
                progress = build_task_progress(state, ref, terms, request.title, request.privacy)
                return await self._publisher.publish(ref, progress, state, request.at)


class NotificationActivities:
    """Notifies people by webhook and by messages."""

    def __init__(self, notifiers: Sequence[Notifier], link: Callable[[str], str | None]) -> None:
        """Initialise.

        Args:
            notifiers: All addressees.
            link: Returns the page of a task, or of a scheduled run, by its workflow ID, if one is known.
        """
        self._notifiers, self._link = notifiers, link

    @activity.defn(name="SendNotice")
    async def send_notification(self, notice: Notification) -> None:
        """Make one attempt to notify everyone.

        An addressee that has received the notification is reported to the server at once, in the heartbeat, and is
        skipped by later attempts on any worker. A worker without any address fails, so that another one sends it.
        """
        with translating_errors():
            if not self._notifiers:
                raise WebhookUnavailable(
                    "another worker accepted this notification, but this worker has neither "
                    "WAYSTATION_WEBHOOK nor WAYSTATION_NOTIFY: set it on all workers"
                )
            taken = list(_TAKEN.validate_python(activity.info().heartbeat_details))
            missing = [one for one in self._notifiers if one.name not in taken]
            told = await asyncio.gather(*(self._tell(one, notice, taken) for one in missing), return_exceptions=True)
            failed = [outcome for outcome in told if outcome is not None]
            if failed:
                # A transient failure is raised first, to be retried: a permanent rejection would end the attempts for
                # all.
                raise next((error for error in failed if isinstance(error, WebhookUnavailable)), failed[0])

    async def _tell(self, notifier: Notifier, notice: Notification, taken: list[str]) -> None:
        await notifier.send(notice, self._link(notice.workflow_id))
        taken.append(notifier.name)
        activity.heartbeat(*taken)


_TAKEN: TypeAdapter[tuple[str, ...]] = TypeAdapter(tuple[str, ...])
"""Names of the addressees that received a notification: place and kind, without the address."""
