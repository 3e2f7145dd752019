"""What tests need to run workflows: a dev server, the workers with real adapters, and a way to submit tasks."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client, Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowHandle
from temporalio.common import Priority
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfigProfile
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Interceptor as WorkerInterceptor
from temporalio.worker import WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import make_task_config
from waystation.agents.ports import Meter
from waystation.cli.main import run
from waystation.client.agent_contexts import rewind_finished_task
from waystation.client.approvals import TaskMessageClient
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.documents.redacted_documents import RedactedDocumentStore
from waystation.documents.search import HybridDocumentSearch
from waystation.kernel.amount import Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import TaskRef
from waystation.memory.embedders.local import create_default_embedder
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.models.ports import ChatModel
from waystation.privacy.ports import Redactor
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.connect import TemporalTarget, ensure_search_attributes
from waystation.runtime.temporal.deployment_client import TemporalDeploymentClient
from waystation.runtime.temporal.dev_server import find_temporal_executable
from waystation.runtime.temporal.task_client import TemporalTaskClient
from waystation.store.encryption import UNENCRYPTED, EncryptionConfig
from waystation.tasks.session import SessionWorkflowInput, SubmissionResult
from waystation.tasks.signals import AnswerResult, ContextEditInput
from waystation.tasks.task import (
    TaskConfig,
    TaskProgress,
    TaskRequest,
    TaskRow,
    make_session_workflow_id,
    make_task_id,
    session_hash,
    tenant_hash,
)
from waystation.testing.doubles import PlainRedactor, RecordingMeter
from waystation.workers.activity_deps import ActivityDeps
from waystation.workers.external_systems import open_notification_activities
from waystation.workers.queues import (
    DEV_TIMING,
    WORKER_FACTORIES,
    WorkerContext,
    WorkerTiming,
    create_workflows_worker,
    get_build_id,
)
from waystation.workers.sandbox import create_sandboxed_runner
from waystation.workers.wiring import run_workers
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.task import TaskWorkflow

WAIT_TIMEOUT_SECONDS = 120.0
"""Seconds after which a state that was not reached fails the test."""
POLL_SECONDS = 0.05
QUERY_RETRY_SECONDS = 5.0
"""Seconds until an unanswered query is sent again."""
KEY = bytes(range(32))


def create_strict_runner() -> SandboxedWorkflowRunner:
    """Create a sandbox that shares none of our packages, so that it also checks their use of clock, randomness and
    state.
    """
    return SandboxedWorkflowRunner()


RUNNERS: dict[str, Callable[[], WorkflowRunner]] = {
    "production": create_sandboxed_runner,
    "strict": create_strict_runner,
}


async def wait_until(met: Callable[[], Awaitable[bool]], patience: float = WAIT_TIMEOUT_SECONDS) -> None:
    """Wait for a state. Raises TimeoutError if it is not reached, and prints what everything waits for."""
    try:
        async with asyncio.timeout(patience):
            while not await met():
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        for task in asyncio.all_tasks():
            task.print_stack(limit=30)
        raise


async def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a CLI command without blocking the loop that serves it. Returns its exit code, stdout and stderr."""
    code = await asyncio.to_thread(run, list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


TaskHandle = WorkflowHandle[TaskWorkflow, TaskProgress]


async def wait_for_both_requests(task: TaskHandle) -> TaskProgress:
    """Wait until both researchers have requested budget."""

    async def asked() -> bool:
        return len((await task.query(TaskWorkflow.progress)).approvals) == 2

    await wait_until(asked)
    return await task.query(TaskWorkflow.progress)


async def load_priority(client: Client, workflow_id: str) -> Priority:
    """Return the priority with which a workflow runs."""
    described = await client.get_workflow_handle(workflow_id).describe()
    priority = described.raw_description.workflow_execution_info.priority
    return Priority(priority.priority_key, priority.fairness_key, priority.fairness_weight or None)


# ------------------------------------------------------------------------------------------------------- the server


class QueryRetryInterceptor(Interceptor):
    """Sends unanswered queries again.

    A server may give a query to the open poll of a worker that has just stopped: that one is never answered.
    """

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """See base class."""
        return _QueryRetryOutboundInterceptor(next)


class _QueryRetryOutboundInterceptor(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> object:
        """See base class."""
        if input.rpc_timeout is not None:
            return await super().query_workflow(input)
        input.rpc_timeout = timedelta(seconds=QUERY_RETRY_SECONDS)
        while True:
            try:
                return await super().query_workflow(input)
            except RPCError as error:
                if error.status not in {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}:
                    raise


class StrictWorkerPlugin(SimplePlugin):
    """Configures workers under test: a workflow that is not deterministic fails instead of hanging.

    Without a cache every workflow task replays the whole history; and a task that a stopped worker had in its cache
    goes to the next worker at once instead of ten seconds later.
    """

    def __init__(self, *, cached: bool) -> None:
        super().__init__("watched", interceptors=[QueryRetryInterceptor()])  # pyright: ignore[reportUnknownMemberType]: a bare generic
        self._cached = cached

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """See base class."""
        config["workflow_failure_exception_types"] = [NondeterminismError]
        if not self._cached:
            config["max_cached_workflows"] = 0
        return config


@asynccontextmanager
async def start_dev_server(
    *settings: str, database: Path | None = None, search_attributes: bool = True, cached: bool = True
) -> AsyncGenerator[Client]:
    """Start a separate server, in memory. It starts in 0.3 s; a task takes 0.7 s longer on a shared one with a
    database.

    `settings` are dynamic configuration values, such as `limit.historyCount.suggestContinueAsNew=50`.
    """
    extra = [part for setting in settings for part in ("--dynamic-config-value", setting)]
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]: a bare generic
        dev_server_existing_path=find_temporal_executable(),
        dev_server_database_filename=str(database) if database else None,
        dev_server_extra_args=extra,
        dev_server_log_level="error",
        data_converter=pydantic_data_converter,
        plugins=[StrictWorkerPlugin(cached=cached)],
    ) as environment:
        if search_attributes:
            assert await ensure_search_attributes(environment.client)
        yield environment.client


