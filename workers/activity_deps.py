"""The dependencies of activities: which adapter implements which port, opened when a process needs it; and the session
that the current activity belongs to.
"""

import os
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial
from random import random
from typing import TYPE_CHECKING

from pydantic import BaseModel
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from waystation.activities.activity_errors import get_current_attempt, set_agent_status, wait_unless_stopping
from waystation.agents.call_ledger import MeteredModel, RetryWaitPolicy
from waystation.agents.citation_checker import CitationChecker
from waystation.agents.citation_feedback import SubmissionChecker
from waystation.agents.compactor import NO_HOOKS, CompactionHooks, Compactor
from waystation.agents.loop import AgentLoop
from waystation.agents.planner import Planner
from waystation.agents.ports import Meter
from waystation.agents.redaction import RedactionRetryPolicy, TextRedactor, VaultPlaceholderFactory
from waystation.agents.roles import AgentDeps
from waystation.agents.task_brief import BriefBuilder
from waystation.agents.tool_visibility import ToolPolicy
from waystation.agents.tools.plugin_tool import PluginToolBase
from waystation.config.settings import Settings
from waystation.documents.ports import DocumentSearch
from waystation.documents.redacted_documents import RedactedDocumentStore, RedactedTableReader
from waystation.documents.search import HybridDocumentSearch, split_into_passages
from waystation.documents.table_redaction import TableRedactor
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.imports import pause_gc_for_imports
from waystation.kernel.refs import RunRef, TaskRef
from waystation.memory.indexing import DocumentIndexer, MemoryRecall, OutboxDrainer
from waystation.memory.ports import Embedder, Memory
from waystation.models.ports import ChatModel
from waystation.privacy.key_file import compute_key_check
from waystation.privacy.policy import RedactionConfig, should_show_names
from waystation.privacy.ports import PlaceholderFactory, Redactor, Vault
from waystation.reports.publisher import ReportIndexer, ReportPublisher
from waystation.reports.reviewers import PlanReviser, ReportReviewer
from waystation.reports.sentence_judge import SentenceJudge
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_store_vault, load_oldest_key
from waystation.security.placeholders import compute_fingerprint
from waystation.tasks.context_editor import TaskRewinder, TranscriptRewinder
from waystation.tasks.earlier_tasks import EarlierTaskReader
from waystation.tasks.task import tenant_hash
from waystation.workers.external_systems import ToolBackendDeps, ToolBackends, open_tool_backends

if TYPE_CHECKING:
    from waystation.workers.models import RouterLimits

DEPTH = 3
"""Nesting depth of the reference in an input: an order, its request, its run."""

_PRESENT: ContextVar[RunRef | TaskRef | None] = ContextVar("present", default=None)


def get_current_session() -> str:
    """Return the hash of the current session; empty if the work belongs to none."""
    present = _PRESENT.get()
    return "" if present is None else present.session


def get_current_tenant() -> str:
    """Return the hash of the tenant whose work is being done; empty if the work belongs to none."""
    present = _PRESENT.get()
    return "" if present is None else present.tenant


class SessionContextInterceptor(Interceptor):
    """Makes the session of every activity available to the code that it calls."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap the interceptor of an activity."""
        return _Scoped(next)


