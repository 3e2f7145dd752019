"""What this process reaches outside the store: tool backends, compaction hooks, notifiers, Temporal histories and
report files to delete, and the intake of scheduled tasks.
"""

import os
import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import SecretStr
from temporalio.client import Client

from waystation import __version__
from waystation.activities.tasks import NotificationActivities
from waystation.agents.call_ledger import MeteredSearch
from waystation.agents.compactor import CompactionHooks
from waystation.agents.ports import Meter
from waystation.agents.tools.tool import Tool
from waystation.agents.tools.web import FetchPageTool, WebSearchTool
from waystation.config.resolver import build_task_row
from waystation.config.setting_types import is_hook_address
from waystation.config.settings import Settings, find_active_variable, get_config_file
from waystation.context.ports import CompactionHook
from waystation.documents.document_loading import DocumentLoadResult, load_documents
from waystation.documents.ports import TableEngine
from waystation.documents.redacted_documents import RedactedDocumentStore
from waystation.erasure.erasure import ErasureQuery, MatchedHistory
from waystation.erasure.report_files import rewrite_matching_reports
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.temporal_names import ADMIT_TASK, SCHEDULE_ID_PREFIX
from waystation.mcp.ports import ToolServers
from waystation.models.prices import load_prices
from waystation.reports.task_files import delete_task_files
from waystation.runtime.hooks import AppriseNotifier, CommandCompactionHook, HttpCompactionHook, WebhookNotifier
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import load_tool_secrets
from waystation.runtime.temporal.connect import TemporalTarget, build_workflow_link, resolve_temporal_target
from waystation.runtime.temporal.erasure_client import delete_found_histories, delete_histories, is_workflow_running
from waystation.runtime.temporal.schedule_client import pause_schedule
from waystation.runtime.temporal.task_client import TemporalTaskClient
from waystation.security.web_addresses import DomainPolicy
from waystation.tasks.earlier_tasks import EarlierTaskReader
from waystation.tasks.schedules import ScheduleDocuments
from waystation.tasks.session import AdmissionRequest, build_session_input
from waystation.tasks.task import TaskRequest, TaskRow


@dataclass(frozen=True)
class ExternalDataEraser:
    """Implements the port `ExternalTaskData`: histories on the Temporal server, and reports in this home folder."""

    client: Client
    settings: Settings

    async def delete_histories(self, task_ids: Sequence[str]) -> int:
        """See `ExternalTaskData`. Raises RPCError."""
        return await delete_histories(self.client, task_ids)

    async def delete_found_histories(self, histories: Sequence[MatchedHistory]) -> int:
        """See `ExternalTaskData`. Raises RPCError."""
        return await delete_found_histories(self.client, histories)

    def delete_report_files(self, task_ids: Sequence[str]) -> int:
        """See `ExternalTaskData`."""
        return delete_task_files(self.settings.reports_folder, task_ids)

    def erase_from_report_files(self, task_ids: Sequence[str], query: ErasureQuery) -> int:
        """See `ExternalTaskData`."""
        return rewrite_matching_reports(self.settings.reports_folder, task_ids, query)


