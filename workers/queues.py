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
from activities.ledger import LedgerActivities, MessageActivities, StateActivities
from activities.memory import DocumentActivities, MemoryActivities
from activities.removal import PersonErasureActivities, RetentionActivities, TaskRemovalActivities
from activities.schedules import ScheduleActivities
from activities.sessions import ForkActivities, RewindActivities, SessionActivities
from activities.tasks import NotificationActivities, OversightActivities, PlanningActivities, ReportActivities
from waystation import __version__
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.temporal_names import AGENTS_QUEUE, CONTEXT_QUEUE, QUEUE_PREFIX, QUEUES, WORKFLOWS_QUEUE
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.codec import is_encryption_enabled
from waystation.runtime.temporal.erasure_client import is_workflow_running
from waystation.tasks.session import WorkerCapabilities
from workers.activity_deps import ActivityDeps, SessionContextInterceptor
from workers.external_systems import ExternalDataEraser, TemporalTaskIntake
from workflows.index_documents import IndexDocumentsWorkflow
from workflows.notification import NotificationWorkflow
from workflows.payload_limit import PayloadLimit
from workflows.removal import ErasePersonWorkflow, ForgetTasksWorkflow, RetentionWorkflow
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
    notices: NotificationActivities
    timing: WorkerTiming
    attempts: Sequence[Interceptor] = ()
    """Told of every attempt at an activity."""

    @property
    def external_data_eraser(self) -> ExternalDataEraser:
        """What lies outside the store."""
        return ExternalDataEraser(self.client, self.settings)

    @property
    def task_intake(self) -> TemporalTaskIntake:
        """Where the work of this process reaches sessions."""
        return TemporalTaskIntake(self.client, self.store, self.settings)

    @property
    def schedule_activities(self) -> ScheduleActivities:
        """What scheduled runs do."""
        return ScheduleActivities(self.store, self.task_intake, utc_now)

    def build_planning_activities(self, parts: ActivityDeps) -> PlanningActivities:
        """Admission and plans."""
        equipment = WorkerCapabilities(
            search_attributes=self.search_attributes,
            notices=self.settings.sends_notifications,
            privacy=self.settings.privacy,
            sealed_answers=is_encryption_enabled(self.client.data_converter),
            approvers=self.settings.approvers,
        )
        return PlanningActivities(parts.planner, self.store, parts.redactor, equipment)


DEPLOYMENT_CONFIG = WorkerDeploymentConfig(
    version=WorkerDeploymentVersion(deployment_name="waystation", build_id=__version__), use_worker_versioning=False
)
"""What Temporal's histories name as the code that ran. Without it the SDK hashes every loaded module at the start."""


def create_workflows_worker(shop: WorkerContext) -> Worker:
    """Workflows, and the activities that need nothing but the store or the webhook."""
    store = shop.store
    runs = partial(is_workflow_running, shop.client)
    ledger, sessions = LedgerActivities(store), SessionActivities(runs, store, shop.task_intake.tasks.signal_session)
    sent, states, schedules = MessageActivities(store), StateActivities(store), shop.schedule_activities
    retention = RetentionActivities(days=shop.settings.retention_days, store=store, clock=utc_now, runs=runs)
    return Worker(
        shop.client,
        task_queue=WORKFLOWS_QUEUE,
        workflows=[
            SessionWorkflow,
            TaskWorkflow,
            SubagentWorkflow,
            NotificationWorkflow,
            ForgetTasksWorkflow,
            ErasePersonWorkflow,
            IndexDocumentsWorkflow,
            RetentionWorkflow,
            ScheduledRunWorkflow,
        ],
        activities=[
            ledger.read_run_totals,
            ledger.take_over_run,
            ledger.record_audit_entries,
            sessions.reconcile_tasks,
            sessions.store_refusal,
            sessions.signal_session,
            sessions.take_over_session,
            sessions.save_session,
            shop.notices.send_notification,
            retention.find_expired_tasks,
            ForkActivities(store).load_fork_state,
            sent.store_message,
            sent.update_documents,
            states.store_state_chunk,
            states.load_state_chunk,
            schedules.begin_run,
            schedules.request_admission,
            schedules.get_task_status,
            schedules.pause_schedule,
        ],
        interceptors=[*shop.attempts, PayloadLimit()],
        max_heartbeat_throttle_interval=NOTICES_HEARD_WITHIN,
        workflow_runner=shop.runner,
        graceful_shutdown_timeout=shop.timing.grace,
        deployment_config=DEPLOYMENT_CONFIG,
    )


