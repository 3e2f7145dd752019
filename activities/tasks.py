"""The activities of a task as a whole: admitted, planned, looked over, reported, told of.

Activities at a task's beginning: admit it, plan it.

The activities that look over a task's work: its plan after the research, its report before people get it.

The activities at a task's end, and where it goes on after all.

The activity that sends a notice.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from pydantic import TypeAdapter
from temporalio import activity

from activities.activity_errors import heartbeating, translating_errors
from waystation.kernel.amount import Limit
from waystation.kernel.errors import WebhookUnavailable, WrongStore
from waystation.kernel.json_chunks import StateRef
from waystation.kernel.refs import TaskRef
from waystation.kernel.value import Value
from waystation.models.profiles import Price
from waystation.planning.plan import PlanEdit, PlanEditResult, RevisionResult
from waystation.planning.planner import Planner, PlanningResult
from waystation.privacy.policy import RedactionPolicy, TextDestination, truncate_redacted
from waystation.privacy.ports import Redactor
from waystation.reports.publisher import PublishedReport, ReportPublisher
from waystation.reports.reviewers import PlanReviser, ReportReviewer
from waystation.store.ports import Store
from waystation.tasks.notifications import TaskNotification
from waystation.tasks.ports import Notifier
from waystation.tasks.progress import build_task_progress
from waystation.tasks.reviews import ReviewRequest, ReviewResult, RevisionRequest
from waystation.tasks.session import AdmissionResult, WorkerCapabilities
from waystation.tasks.state_storage import clear_task_refusal, load_state

_TITLE_CHARACTERS = 120


class PlanRequest(Value):
    """Which task to plan, with which model, for how much at most."""

    ref: TaskRef
    model: str
    limit: Limit
    prices: tuple[Price, ...] = ()


class EditedPlanRequest(Value):
    """Which plan a person sent to which task."""

    ref: TaskRef
    edit: PlanEdit
    left: Limit
    """What there is for its steps."""


class PlanningActivities:
    """Admission and planning."""

    def __init__(
        self,
        planner: Planner,
        store: Store,
        redactor: Redactor,
        equipment: WorkerCapabilities,
    ) -> None:
        self._planner, self._store, self._redactor = planner, store, redactor
        self._equipment = equipment

    @activity.defn(name="AdmitTask")
    async def admit_task(self, ref: TaskRef) -> AdmissionResult:
        """What the workflows may know of a task: its terms, and its question redacted and shortened."""
        async with heartbeating():
            with translating_errors():
                store_id = await self._store.get_store_id()
                if store_id != ref.store_id:
                    raise WrongStore(ref.store_id, store_id)
                row = await clear_task_refusal(self._store, await self._store.get_task(ref.task_id, ref.scope))
                title = row.title or await self._title(row.request.question, ref.tenant)
                await self._store.save_task_title(ref.task_id, title)
                ended = row.progress if row.progress is not None and row.progress.phase.over else None
                return AdmissionResult(
                    ref=ref,
                    terms=row.terms,
                    title=title,
                    documents=len(await self._store.list_documents(ref.task_id, ref.scope)),
                    finished=ended is not None,
                    forked=row.request.forked_from is not None,
                    budget=ended.budget if ended is not None else None,
                    **self._equipment.model_dump(),
                )

    @activity.defn(name="PlanTask")
    async def create_plan(self, request: PlanRequest) -> PlanningResult:
        """A plan that can be run, without its goals."""
        async with heartbeating():
            with translating_errors():
                return await self._planner.create_plan(request.ref, request.model, request.limit, request.prices)

    @activity.defn(name="TakePlanEdit")
    async def apply_plan_edit(self, request: EditedPlanRequest) -> PlanEditResult:
        """The plan that a person sent, kept and without its goals; or why it cannot be run, without its words."""
        with translating_errors():
            return await self._planner.apply_plan_edit(request.ref, request.edit, request.left)

    async def _title(self, question: str, tenant: str) -> str:
        (redacted,) = await self._redactor.redact([question], TextDestination.TITLE, tenant)
        line = " ".join(redacted.text.split())
        return truncate_redacted(line, _TITLE_CHARACTERS, " …")


class OversightActivities:
    """Revisions and reviews."""

    def __init__(self, reviser: PlanReviser, reviewer: ReportReviewer) -> None:
        self._reviser, self._reviewer = reviser, reviewer

    @activity.defn(name="RevisePlan")
    async def revise_plan(self, request: RevisionRequest) -> RevisionResult:
        """A plan that can be run, without its goals; or none, where it is kept."""
        async with heartbeating():
            with translating_errors():
                return await self._reviser.revise(request)

    @activity.defn(name="ReviewReport")
    async def review_report(self, request: ReviewRequest) -> ReviewResult:
        """How many faults there are. What they are is in the store, and its writer may know it."""
        async with heartbeating():
            with translating_errors():
                return await self._reviewer.review(request)


class PublishRequest(Value):
    """Which task to report on. How it ended is in the store, since it grows with the task."""

    ref: TaskRef
    state: StateRef
    """In which the task ended, and from which it goes on if it is taken back."""
    title: str
    privacy: RedactionPolicy | None = None
    at: datetime
    """When it ended."""


class ReportActivities:
    """Reports."""

    def __init__(self, publisher: ReportPublisher, store: Store) -> None:
        self._publisher, self._store = publisher, store

    @activity.defn(name="StoreReport")
    async def store_report(self, request: PublishRequest) -> PublishedReport:
        """Assemble, check and store the report, and how the task ended."""
        async with heartbeating():
            with translating_errors():
                ref = request.ref
                terms = (await self._store.get_task(ref.task_id, ref.scope)).terms
                state = await load_state(self._store, request.state, ref.scope)
                progress = build_task_progress(state, ref, terms, request.title, request.privacy)
                return await self._publisher.publish(ref, progress, state, request.at)


class NotificationActivities:
    """Tells people by a webhook and by messages."""

    def __init__(self, notifiers: Sequence[Notifier], link: Callable[[str], str | None]) -> None:
        """`notifiers`: everybody who is to be told; `link`: a task's page, by its id, where one is known."""
        self._notifiers, self._link = notifiers, link

    @activity.defn(name="SendNotice")
    async def send_notification(self, notice: TaskNotification) -> None:
        """One attempt. Who has taken the notice is told to the server at once and is not told again, whichever worker
        has the next one. A worker without any address leaves it to that.
        """
        with translating_errors():
            if not self._notifiers:
                raise WebhookUnavailable(
                    "the task was admitted with notices, but this worker has neither WAYSTATION_WEBHOOK nor "
                    "WAYSTATION_NOTIFY: set it on all"
                )
            taken = list(_TAKEN.validate_python(activity.info().heartbeat_details))
            missing = [one for one in self._notifiers if one.name not in taken]
            told = await asyncio.gather(*(self._tell(one, notice, taken) for one in missing), return_exceptions=True)
            failed = [outcome for outcome in told if outcome is not None]
            if failed:
                # What may pass is tried again: one that refused for good would end that for all.
                raise next((error for error in failed if isinstance(error, WebhookUnavailable)), failed[0])

    async def _tell(self, to: Notifier, notice: TaskNotification, taken: list[str]) -> None:
        await to.send(notice, self._link(notice.task_id))
        taken.append(to.name)
        activity.heartbeat(*taken)


_TAKEN: TypeAdapter[tuple[str, ...]] = TypeAdapter(tuple[str, ...])
"""Names of those that took a notice: place and kind, without the address."""
