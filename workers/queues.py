"""One worker for each queue: workflows with their bookkeeping, agents (they wait for models), context (CPU).

How much work a worker takes at once: a fixed number of activities, or as many as memory and processors bear.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import (
    Interceptor,
    PollerBehavior,
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    ResourceBasedSlotConfig,
    Worker,
    WorkerDeploymentConfig,
    WorkerTuner,
    WorkflowRunner,
)

from activities.agents import AgentActivities, ContextActivities
from activities.bookkeeping import LedgerActivities, SentActivities, StateActivities
from activities.memory import DocumentActivities, MemoryActivities
from activities.removal import ForgettingActivities, PersonActivities, RetentionActivities
from activities.schedules import ScheduleActivities
from activities.sessions import ForkActivities, RewindActivities, SessionActivities
from activities.tasks import NoticeActivities, OversightActivities, PlanningActivities, ReportActivities
from waystation import __version__
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.temporal_names import AGENTS_QUEUE, CONTEXT_QUEUE, QUEUES, QUEUES_BEGIN, WORKFLOWS_QUEUE
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.codec import is_encryption_enabled
from waystation.runtime.temporal.orders import is_workflow_running
from waystation.tasks.session import Equipment
from workers.outside import TemporalAndFiles, TemporalTaskIntake
from workers.parts import ActivityDeps, SessionContextInterceptor
from workflows.notice import NoticeWorkflow
from workflows.payload_limit import PayloadLimit
from workflows.remember import RememberWorkflow
from workflows.removal import ErasePersonWorkflow, ForgetWorkflow, RetentionWorkflow
from workflows.schedules import ScheduledRunWorkflow
from workflows.session import SessionWorkflow
from workflows.subagent import SubagentWorkflow
from workflows.task import TaskWorkflow


class WorkerTuningOptions(NamedTuple):
    """What one queue's worker takes on."""

    slots: WorkerTuner
    polling: PollerBehavior


def build_worker_tuning(settings: Settings, at_once: int) -> WorkerTuningOptions:
    """At most `at_once` activities; fewer while memory or processors are used beyond the settings' targets."""
    memory, cpu = settings.target_memory, settings.target_cpu
    if memory is None and cpu is None:
        return WorkerTuningOptions(WorkerTuner.create_fixed(activity_slots=at_once), PollerBehaviorSimpleMaximum())
    slots = WorkerTuner.create_resource_based(
        target_memory_usage=1.0 if memory is None else memory,
        target_cpu_usage=1.0 if cpu is None else cpu,
        activity_config=ResourceBasedSlotConfig(maximum_slots=at_once),
    )
    return WorkerTuningOptions(slots, PollerBehaviorAutoscaling())


class WorkerTiming(NamedTuple):
    """How a worker stops, and how often the server hears of its activities."""

    grace: timedelta
    """How long activities may go on after the worker was told to stop. A call in flight that is given up is paid."""
    heartbeats: timedelta
    """How often a heartbeat reaches the server at most. Its answer tells an activity that it was cancelled."""


DEV_TIMING = WorkerTiming(grace=timedelta(seconds=20), heartbeats=timedelta(seconds=4))
"""For one person at one machine: stopping and cancelling are quick, and there is no load that would matter."""
HEARTBEATS = timedelta(seconds=20)
"""Each heartbeat is a write of the server's. Well under the time-out (`workflows.options`), so that one may be lost."""


def get_worker_timing(settings: Settings) -> WorkerTiming:
    """Timing of workers that serve a team."""
    return WorkerTiming(grace=settings.worker_grace, heartbeats=HEARTBEATS)


NOTICES_HEARD_WITHIN = timedelta(milliseconds=100)
"""So soon the server knows who took a notice, for the attempt after one whose worker was killed."""


@dataclass(frozen=True)
class WorkerContext:
    """What the workers of one process share."""

    client: Client
    store: SqlStore
    settings: Settings
    runner: WorkflowRunner
    search_attributes: bool
    """Whether workflows may set them."""
    notices: NoticeActivities
    timing: WorkerTiming
    attempts: Sequence[Interceptor] = ()
    """Told of every attempt at an activity."""

    @property
    def outside(self) -> TemporalAndFiles:
        """What lies outside the store."""
        return TemporalAndFiles(self.client, self.settings)

    @property
    def desk(self) -> TemporalTaskIntake:
        """Where the work of this process reaches sessions."""
        return TemporalTaskIntake(self.client, self.store, self.settings)

    @property
    def schedules(self) -> ScheduleActivities:
        """What scheduled runs do."""
        return ScheduleActivities(self.store, self.desk, utc_now)

    def planning(self, parts: ActivityDeps) -> PlanningActivities:
        """Admission and plans."""
        equipment = Equipment(
            search_attributes=self.search_attributes,
            notices=self.settings.tells,
            privacy=self.settings.privacy,
            sealed_answers=is_encryption_enabled(self.client.data_converter),
            approvers=self.settings.approvers,
        )
        return PlanningActivities(parts.planner, self.store, parts.redactor, equipment)


BUILD = WorkerDeploymentConfig(
    version=WorkerDeploymentVersion(deployment_name="waystation", build_id=__version__), use_worker_versioning=False
)
"""What Temporal's histories name as the code that ran. Without it the SDK hashes every loaded module at the start."""


