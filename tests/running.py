"""What tests need to let workflows really run: a dev server, the workers with real adapters, and a way to submit."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client, Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfigProfile
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from tests.crew import terms
from tests.readers import ANYONE
from waystation.agents.ports import Meter
from waystation.cli.main import run
from waystation.client.context import edit_finished
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.documents.redacted import RedactedDocumentStore
from waystation.documents.search import Bm25DocumentSearch
from waystation.kernel.amount import Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import TaskRef
from waystation.memory.embedders.local import best_embedder
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.models.ports import ChatModel
from waystation.privacy.ports import Redactor
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.connect import Target, ensure_search_attributes
from waystation.runtime.temporal.dev_server import find_temporal
from waystation.runtime.temporal.tasks import TemporalTaskClient
from waystation.store.seals import PLAIN, EncryptionConfig
from waystation.tasks.session import Admission, SessionStart
from waystation.tasks.signals import Answer, EditInput
from waystation.tasks.task import (
    TaskProgress,
    TaskRequest,
    TaskRow,
    TaskTerms,
    session_hash,
    session_workflow_id,
    task_id_of,
    tenant_hash,
)
from waystation.testing import PlainRedactor, RecordingMeter
from workers.outside import open_notification_activities
from workers.parts import ActivityDeps
from workers.queues import DEV_TIMING, WORKER_WITH_PARTS, WorkerContext, WorkerTiming, create_workflows_worker
from workers.sandbox import create_sandboxed_runner
from workers.wiring import run_workers
from workflows.session import SessionWorkflow
from workflows.task import TaskWorkflow

PATIENCE = 120.0
"""Seconds until a state that does not come fails the test."""
POLL = 0.05
ANSWERED = 5.0
"""Seconds until a query that nobody answers is asked again."""
KEY = bytes(range(32))


def strict() -> SandboxedWorkflowRunner:
    """A sandbox that shares none of our packages, so that it also polices their clock, randomness and state."""
    return SandboxedWorkflowRunner()


RUNNERS: dict[str, Callable[[], WorkflowRunner]] = {"production": create_sandboxed_runner, "strict": strict}


async def until(met: Callable[[], Awaitable[bool]], patience: float = PATIENCE) -> None:
    """Wait for a state. Raises TimeoutError where it does not come, and prints what everything waits for."""
    try:
        async with asyncio.timeout(patience):
            while not await met():
                await asyncio.sleep(POLL)
    except TimeoutError:
        for task in asyncio.all_tasks():
            task.print_stack(limit=30)
        raise


async def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """A command of the CLI, beside the loop that serves it: its exit code, and what it printed on both streams."""
    code = await asyncio.to_thread(run, list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


Task = WorkflowHandle[TaskWorkflow, TaskProgress]


async def until_both_ask(task: Task) -> TaskProgress:
    """Wait until both researchers of the crew have asked for money."""

    async def asked() -> bool:
        return len((await task.query(TaskWorkflow.progress)).approvals) == 2

    await until(asked)
    return await task.query(TaskWorkflow.progress)


# ------------------------------------------------------------------------------------------------------- the server


class AskedAgain(Interceptor):
    """Queries are asked again when nobody answers.

    A server may give a query to the open poll of a worker that has just stopped: nobody ever answers that one.
    """

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """See base class."""
        return _AskedAgain(next)


class _AskedAgain(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> object:
        """See base class."""
        if input.rpc_timeout is not None:
            return await super().query_workflow(input)
        input.rpc_timeout = timedelta(seconds=ANSWERED)
        while True:
            try:
                return await super().query_workflow(input)
            except RPCError as error:
                if error.status not in {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}:
                    raise


class Watched(SimplePlugin):
    """Workers under test: a workflow that is not deterministic fails instead of hanging.

    Without a cache every workflow task replays the whole history; and a task that a stopped worker had in its cache
    is given to the next worker at once instead of ten seconds later.
    """

    def __init__(self, *, cached: bool) -> None:
        super().__init__("watched", interceptors=[AskedAgain()])  # pyright: ignore[reportUnknownMemberType]: a bare generic
        self._cached = cached

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """See base class."""
        config["workflow_failure_exception_types"] = [NondeterminismError]
        if not self._cached:
            config["max_cached_workflows"] = 0
        return config


@asynccontextmanager
async def dev_server(
    *settings: str, database: Path | None = None, search_attributes: bool = True, cached: bool = True
) -> AsyncGenerator[Client]:
    """A server of its own, in memory. It starts in 0.3 s; a task takes 0.7 s longer on a shared one with a database.

    `settings` are dynamic configuration values, as `limit.historyCount.suggestContinueAsNew=50`.
    """
    extra = [part for setting in settings for part in ("--dynamic-config-value", setting)]
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]: a bare generic
        dev_server_existing_path=find_temporal(),
        dev_server_database_filename=str(database) if database else None,
        dev_server_extra_args=extra,
        dev_server_log_level="error",
        data_converter=pydantic_data_converter,
        plugins=[Watched(cached=cached)],
    ) as environment:
        if search_attributes:
            assert await ensure_search_attributes(environment.client)
        yield environment.client


# -------------------------------------------------------------------------------------------------------- the parts


@asynccontextmanager
async def opened_store(folder: Path, at_rest: EncryptionConfig = PLAIN) -> AsyncGenerator[SqlStore]:
    """The store of a folder."""
    store = await SqlStore.open(f"sqlite+aiosqlite:///{folder / 'waystation.db'}", utc_now, at_rest=at_rest)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def opened_parts(
    folder: Path, redactor: Redactor, model: ChatModel, meter: Meter | None = None, at_rest: EncryptionConfig = PLAIN
) -> AsyncGenerator[ActivityDeps]:
    """Real adapters on the files of a folder, with the given model."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened_store(folder, at_rest))
        embedder = best_embedder()
        memory = await QdrantEdgeMemory.open(folder / "memory", embedder.name, embedder.dimension)
        stack.push_async_callback(memory.aclose)
        yield ActivityDeps(
            store=store,
            model=model,
            redactor=redactor,
            redacted=RedactedDocumentStore(store, redactor),
            embedder=embedder,
            memory=memory,
            search=Bm25DocumentSearch(store),
            meter=meter or RecordingMeter(),
            placeholders=PlainRedactor({}),
        )