def create_agents_worker(shop: WorkerContext, parts: ActivityDeps) -> Worker:
    """Legs and plans: they wait for models most of the time."""
    agents, oversight = AgentActivities(parts.agent_loop), OversightActivities(parts.reviser, parts.reviewer)
    taken_on = build_worker_tuning(shop.settings, shop.settings.agents_at_once)
    return Worker(
        shop.client,
        task_queue=AGENTS_QUEUE,
        interceptors=[*shop.attempts, SessionContextInterceptor()],
        activities=[
            agents.run_research_leg,
            agents.run_analysis_leg,
            agents.run_writing_leg,
            shop.build_planning_activities(parts).create_plan,
            oversight.revise_plan,
            oversight.review_report,
        ],
        tuner=taken_on.slots,
        activity_task_poller_behavior=taken_on.polling,
        max_heartbeat_throttle_interval=shop.timing.heartbeats,
        graceful_shutdown_timeout=shop.timing.grace,
        deployment_config=DEPLOYMENT_CONFIG,
    )


def create_context_worker(shop: WorkerContext, parts: ActivityDeps) -> Worker:
    """Compaction, memory, admission and reports: what redacts and embeds."""
    taken_on = build_worker_tuning(shop.settings, shop.settings.contexts_at_once)
    context, planning = ContextActivities(parts.compactor, parts.meter), shop.build_planning_activities(parts)
    forgetting = TaskRemovalActivities(shop.store, parts.outbox_drainer, shop.external_data_eraser)
    memory = MemoryActivities(parts.outbox_drainer)
    return Worker(
        shop.client,
        task_queue=CONTEXT_QUEUE,
        interceptors=[*shop.attempts, SessionContextInterceptor()],
        activities=[
            context.compress,
            context.edit,
            memory.drain_outbox,
            memory.search_memory,
            memory.count_passages,
            DocumentActivities(parts.document_indexer).index_next_slice,
            ReportActivities(parts.publisher, shop.store).store_report,
            RewindActivities(parts.rewinder, shop.store).reopen_task,
            forgetting.forget_tasks,
            forgetting.forget_passages,
            forgetting.clean_up_after_tasks,
            *_persons(shop, parts),
            planning.admit_task,
            planning.apply_plan_edit,
        ],
        tuner=taken_on.slots,
        activity_task_poller_behavior=taken_on.polling,
        max_heartbeat_throttle_interval=shop.timing.heartbeats,
        graceful_shutdown_timeout=shop.timing.grace,
        deployment_config=DEPLOYMENT_CONFIG,
    )


def _persons(shop: WorkerContext, parts: ActivityDeps) -> Sequence[Callable[..., Awaitable[object]]]:
    """Nobody can be erased without the vault, which has the value meanwhile."""
    if parts.vault is None:
        return ()
    persons = PersonErasureActivities(shop.store, parts.outbox_drainer, parts.vault, shop.external_data_eraser)
    return (
        persons.find_person,
        persons.erase_from_store,
        persons.rewrite_passages,
        persons.rewrite_reports,
        persons.delete_histories,
        persons.drop_originals,
    )


WORKER_FACTORIES: Mapping[str, Callable[[WorkerContext, ActivityDeps], Worker]] = {
    AGENTS_QUEUE: create_agents_worker,
    CONTEXT_QUEUE: create_context_worker,
}


def select_served_queues(settings: Settings) -> frozenset[str]:
    """The queues that this process shall serve: all, or those that `queues` names.

    Raises:
        BadInput: a name that no queue has, or fewer than all with embedded memory.
    """
    short = {queue.removeprefix(QUEUE_PREFIX): queue for queue in QUEUES}
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
