"""The composition root: which adapter stands behind which port, and which worker serves which queue."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker, WorkflowRunner

from activities.agents import AgentActivities
from activities.context import ContextActivities
from activities.heartbeats import INTERVAL
from activities.memory import MemoryActivities
from activities.planning import PlanningActivities
from activities.reports import ReportActivities
from activities.sessions import SessionActivities
from waystation.adapters.clock import utc_now
from waystation.adapters.documents.search import Bm25DocumentSearch
from waystation.adapters.embeddings.choice import best_embedder
from waystation.adapters.presidio.key import load_or_create_key
from waystation.adapters.presidio.redactor import PresidioRedactor
from waystation.adapters.qdrant.edge import QdrantEdgeMemory
from waystation.adapters.store.sql_store import SqlStore
from waystation.adapters.temporal.connect import connect, find_target
from waystation.adapters.temporal.search_attributes import ensure_search_attributes
from waystation.agents.archive import Archive
from waystation.agents.condenser import Condenser
from waystation.agents.contract import ContractWriter
from waystation.agents.loop import AgentLoop
from waystation.agents.metered import MeteredModel
from waystation.agents.planner import Planner
from waystation.agents.publisher import Publisher
from waystation.agents.recollection import Recollection
from waystation.agents.roles import Desk
from waystation.domain.names import AGENTS_QUEUE, CONTEXT_QUEUE, WORKFLOWS_QUEUE
from waystation.ports import ChatModel, DocumentSearch, Embedder, Memory
from waystation.settings import Settings
from workers.models import model_switch
from workers.sandbox import sandboxed
from workflows.session import SessionWorkflow
from workflows.task import TaskWorkflow

GRACE = timedelta(seconds=20)
"""So long legs may take to reach a turn boundary when the worker stops."""
STICKY = timedelta(seconds=2)
"""So long the server waits for the worker that knows a workflow before it asks any other: a killed one never comes."""
AGENTS_AT_ONCE = 32
CONTEXTS_AT_ONCE = 4


@dataclass(frozen=True)
class Parts:
    """Everything that activities work with."""

    store: SqlStore
    model: ChatModel
    redactor: PresidioRedactor
    embedder: Embedder
    memory: Memory
    search: DocumentSearch

    @property
    def metered(self) -> MeteredModel:
        """The model, with its calls announced in the store."""
        return MeteredModel(model=self.model, transcripts=self.store, clock=utc_now)

    @property
    def recollection(self) -> Recollection:
        """Search in memory."""
        return Recollection(memory=self.memory, embedder=self.embedder, redactor=self.redactor)

    @property
    def desk(self) -> Desk:
        """What the agents' tools work with."""
        store = self.store
        return Desk(
            transcripts=store,
            documents=store,
            search=self.search,
            work=store,
            tasks=store,
            recollection=self.recollection,
            redactor=self.redactor,
        )

    @property
    def archive(self) -> Archive:
        """The way from outbox to memory."""
        return Archive(outbox=self.store, embedder=self.embedder, memory=self.memory)

    @property
    def loop(self) -> AgentLoop:
        """The agent loop."""
        store = self.store
        contracts = ContractWriter(
            tasks=store, documents=store, work=store, recollection=self.recollection, redactor=self.redactor
        )
        return AgentLoop(model=self.metered, desk=self.desk, contracts=contracts, clock=utc_now)

    @property
    def planner(self) -> Planner:
        """The planner."""
        store = self.store
        return Planner(model=self.metered, transcripts=store, documents=store, tasks=store, redactor=self.redactor)


@asynccontextmanager
async def opened_parts(settings: Settings) -> AsyncGenerator[Parts]:
    """The adapters that these settings ask for, opened, and closed at the end.

    Raises:
        MemoryUnavailable: another process has the embedded memory open.
    """
    async with AsyncExitStack() as stack:
        settings.home.mkdir(parents=True, exist_ok=True)
        store = await SqlStore.open(settings.database_url, utc_now)
        stack.push_async_callback(store.aclose)
        model = model_switch(settings)
        stack.push_async_callback(model.aclose)
        redactor = PresidioRedactor(load_or_create_key(settings.key_file))
        stack.callback(redactor.close)
        embedder = best_embedder()
        memory = await QdrantEdgeMemory.open(settings.memory_folder, embedder.name, embedder.dimension)
        stack.push_async_callback(memory.aclose)
        yield Parts(
            store=store,
            model=model,
            redactor=redactor,
            embedder=embedder,
            memory=memory,
            search=Bm25DocumentSearch(store),
        )


def workers(client: Client, parts: Parts, *, search_attributes: bool, runner: WorkflowRunner) -> tuple[Worker, ...]:
    """One worker for each queue: workflows and the store, agents (I/O), context (CPU)."""
    store = parts.store
    agents = AgentActivities(parts.loop, store)
    planning = PlanningActivities(parts.planner, store, store, parts.redactor, search_attributes=search_attributes)
    reports = ReportActivities(Publisher(tasks=store, documents=store, work=store), store)
    sessions = SessionActivities(client, store, store)
    condenser = Condenser(model=parts.metered, desk=parts.desk, archive=parts.archive, clock=utc_now)
    context, memory = ContextActivities(condenser), MemoryActivities(parts.archive)
    return (
        Worker(
            client,
            task_queue=WORKFLOWS_QUEUE,
            workflows=[SessionWorkflow, TaskWorkflow],
            activities=[agents.totals, reports.store, reports.audit, sessions.reconcile],
            workflow_runner=runner,
            sticky_queue_schedule_to_start_timeout=STICKY,
            graceful_shutdown_timeout=GRACE,
        ),
        Worker(
            client,
            task_queue=AGENTS_QUEUE,
            activities=[agents.research, agents.analysis, agents.writing, planning.plan],
            max_concurrent_activities=AGENTS_AT_ONCE,
            max_heartbeat_throttle_interval=INTERVAL,
            graceful_shutdown_timeout=GRACE,
        ),
        Worker(
            client,
            task_queue=CONTEXT_QUEUE,
            activities=[context.compress, memory.drain, planning.admit],
            max_concurrent_activities=CONTEXTS_AT_ONCE,
            max_heartbeat_throttle_interval=INTERVAL,
            graceful_shutdown_timeout=GRACE,
        ),
    )


@asynccontextmanager
async def running_workers(settings: Settings) -> AsyncGenerator[Client]:
    """All workers of this process, polling; at the end they finish their turns and yield.

    Raises:
        Unreachable: no Temporal server answers.
        MemoryUnavailable: another worker process of this machine has the embedded memory open.
    """
    client = await connect(find_target(settings.run_file))
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(opened_parts(settings))
        attributes = await ensure_search_attributes(client)
        await parts.archive.drain()
        await stack.enter_async_context(_warming_up(parts.redactor))
        for worker in workers(client, parts, search_attributes=attributes, runner=sandboxed()):
            await stack.enter_async_context(worker)
        yield client


@asynccontextmanager
async def _warming_up(redactor: PresidioRedactor) -> AsyncGenerator[None]:
    """Load the language model beside the first work, so that the first redaction does not wait for all of it."""
    loading = asyncio.create_task(redactor.warm_up())
    try:
        yield
    finally:
        await asyncio.gather(loading, return_exceptions=True)


async def run_until_stopped(settings: Settings, stop: asyncio.Event) -> None:
    """Run all workers until `stop` is set."""
    async with running_workers(settings):
        await stop.wait()