@asynccontextmanager
async def working(
    client: Client,
    parts: ActivityDeps,
    *,
    runner: WorkflowRunner | None = None,
    search_attributes: bool = True,
    settings: Settings | None = None,
    timing: WorkerTiming = DEV_TIMING,
) -> AsyncGenerator[None]:
    """All workers, polling."""
    settings = settings or Settings()
    async with open_notification_activities(settings, Target(ClientConfigProfile(), settings.temporal_ui)) as notices:
        shop = WorkerContext(
            client, parts.store, settings, runner or create_sandboxed_runner(), search_attributes, notices, timing
        )
        async with run_workers(
            [create_workflows_worker(shop), *(build(shop, parts) for build in WORKER_WITH_PARTS.values())]
        ):
            yield


# --------------------------------------------------------------------------------------------------------- the work

DOCUMENTS = (
    SourceDocument(name="pilot.md", text="Keep the white beacon to starboard.\nThe bar carries two fathoms.\n"),
)
TENANT, SESSION = "pilots", "autumn"


def request(
    request_id: str = "first", question: str = "How is the bar crossed?", instructions: str = ""
) -> TaskRequest:
    """What a person asks for."""
    return TaskRequest(
        question=question, instructions=instructions, tenant=TENANT, session=SESSION, request_id=request_id
    )


@asynccontextmanager
async def at_work(
    client: Client,
    folder: Path,
    redactor: Redactor,
    model: ChatModel,
    *,
    runner: WorkflowRunner | None = None,
    search_attributes: bool = True,
    settings: Settings | None = None,
) -> AsyncGenerator["Counter"]:
    """Parts and workers together, and the counter where they get their tasks."""
    async with (
        opened_parts(folder, redactor, model) as parts,
        working(client, parts, runner=runner, search_attributes=search_attributes, settings=settings),
    ):
        yield Counter(client, parts.store)


@dataclass(frozen=True)
class Counter:
    """Where tasks are handed in, as the client does it."""

    client: Client
    store: SqlStore

    async def submit(
        self,
        asked: TaskRequest | None = None,
        under: TaskTerms | None = None,
        documents: Sequence[SourceDocument] = DOCUMENTS,
    ) -> Admission:
        """Store the task and hand it to its session. Raises what the session answers."""
        asked = asked or request()
        start = await self._session_start()
        ref = TaskRef(store_id=start.store_id, tenant=start.tenant, session=start.session, task_id=task_id_of(asked))
        row = TaskRow(ref=ref, request=asked, terms=under or terms(), submitted_at=utc_now())
        await self.store.register(row, documents)
        return await self.hand_over(row)

    async def hand_over(self, row: TaskRow) -> Admission:
        """Hand a stored task to its session. Raises what the session answers."""
        start = await self._session_start()
        return await self._tasks.admit(start, self.session.id, row.ref, timedelta(seconds=PATIENCE))

    async def edit(self, edit: EditInput, request_id: str = "first") -> Answer:
        """Have a finished task go on. Raises as the client does."""
        row = await self.store.task(task_id_of(request(request_id)), ANYONE)
        return await edit_finished(self.store, self._tasks, row, edit)

    async def limit(self, limit: Limit) -> None:
        """Set what the session may spend."""
        await self._tasks.set_session_limit(await self._session_start(), self.session.id, limit)

    async def _session_start(self) -> SessionStart:
        return SessionStart(
            store_id=await self.store.store_id(), tenant=tenant_hash(TENANT), session=session_hash(TENANT, SESSION)
        )

    @property
    def _tasks(self) -> TemporalTaskClient:
        address = self.client.service_client.config.target_host
        return TemporalTaskClient(self.client, Target(profile=ClientConfigProfile(address=address), ui_url=None))

    def task(self, request_id: str = "first") -> Task:
        """The workflow of that request."""
        return self.client.get_workflow_handle_for(TaskWorkflow.run, task_id_of(request(request_id)))

    @property
    def session(self) -> WorkflowHandle[SessionWorkflow, None]:
        """The workflow of the session of all requests."""
        return self.client.get_workflow_handle_for(SessionWorkflow.run, session_workflow_id(TENANT, SESSION))