def create_workflows_worker(shop: WorkerContext) -> Worker:
    """Workflows, and the activities that need nothing but the store or the webhook."""
    store = shop.store
    runs = partial(is_workflow_running, shop.client)
    ledger, sessions = LedgerActivities(store), SessionActivities(runs, store, shop.desk.tasks.signal_session)
    sent, states, schedules = SentActivities(store), StateActivities(store), shop.schedules
    retention = RetentionActivities(days=shop.settings.retention_days, store=store, clock=utc_now, runs=runs)
    return Worker(
        shop.client,
        task_queue=WORKFLOWS_QUEUE,
        workflows=[
            SessionWorkflow,
            TaskWorkflow,
            SubagentWorkflow,
            NoticeWorkflow,
            ForgetWorkflow,
            ErasePersonWorkflow,
            RememberWorkflow,
            RetentionWorkflow,
            ScheduledRunWorkflow,
        ],
        activities=[
            ledger.totals,
            ledger.take_over,
            ledger.audit,
            sessions.reconcile,
            sessions.refuse,
            sessions.signal,
            sessions.take_over,
            sessions.save,
            shop.notices.send,
            retention.due,
            ForkActivities(store).take_over,
            sent.keep,
            sent.update,
            states.store,
            states.load,
            schedules.begin,
            schedules.request_admission,
            schedules.look,
            schedules.pause,
        ],
        interceptors=[*shop.attempts, PayloadLimit()],
        max_heartbeat_throttle_interval=NOTICES_HEARD_WITHIN,
        workflow_runner=shop.runner,
        graceful_shutdown_timeout=shop.timing.grace,
        deployment_config=BUILD,
    )


def create_agents_worker(shop: WorkerContext, parts: ActivityDeps) -> Worker:
    """Legs and plans: they wait for models most of the time."""
    agents, oversight = AgentActivities(parts.loop), OversightActivities(parts.reviser, parts.reviewer)
    taken_on = build_worker_tuning(shop.settings, shop.settings.agents_at_once)
    return Worker(
        shop.client,
        task_queue=AGENTS_QUEUE,
        interceptors=[*shop.attempts, SessionContextInterceptor()],
        activities=[
            agents.research,
            agents.analysis,
            agents.writing,
            shop.planning(parts).plan,
            oversight.revise,
            oversight.review,
        ],
        tuner=taken_on.slots,
        activity_task_poller_behavior=taken_on.polling,
        max_heartbeat_throttle_interval=shop.timing.heartbeats,
        graceful_shutdown_timeout=shop.timing.grace,
        deployment_config=BUILD,
    )


def create_context_worker(shop: WorkerContext, parts: ActivityDeps) -> Worker:
    """Compaction, memory, admission and reports: what redacts and embeds."""
    taken_on = build_worker_tuning(shop.settings, shop.settings.contexts_at_once)
    context, planning = ContextActivities(parts.condenser, parts.meter), shop.planning(parts)
    forgetting = ForgettingActivities(shop.store, parts.archive, shop.outside)
    memory = MemoryActivities(parts.archive)
    return Worker(
        shop.client,
        task_queue=CONTEXT_QUEUE,
        interceptors=[*shop.attempts, SessionContextInterceptor()],
        activities=[
            context.compress,
            context.edit,
            memory.drain,
            memory.search,
            memory.count,
            DocumentActivities(parts.librarian).remember,
            ReportActivities(parts.publisher, shop.store).store,
            RewindActivities(parts.rewinder, shop.store).reopen,
            forgetting.forget,
            forgetting.forget_passages,
            forgetting.tidy_up,
            *_persons(shop, parts),
            planning.admit,
            planning.take_edit,
        ],
        tuner=taken_on.slots,
        activity_task_poller_behavior=taken_on.polling,
        max_heartbeat_throttle_interval=shop.timing.heartbeats,
        graceful_shutdown_timeout=shop.timing.grace,
        deployment_config=BUILD,
    )


def _persons(shop: WorkerContext, parts: ActivityDeps) -> Sequence[Callable[..., Awaitable[object]]]:
    """Nobody can be erased without the vault, which has the value meanwhile."""
    if parts.vault is None:
        return ()
    persons = PersonActivities(shop.store, parts.archive, parts.vault, shop.outside)
    return (
        persons.find,
        persons.erase,
        persons.rewrite_passages,
        persons.rewrite_reports,
        persons.delete_histories,
        persons.drop_originals,
    )


WORKER_WITH_PARTS: Mapping[str, Callable[[WorkerContext, ActivityDeps], Worker]] = {
    AGENTS_QUEUE: create_agents_worker,
    CONTEXT_QUEUE: create_context_worker,
}


def select_served_queues(settings: Settings) -> frozenset[str]:
    """The queues that this process shall serve: all, or those that `queues` names.

    Raises:
        BadInput: a name that no queue has, or fewer than all with embedded memory.
    """
    short = {queue.removeprefix(QUEUES_BEGIN): queue for queue in QUEUES}
    names = [name.strip() for name in settings.queues.split(",") if name.strip()]
    if unknown := [name for name in names if name not in short]:
        raise BadInput(f"there is no queue {', '.join(unknown)}: the queues are {', '.join(short)}")
    queues = frozenset(short[name] for name in names) or frozenset(QUEUES)
    if queues < set(QUEUES) and settings.qdrant_url is None:
        raise BadInput(
            "without QDRANT_URL one process runs all queues, because embedded memory is opened by one process only: "
            "set QDRANT_URL to a Qdrant server, or leave the queues (--queues, WAYSTATION_QUEUES) out"
        )
    return queues
