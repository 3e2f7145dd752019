"""The workers of the task queues: workflows with their bookkeeping, agents (which wait for models) and context
(CPU-bound), with their concurrency and shutdown timing.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
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

from waystation import __version__
from waystation.activities.agents import AgentActivities, ContextActivities
from waystation.activities.ledger import LedgerActivities, MessageActivities, StateActivities
from waystation.activities.memory import DocumentActivities, MemoryActivities
from waystation.activities.removal import PersonErasureActivities, RetentionActivities, TaskRemovalActivities
from waystation.activities.schedules import ScheduleActivities
from waystation.activities.sessions import ForkActivities, RewindActivities, SessionActivities
from waystation.activities.tasks import (
    NotificationActivities,
    OversightActivities,
    PlanningActivities,
    ReportActivities,
)
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.temporal_names import (
    AGENTS_QUEUE,
    CONTEXT_QUEUE,
    QUEUE_PREFIX,
    QUEUES,
    WORKFLOWS_QUEUE,
    make_deployment_name,
)
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.codec import is_encryption_enabled
from waystation.runtime.temporal.erasure_client import is_workflow_running
from waystation.tasks.session import WorkerCapabilities
from waystation.tasks.task import tenant_hash
from waystation.workers.activity_deps import ActivityDeps, SessionContextInterceptor
from waystation.workers.external_systems import ExternalDataEraser, TemporalTaskIntake
from waystation.workflows.auto_upgrade import (
    AutoUpgradeNotificationWorkflow,
    AutoUpgradeRetentionWorkflow,
    AutoUpgradeSessionWorkflow,
)
from waystation.workflows.details import DetailsOnRequest
from waystation.workflows.index_documents import IndexDocumentsWorkflow
from waystation.workflows.notification import NotificationWorkflow
from waystation.workflows.payload_limit import PayloadLimit
from waystation.workflows.removal import ErasePersonWorkflow, ForgetTasksWorkflow, RetentionWorkflow
from waystation.workflows.schedules import ScheduledRunWorkflow
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.subagent import SubagentWorkflow
from waystation.workflows.task import TaskWorkflow


class WorkerTuningOptions(NamedTuple):
    """Concurrency of one queue's worker."""

    slots: WorkerTuner
    polling: PollerBehavior


def build_worker_tuning(settings: Settings, at_once: int) -> WorkerTuningOptions:
    """Build the concurrency: at most `at_once` activities; fewer while memory or CPU use exceeds the settings'
    targets.
    """
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
    """Timing of a worker's shutdown and heartbeats."""

    graceful_shutdown_timeout: timedelta
    """Time that activities have to finish after the worker is asked to stop.

    A call in flight that is abandoned is still charged.
    """
    heartbeat_throttle_interval: timedelta
    """Minimum interval between heartbeats that reach the server. Their answers tell activities of a cancellation."""


DEV_TIMING = WorkerTiming(
    graceful_shutdown_timeout=timedelta(seconds=20), heartbeat_throttle_interval=timedelta(seconds=4)
)
"""For one person on one machine: stopping and cancelling are quick, and server load does not matter."""
HEARTBEAT_THROTTLE_INTERVAL = timedelta(seconds=20)
"""Each heartbeat is a write on the server. Well below the timeout (`workflows/options.py`): one may be lost."""


def get_worker_timing(settings: Settings) -> WorkerTiming:
    """Return the timing of workers that serve a team."""
    return WorkerTiming(
        graceful_shutdown_timeout=settings.worker_grace, heartbeat_throttle_interval=HEARTBEAT_THROTTLE_INTERVAL
    )


NOTIFICATION_HEARTBEAT_INTERVAL = timedelta(milliseconds=100)
"""Heartbeat interval of notifications: the attempt after a killed worker's knows who has received them already."""


@dataclass(frozen=True)
class WorkerContext:
    """What the workers of one process share."""

    client: Client
    store: SqlStore
    settings: Settings
    runner: WorkflowRunner
    search_attributes: bool
    """Whether workflows may set search attributes."""
    notifications: NotificationActivities
    timing: WorkerTiming
    interceptors: Sequence[Interceptor] = ()
    """Interceptors that see every attempt at an activity."""

    @property
    def external_data_eraser(self) -> ExternalDataEraser:
        """Deletes data outside the store."""
        return ExternalDataEraser(self.client, self.settings)

    @property
    def task_intake(self) -> TemporalTaskIntake:
        """Connects activities to sessions."""
        return TemporalTaskIntake(self.client, self.store, self.settings)

    @property
    def schedule_activities(self) -> ScheduleActivities:
        """Activities of scheduled runs."""
        return ScheduleActivities(self.store, self.task_intake, utc_now)

    def build_planning_activities(self, parts: ActivityDeps) -> PlanningActivities:
        """Build the activities of admission and planning."""
        equipment = WorkerCapabilities(
            search_attributes=self.search_attributes,
            notifications=self.settings.sends_notifications,
            privacy=self.settings.privacy,
            requires_encrypted_messages=is_encryption_enabled(self.client.data_converter),
            approvers=self.settings.approvers,
        )
        weights = {tenant_hash(tenant): weight for tenant, weight in self.settings.tenant_weights.items()}
        return PlanningActivities(parts.planner, self.store, parts.redactor, equipment, weights)


def get_build_id(settings: Settings) -> str:
    """Return the build id of this process's code."""
    return settings.build_id or __version__