@dataclass(frozen=True)
class TemporalTaskIntake:
    """Implements the port `TaskIntake`, by which scheduled runs submit their tasks."""

    client: Client
    store: SqlStore
    settings: Settings

    @property
    def tasks(self) -> TemporalTaskClient:
        """Sessions and tasks on the server. Activities must not use the methods that wait for workflows."""
        return TemporalTaskClient(self.client, resolve_temporal_target(self.settings))

    @property
    def sends_notifications(self) -> bool:
        """See `TaskIntake`."""
        return self.settings.sends_notifications

    def read_documents(self, paths: Sequence[str]) -> ScheduleDocuments:
        """See `TaskIntake`."""
        places = [Path(path) for path in paths]
        try:
            gone = sum(not place.exists() for place in places)
            loaded = load_documents(places) if not gone else DocumentLoadResult(documents=())
        except (BadInput, OSError):  # its message names files, and the server keeps failures of workflows in plain text
            raise BadInput(
                "its documents cannot be read: `waystation schedule list` shows their paths, and `waystation "
                "submit` with those paths shows why"
            ) from None
        if gone:
            raise BadInput(
                f"{gone} of the paths of its documents no longer exist on this worker's machine: `waystation "
                "schedule list` shows them"
            )
        return ScheduleDocuments(documents=loaded.documents, skipped_items=loaded.skipped_items)

    async def build_row(self, request: TaskRequest) -> TaskRow:
        """See `TaskIntake`."""
        earlier = EarlierTaskReader(self.store)
        prices = load_prices(self.settings.prices, published=not self.settings.uses_offline_model)
        return await build_task_row(request, self.settings, earlier, prices, utc_now())

    async def request_admission(self, request: AdmissionRequest) -> None:
        """See `TaskIntake`."""
        await self.tasks.signal_session(build_session_input(request.ref), ADMIT_TASK, request)

    async def is_workflow_open(self, workflow_id: str) -> bool:
        """See `TaskIntake`. Raises RPCError."""
        return await is_workflow_running(self.client, workflow_id)

    async def pause_schedule(self, schedule_id: str, note: str) -> None:
        """See `TaskIntake`. Raises RPCError."""
        await pause_schedule(self.client, schedule_id, note)


USER_AGENT = f"Waystation/{__version__} (research agents; no contact address is configured)"


@dataclass(frozen=True)
class ToolBackends:
    """The backends of one process's tools."""

    tables: TableEngine
    web: Sequence[Tool] = ()
    servers: ToolServers | None = None


@dataclass(frozen=True)
class ToolBackendDeps:
    """Where pages are stored and searches are charged, and what redacts both."""

    store: SqlStore
    meter: Meter
    redacted_documents: RedactedDocumentStore


@asynccontextmanager
async def open_tool_backends(settings: Settings, ledgers: ToolBackendDeps) -> AsyncGenerator[ToolBackends]:
    """Open tool backends on their first use, and close them at the end.

    Raises BadInput for a setting that cannot be used.
    """
    # DuckDB and the MCP client take a second to load.
    from waystation.documents.table_engine.engine import DuckDbTableEngine  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        web = _web(settings, ledgers, stack) if settings.web else ()
        yield ToolBackends(DuckDbTableEngine(), web, await _servers(settings, ledgers.store, stack))


def _web(settings: Settings, ledgers: ToolBackendDeps, stack: AsyncExitStack) -> Sequence[Tool]:
    from waystation.documents.readers.reader import SubprocessWebTextExtractor  # noqa: PLC0415
    from waystation.documents.web import DirectWebPageFetcher, WebFetchConfig  # noqa: PLC0415

    domains = DomainPolicy(allow=settings.web_allow, deny=settings.web_deny, approval_mode=settings.web_asks)
    reader = SubprocessWebTextExtractor()
    stack.push_async_callback(reader.aclose)
    terms = WebFetchConfig(
        user_agent=settings.web_user_agent or USER_AGENT, domains=domains, reachable_networks=settings.web_reachable
    )
    pages = DirectWebPageFetcher(reader, utc_now, terms)
    stack.push_async_callback(pages.aclose)
    asks_always = _asks_always(settings)
    fetch = FetchPageTool(pages, ledgers.store, ledgers.redacted_documents, domains, asks_always=asks_always)
    key = settings.anthropic_api_key
    if key is None:  # the model's provider runs the searches
        return (fetch,)
    return (_search(settings, key.get_secret_value(), domains, ledgers, stack), fetch)