class _Scoped(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> object:
        found = (find_reference(one) for one in list[object](input.args))
        token = _PRESENT.set(next((one for one in found if one is not None), None))
        try:
            return await super().execute_activity(input)
        finally:
            _PRESENT.reset(token)


def find_reference(given: object, depth: int = DEPTH) -> RunRef | TaskRef | None:
    """Return the first reference to a run or a task in an input; None if there is none."""
    match given:
        case RunRef() | TaskRef():
            return given
        case BaseModel() if depth:
            parts = (find_reference(getattr(given, name), depth - 1) for name in type(given).model_fields)
            return next((one for one in parts if one is not None), None)
        case _:
            return None


@dataclass(frozen=True)
class ActivityDeps:
    """Everything that activities depend on."""

    store: SqlStore
    model: ChatModel
    redactor: Redactor
    redacted_documents: RedactedDocumentStore
    """Documents, pages and stored results as agents may see them."""
    embedder: Embedder
    memory: Memory
    search: DocumentSearch
    meter: Meter
    key_check: str = ""
    """By this, other workers of the store check that they make placeholders with the same key."""
    hooks: CompactionHooks = NO_HOOKS
    vault: Vault | None = None
    placeholders: PlaceholderFactory | None = None
    """Makes the placeholders of private table cells; without it no table is queried."""
    tool_backends: ToolBackends | None = None
    """Beyond the store; without it agents read documents alone."""
    plugins: Sequence[PluginToolBase] = ()
    """Tools of plug-ins."""
    tool_policy: ToolPolicy = field(default_factory=ToolPolicy)

    async def claim_key(self) -> None:
        """Claim the key for this store: all its workers must share one, or one could not find what another has
        redacted.

        Raises:
            BadInput: The store has another key.
        """
        if not await self.store.claim_key(self.key_check):
            raise BadInput(
                "other workers of this store make their placeholders with another key: set WAYSTATION_KEY to "
                "that key, in hex. It is the value of their WAYSTATION_KEY, or the contents of the file `key` in their "
                "home folder. If it is lost, `waystation store adopt-key` replaces it with the key of this worker"
            )

    @property
    def metered_model(self) -> MeteredModel:
        """The model, which records its calls in the store before it makes them."""
        return MeteredModel(
            model=self.model,
            store=self.store,
            clock=utc_now,
            meter=self.meter,
            report_status=set_agent_status,
            waits=RetryWaitPolicy(wait_unless_stopping, random),
            get_tenant=get_current_tenant,
        )

    @property
    def memory_recall(self) -> MemoryRecall:
        """Search of memory."""
        store = self.store
        return MemoryRecall(
            memory=self.memory,
            embedder=self.embedder,
            redactor=self.redactor,
            store=store,
            vault=self.vault,
            shows_names=should_show_names(self.redacted_documents.rules.policy),
        )

    @property
    def earlier_tasks(self) -> EarlierTaskReader:
        """Earlier tasks of a session."""
        return EarlierTaskReader(self.store)

    @property
    def agent_deps(self) -> AgentDeps:
        """The dependencies of the agents' tools."""
        store, reach = self.store, self.tool_backends
        return AgentDeps(
            store=store,
            search=self.search,
            memory_recall=self.memory_recall,
            redactor=self.redactor,
            redacted_documents=self.redacted_documents,
            earlier_tasks=self.earlier_tasks,
            vault=self.vault,
            tables=self.table_reader,
            web=reach.web if reach is not None else (),
            servers=reach.servers if reach is not None else None,
            plugins=self.plugins,
            policy=self.tool_policy,
        )

    @cached_property
    def table_reader(self) -> RedactedTableReader | None:
        """Reads and queries tables; caches redacted tables for a while."""
        if self.tool_backends is None or self.placeholders is None:
            return None
        return RedactedTableReader(self.tool_backends.tables, TableRedactor(self.redactor, self.placeholders), utc_now)

    @property
    def outbox_drainer(self) -> OutboxDrainer:
        """Moves passages from the outbox into memory."""
        return OutboxDrainer(store=self.store, embedder=self.embedder, memory=self.memory, redactor=self.redactor)

    @property
    def document_indexer(self) -> DocumentIndexer:
        """Indexes documents in memory."""
        store = self.store
        return DocumentIndexer(
            store=store,
            redactor=self.redactor,
            redacted_documents=self.redacted_documents,
            splitter=split_into_passages,
            outbox_drainer=self.outbox_drainer,
            clock=utc_now,
        )

    @property
    def report_indexer(self) -> ReportIndexer:
        """Indexes the results of tasks in memory."""
        store = self.store
        return ReportIndexer(
            store=store,
            redactor=self.redactor,
            outbox_drainer=self.outbox_drainer,
            clock=utc_now,
        )

    @property
    def agent_loop(self) -> AgentLoop:
        """The agent loop."""
        store = self.store
        briefs = BriefBuilder(
            store=store,
            memory_recall=self.memory_recall,
            redactor=self.redactor,
            earlier_tasks=self.earlier_tasks,
        )
        return AgentLoop(model=self.metered_model, deps=self.agent_deps, briefs=briefs, clock=utc_now)

    @property
    def planner(self) -> Planner:
        """The planner."""
        store = self.store
        return Planner(
            model=self.metered_model,
            store=store,
            redactor=self.redactor,
            redacted_documents=self.redacted_documents,
            earlier_tasks=self.earlier_tasks,
        )

    @property
    def reviser(self) -> PlanReviser:
        """Revises plans."""
        store = self.store
        return PlanReviser(model=self.metered_model, store=store, redactor=self.redactor)

    @property
    def citation_check(self) -> CitationChecker:
        """Checks citations."""
        store = self.store
        return CitationChecker(store, self.redactor, self.redacted_documents, self.vault)

    @property
    def reviewer(self) -> ReportReviewer:
        """Reviews reports."""
        store = self.store
        return ReportReviewer(
            model=self.metered_model,
            store=store,
            redactor=self.redactor,
            check=self.citation_check,
        )

    @property
    def sentence_judge(self) -> SentenceJudge:
        """Judges cited sentences."""
        return SentenceJudge(self.metered_model, self.store, self.redactor, self.citation_check)

    @property
    def compactor(self) -> Compactor:
        """Compacts contexts."""
        return Compactor(
            model=self.metered_model,
            deps=self.agent_deps,
            outbox_drainer=self.outbox_drainer,
            clock=utc_now,
            hooks=self.hooks,
        )

    @property
    def rewinder(self) -> TaskRewinder:
        """Reopens finished tasks."""
        return TaskRewinder(
            self.store, TranscriptRewinder(self.store, self.outbox_drainer, SubmissionChecker(self.citation_check))
        )

    @property
    def publisher(self) -> ReportPublisher:
        """Writes reports."""
        store = self.store
        return ReportPublisher(
            report_indexer=self.report_indexer,
            store=store,
            redactor=self.redactor,
            check=self.citation_check,
        )


@asynccontextmanager
async def open_activity_deps(settings: Settings, store: SqlStore, meter: Meter) -> AsyncGenerator[ActivityDeps]:
    """Open the adapters that these settings select, and close them at the end.

    Raises:
        BadInput: Another process has the embedded memory of this home folder open, or a setting cannot be used.
        MemoryUnavailable: The memory cannot be opened.
    """
    # Presidio, the model's SDK and Qdrant take seconds and hundreds of megabytes, which workflow workers do not need.
    with pause_gc_for_imports():
        from waystation.memory.embedders.local import find_word_embedder  # noqa: PLC0415
        from waystation.runtime.plugins import build_plugin_registry  # noqa: PLC0415
        from waystation.runtime.redaction_setup import build_redaction_config, create_redactor, open_embedder  # noqa: PLC0415
        from waystation.workers.external_systems import open_compaction_hooks  # noqa: PLC0415
        from waystation.workers.memory import open_memory  # noqa: PLC0415
        from waystation.workers.models import create_model_router  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        hooks = await stack.enter_async_context(open_compaction_hooks(settings))
        embedder = await stack.enter_async_context(open_embedder(settings))
        memory = await stack.enter_async_context(open_memory(settings, embedder))
        # What the settings name and is not there is told of before anything is paid.
        tools = build_plugin_registry(settings).create_tools()
        key = load_oldest_key(settings)
        model = create_model_router(settings, _pacing(settings, store, key))
        stack.push_async_callback(model.aclose)
        redactor = create_redactor(settings, key, processes=settings.redaction_processes)
        stack.callback(redactor.close)
        vault = build_store_vault(store, settings)
        rules = build_redaction_config(redactor, key)
        originals = VaultPlaceholderFactory(vault, partial(compute_fingerprint, key), utc_now, get_current_session)
        whole = TextRedactor(redactor, originals, meter, _endurance(settings, store, rules, originals), settings.titles)
        redacted = RedactedDocumentStore(store, whole, rules)
        reach = await stack.enter_async_context(open_tool_backends(settings, ToolBackendDeps(store, meter, redacted)))
        yield ActivityDeps(
            store=store,
            model=model,
            redactor=whole,
            redacted_documents=redacted,
            embedder=embedder,
            memory=memory,
            search=HybridDocumentSearch(store, find_word_embedder(embedder)),
            meter=meter,
            key_check=compute_key_check(key),
            hooks=hooks,
            vault=vault,
            placeholders=originals,
            tool_backends=reach,
            tool_policy=settings.tool_policy,
            plugins=tools,
        )


def _pacing(settings: Settings, store: SqlStore, key: bytes) -> "RouterLimits":
    """Return the rate limits of this process's model calls, which it shares with all workers of the store."""
    from waystation.models.rate_limiter import RateLimiter  # noqa: PLC0415  an HTTP client comes with it
    from waystation.workers.models import RouterLimits, create_limit_scopes, create_limiter_context  # noqa: PLC0415

    worker = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
    weights = {tenant_hash(tenant): weight for tenant, weight in settings.tenant_weights.items()}
    context = create_limiter_context(settings, store.build_limit_repository(), worker, weights)
    return RouterLimits(RateLimiter(context), create_limit_scopes(settings, key))


def _endurance(
    settings: Settings, store: SqlStore, rules: RedactionConfig, originals: VaultPlaceholderFactory
) -> RedactionRetryPolicy:
    """Build the retry policy: with other rules or time limits, texts that were set aside are tried again."""
    slow = store.build_slow_text_store(f"{rules.policy}/{rules.version}/{settings.redaction_seconds:g}")
    most, then = settings.redaction_attempts, settings.redaction_failure
    return RedactionRetryPolicy(originals.fingerprint, slow, get_current_attempt, most, then)