def build_deployment_config(settings: Settings) -> WorkerDeploymentConfig:
    """Return the version of the code as Temporal's histories name it: one deployment for all queues.

    Without worker versioning it is only a name; without any, the SDK hashes every loaded module at start-up.
    """
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(
            deployment_name=make_deployment_name(settings.prefix), build_id=get_build_id(settings)
        ),
        use_worker_versioning=settings.versioning,
        default_versioning_behavior=(
            VersioningBehavior.PINNED if settings.versioning else VersioningBehavior.UNSPECIFIED
        ),
    )


UNVERSIONED_WORKFLOWS = (SessionWorkflow, RetentionWorkflow, NotificationWorkflow)
AUTO_UPGRADE_WORKFLOWS = (
    AutoUpgradeSessionWorkflow,
    AutoUpgradeRetentionWorkflow,
    AutoUpgradeNotificationWorkflow,
)
"""The same types for workers with worker versioning."""


def create_workflows_worker(shop: WorkerContext) -> Worker:
    """Create the worker of workflows, and of activities that need only the store or the notifiers."""
    store = shop.store
    runs = partial(is_workflow_running, shop.client)
    ledger, sessions = LedgerActivities(store), SessionActivities(runs, store, shop.task_intake.tasks.signal_session)
    sent, states, schedules = MessageActivities(store), StateActivities(store), shop.schedule_activities
    retention = RetentionActivities(days=shop.settings.retention_days, store=store, clock=utc_now, is_open=runs)
    return Worker(
        shop.client,
        task_queue=WORKFLOWS_QUEUE,
        workflows=[
            TaskWorkflow,
            SubagentWorkflow,
            ForgetTasksWorkflow,
            ErasePersonWorkflow,
            IndexDocumentsWorkflow,
            ScheduledRunWorkflow,
            *(AUTO_UPGRADE_WORKFLOWS if shop.settings.versioning else UNVERSIONED_WORKFLOWS),
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
            shop.notifications.send_notification,
            retention.find_expired_tasks,
            ForkActivities(store).get_fork_state_ref,
            sent.store_message,
            sent.update_documents,
            states.store_state_chunk,
            states.load_state_chunk,
            schedules.begin_run,
            schedules.request_admission,
            schedules.get_task_status,
            schedules.pause_schedule,
            schedules.get_notification_setting,
        ],
        interceptors=[*shop.interceptors, PayloadLimit(), DetailsOnRequest()],
        max_heartbeat_throttle_interval=NOTIFICATION_HEARTBEAT_INTERVAL,
        workflow_runner=shop.runner,
        graceful_shutdown_timeout=shop.timing.graceful_shutdown_timeout,
        deployment_config=build_deployment_config(shop.settings),
    )


def create_agents_worker(shop: WorkerContext, parts: ActivityDeps) -> Worker:
    """Create the worker of legs and plans, which wait for models most of the time."""
    agents, oversight = (
        AgentActivities(parts.agent_loop),
        OversightActivities(parts.reviser, parts.reviewer, parts.sentence_judge),
    )
    taken_on = build_worker_tuning(shop.settings, shop.settings.agents_at_once)
    return Worker(
        shop.client,
        task_queue=AGENTS_QUEUE,
        interceptors=[*shop.interceptors, SessionContextInterceptor()],
        activities=[
            agents.run_research_leg,
            agents.run_analysis_leg,
            agents.run_writing_leg,
            shop.build_planning_activities(parts).create_plan,
            oversight.revise_plan,
            oversight.review_report,
            oversight.judge_sentences,
        ],
        tuner=taken_on.slots,
        activity_task_poller_behavior=taken_on.polling,
        max_heartbeat_throttle_interval=shop.timing.heartbeat_throttle_interval,
        graceful_shutdown_timeout=shop.timing.graceful_shutdown_timeout,
        deployment_config=build_deployment_config(shop.settings),
    )


def create_context_worker(shop: WorkerContext, parts: ActivityDeps) -> Worker:
    """Create the worker of compaction, memory, admission and reports: everything that redacts and embeds."""
    taken_on = build_worker_tuning(shop.settings, shop.settings.contexts_at_once)
    context, planning = ContextActivities(parts.compactor, parts.meter), shop.build_planning_activities(parts)
    forgetting = TaskRemovalActivities(shop.store, parts.outbox_drainer, shop.external_data_eraser)
    memory = MemoryActivities(parts.outbox_drainer)
    return Worker(
        shop.client,
        task_queue=CONTEXT_QUEUE,
        interceptors=[*shop.interceptors, SessionContextInterceptor()],
        activities=[
            context.compress,
            context.warm_cache,
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
        max_heartbeat_throttle_interval=shop.timing.heartbeat_throttle_interval,
        graceful_shutdown_timeout=shop.timing.graceful_shutdown_timeout,
        deployment_config=build_deployment_config(shop.settings),
    )


def _persons(shop: WorkerContext, parts: ActivityDeps) -> Sequence[Callable[..., Awaitable[object]]]:
    """Return the activities that erase a person; none without the vault, which keeps the value meanwhile."""
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
    """Return the queues that this process serves: all, or those that `queues` names.

    Raises:
        BadInput: There is no queue of that name, or fewer than all queues are named with embedded memory.
    """
    short = {queue.removeprefix(QUEUE_PREFIX): queue for queue in QUEUES}
    names = [name.strip() for name in settings.queues.split(",") if name.strip()]
    if unknown := [name for name in names if name not in short]:
        raise BadInput(f"there is no queue {', '.join(unknown)}: the queues are {', '.join(short)}")
    queues = frozenset(short[name] for name in names) or frozenset(QUEUES)
    if queues < set(QUEUES) and settings.qdrant_url is None:
        raise BadInput(
            "without QDRANT_URL one process runs all queues, because only one process can open embedded "
            "memory: set QDRANT_URL to a Qdrant server, or leave out --queues and WAYSTATION_QUEUES"
        )
    return queues