def _search(
    settings: Settings, key: str, domains: DomainPolicy, ledgers: ToolBackendDeps, stack: AsyncExitStack
) -> Tool:
    from waystation.models.anthropic.model import create_anthropic_search  # noqa: PLC0415
    from waystation.workers.models import get_model_timeouts  # noqa: PLC0415

    url, patience = settings.anthropic_base_url, get_model_timeouts(settings)
    search = create_anthropic_search(key, settings.web_search_model, domains, url, patience=patience)
    stack.push_async_callback(search.aclose)
    prices = load_prices(settings.prices)
    metered = MeteredSearch(search, ledgers.store, utc_now, ledgers.meter, prices)
    redactor = ledgers.redacted_documents.redactor
    return WebSearchTool(metered, redactor, settings.web_asks, asks_always=_asks_always(settings))


def _asks_always(settings: Settings) -> bool:
    """Whether no call may be approved in advance: the operator chose to be asked, or named who answers."""
    return bool(settings.approvers) or ("web_asks" in settings.model_fields_set and settings.web_asks == "always")


async def _servers(settings: Settings, store: SqlStore, stack: AsyncExitStack) -> ToolServers | None:
    if settings.tool_servers is None:
        return None
    from waystation.mcp.config import list_secret_names, load_servers  # noqa: PLC0415
    from waystation.mcp.servers import McpServers  # noqa: PLC0415

    kept = await load_tool_secrets(settings, store, list_secret_names(settings.tool_servers))
    servers = McpServers(load_servers(settings.tool_servers, os.environ, kept))
    stack.push_async_callback(servers.aclose)
    return servers


BEFORE, AFTER = "compaction_before", "compaction_after"


@asynccontextmanager
async def open_compaction_hooks(settings: Settings) -> AsyncGenerator[CompactionHooks]:
    """Open the configured hooks that are called before and after compactions, while the block lasts.

    Raises:
        BadInput: A program does not exist; the message names the setting.
    """
    async with AsyncExitStack() as stack:
        yield CompactionHooks(
            before=await _hook(BEFORE, settings.compaction_before, stack),
            after=await _hook(AFTER, settings.compaction_after, stack),
            blocking=settings.compaction_hook_blocks,
        )


async def _hook(setting: str, written: str | None, stack: AsyncExitStack) -> CompactionHook | None:
    if written is None:
        return None
    if is_hook_address(written):
        return await stack.enter_async_context(aclosing(HttpCompactionHook(setting, SecretStr(written))))
    try:
        return CommandCompactionHook(setting, shlex.split(written))
    except BadInput as refused:
        place = find_active_variable(setting) or f"{setting} in {get_config_file()}"
        raise BadInput(f"{place}: {refused}") from None


@asynccontextmanager
async def open_notification_activities(
    settings: Settings, target: TemporalTarget
) -> AsyncGenerator[NotificationActivities]:
    """Open the configured notifiers.

    If none is configured here, the queue only has notifications if a worker with notifiers admitted the task: none is
    lost.

    Raises:
        BadInput: An address cannot be used.
    """
    link = partial(build_task_link, settings.page, target)
    async with AsyncExitStack() as stack:
        told = [await stack.enter_async_context(aclosing(one)) for one in create_notifiers(settings)]
        yield NotificationActivities(told, link)


def build_task_link(page: str | None, target: TemporalTarget, workflow_id: str) -> str | None:
    """Return the address of a task's web page, where it can be answered, or of its page in the Temporal UI, if one is
    known. For a scheduled run, it is the page of all schedules, or that of the run.
    """
    if page is None:
        return build_workflow_link(target, workflow_id)
    return f"{page}/schedules" if workflow_id.startswith(SCHEDULE_ID_PREFIX) else f"{page}/tasks/{workflow_id}"


def create_notifiers(settings: Settings) -> list[WebhookNotifier | AppriseNotifier]:
    """Create all configured notifiers. Raises BadInput."""
    addresses = settings.notify.get_secret_value().split() if settings.notify is not None else []
    messages = [AppriseNotifier(SecretStr(one), number, settings.page) for number, one in enumerate(addresses, 1)]
    return [*([WebhookNotifier(settings.webhook)] if settings.webhook is not None else []), *messages]