# -------------------------------------------------------------------------------------------------------- the parts


@asynccontextmanager
async def open_store(folder: Path, at_rest: EncryptionConfig = UNENCRYPTED) -> AsyncGenerator[SqlStore]:
    """Open the store of a folder."""
    store = await SqlStore.open(f"sqlite+aiosqlite:///{folder / 'waystation.db'}", utc_now, at_rest=at_rest)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def open_activity_deps(
    folder: Path,
    redactor: Redactor,
    model: ChatModel,
    meter: Meter | None = None,
    at_rest: EncryptionConfig = UNENCRYPTED,
) -> AsyncGenerator[ActivityDeps]:
    """Open real adapters on the files of a folder, with the given model."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(folder, at_rest))
        embedder = create_default_embedder()
        memory = await QdrantEdgeMemory.open(folder / "memory", embedder.name, embedder.dimension)
        stack.push_async_callback(memory.aclose)
        yield ActivityDeps(
            store=store,
            model=model,
            redactor=redactor,
            redacted_documents=RedactedDocumentStore(store, redactor),
            embedder=embedder,
            memory=memory,
            search=HybridDocumentSearch(store),
            meter=meter or RecordingMeter(),
            placeholders=PlainRedactor({}),
        )


@asynccontextmanager
async def run_all_workers(
    client: Client,
    parts: ActivityDeps,
    *,
    runner: WorkflowRunner | None = None,
    search_attributes: bool = True,
    settings: Settings | None = None,
    timing: WorkerTiming = DEV_TIMING,
    interceptors: Sequence[WorkerInterceptor] = (),
) -> AsyncGenerator[None]:
    """Run all workers."""
    settings = settings or Settings()
    async with open_notification_activities(
        settings, TemporalTarget(ClientConfigProfile(), settings.temporal_ui)
    ) as notices:
        runner = runner or create_sandboxed_runner()
        shop = WorkerContext(client, parts.store, settings, runner, search_attributes, notices, timing, interceptors)
        if settings.versioning:
            await TemporalDeploymentClient(client).ensure_current(get_build_id(settings))
        async with run_workers(
            [create_workflows_worker(shop), *(build(shop, parts) for build in WORKER_FACTORIES.values())]
        ):
            yield


# --------------------------------------------------------------------------------------------------------- the work

DOCUMENTS = (
    SourceDocument(name="pilot.md", text="Keep the white beacon to starboard.\nThe bar carries two fathoms.\n"),
)
TENANT, SESSION = "pilots", "autumn"


def make_task_request(
    request_id: str = "first", question: str = "How is the bar crossed?", instructions: str = ""
) -> TaskRequest:
    """Make a request as a person would."""
    return TaskRequest(
        question=question, instructions=instructions, tenant=TENANT, session=SESSION, request_id=request_id
    )


@asynccontextmanager
async def run_platform(
    client: Client,
    folder: Path,
    redactor: Redactor,
    model: ChatModel,
    *,
    runner: WorkflowRunner | None = None,
    search_attributes: bool = True,
    settings: Settings | None = None,
) -> AsyncGenerator["TaskSubmitter"]:
    """Run dependencies and workers together, and yield the submitter of tasks."""
    async with (
        open_activity_deps(folder, redactor, model) as parts,
        run_all_workers(client, parts, runner=runner, search_attributes=search_attributes, settings=settings),
    ):
        yield TaskSubmitter(client, parts.store)


@dataclass(frozen=True)
class TaskSubmitter:
    """Submits tasks as the client does."""

    client: Client
    store: SqlStore

    async def submit(
        self,
        asked: TaskRequest | None = None,
        under: TaskConfig | None = None,
        documents: Sequence[SourceDocument] = DOCUMENTS,
    ) -> SubmissionResult:
        """Store the task and submit it to its session. Raises what the session answers."""
        asked = asked or make_task_request()
        start = await self._session_start()
        ref = TaskRef(store_id=start.store_id, tenant=start.tenant, session=start.session, task_id=make_task_id(asked))
        row = TaskRow(ref=ref, request=asked, config=under or make_task_config(), submitted_at=utc_now())
        await self.store.register_task(row, documents)
        return await self.admit(row)

    async def admit(self, row: TaskRow) -> SubmissionResult:
        """Submit a stored task to its session. Raises what the session answers."""
        start = await self._session_start()
        return await self.tasks.admit(start, self.session.id, row.ref, timedelta(seconds=WAIT_TIMEOUT_SECONDS))

    async def edit(self, edit: ContextEditInput, request_id: str = "first") -> AnswerResult:
        """Resume a finished task by an edit. Raises as the client does."""
        row = await self.store.get_task(make_task_id(make_task_request(request_id)), SYSTEM_SCOPE)
        return await rewind_finished_task(self.store, self.tasks, row, edit)

    async def set_session_limit(self, limit: Limit) -> None:
        """Set what the session may spend."""
        await self.tasks.set_session_limit(await self._session_start(), self.session.id, limit)

    async def _session_start(self) -> SessionWorkflowInput:
        return SessionWorkflowInput(
            store_id=await self.store.get_store_id(), tenant=tenant_hash(TENANT), session=session_hash(TENANT, SESSION)
        )

    @property
    def tasks(self) -> TemporalTaskClient:
        """What the client says to the server."""
        address = self.client.service_client.config.target_host
        return TemporalTaskClient(
            self.client, TemporalTarget(profile=ClientConfigProfile(address=address), ui_url=None)
        )

    def get_message_client(self, request_id: str = "first") -> TaskMessageClient:
        """Sends that task messages, as the client does it."""
        return TaskMessageClient(self.tasks, make_task_id(make_task_request(request_id)))

    def get_task_handle(self, request_id: str = "first") -> TaskHandle:
        """Return the workflow of that request."""
        return self.client.get_workflow_handle_for(TaskWorkflow.run, make_task_id(make_task_request(request_id)))

    @property
    def session(self) -> WorkflowHandle[SessionWorkflow, None]:
        """The session workflow of all requests."""
        return self.client.get_workflow_handle_for(SessionWorkflow.run, make_session_workflow_id(TENANT, SESSION))
