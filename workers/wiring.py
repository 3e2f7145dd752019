"""The composition root: turns settings into polling workers, with everything that belongs to them."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.worker import Interceptor, Worker

from waystation.agents.ports import Meter
from waystation.agents.redaction import load_task_redactor
from waystation.config.setting_types import parse_listen_address
from waystation.config.settings import Settings, TraceTarget, describe_unknown_variables, resolve_trace_target
from waystation.kernel.files import create_private_folder
from waystation.kernel.imports import pause_gc_for_imports
from waystation.kernel.temporal_names import CONTEXT_QUEUE, WORKFLOWS_QUEUE
from waystation.models.rate_limits import NO_LIMITS, build_limit_status
from waystation.privacy.policy import RedactionLevel, TextDestination, get_redaction_level
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_client_data_converter, load_oldest_key, open_store, require_store_key
from waystation.runtime.temporal.connect import connect, ensure_search_attributes, resolve_temporal_target
from waystation.runtime.temporal.deployment_client import TemporalDeploymentClient
from waystation.runtime.temporal.erasure_client import ensure_retention_workflow
from waystation.runtime.temporal.metrics import TemporalMeter, create_prometheus_runtime, get_worker_runtime
from waystation.runtime.temporal.task_client import TemporalTaskClient
from waystation.tasks.spans import PROVIDERS
from waystation.workers.activity_deps import ActivityDeps, open_activity_deps
from waystation.workers.external_systems import open_notification_activities
from waystation.workers.health import Gauge, HealthCheck, run_gauge_sampler, run_health_server
from waystation.workers.queues import (
    WORKER_FACTORIES,
    WorkerContext,
    WorkerTiming,
    create_workflows_worker,
    get_build_id,
    get_worker_timing,
    select_served_queues,
)
from waystation.workers.sandbox import create_sandboxed_runner
from waystation.workers.shutdown import stop_on_signals

if TYPE_CHECKING:
    from waystation.runtime.telemetry import KnownPeopleRedactor


async def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Run this process's workers until a signal, then let the legs reach a turn boundary.

    Raises as `run_configured_workers`.
    """
    stop_on_signals()
    for sentence in describe_unknown_variables():
        say(sentence)
    try:
        async with run_configured_workers(settings):
            say("workers run; Ctrl-C stops")
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        say("stopped")


@asynccontextmanager
async def run_configured_workers(settings: Settings, timing: WorkerTiming | None = None) -> AsyncGenerator[Client]:
    """Run the workers of this process; at the end they finish their turns.

    Args:
        settings: The settings.
        timing: Timing of shutdown and heartbeats; default: that of the settings.

    Raises:
        Unreachable: No Temporal server answers, or it does not have the namespace.
        BadInput: A queue or an address cannot be served, or another process has the embedded memory open.
        MemoryUnavailable, StoreError: Memory or store cannot be opened.
    """
    queues, traces = select_served_queues(settings), resolve_trace_target()
    runtime = _runtime(settings)
    meter = TemporalMeter(runtime.metric_meter)
    target = resolve_temporal_target(settings)
    client = await connect(target, build_client_data_converter(settings), runtime)
    async with AsyncExitStack() as stack:
        create_private_folder(settings.home)
        store = await stack.enter_async_context(aclosing(await open_store(settings)))
        await require_store_key(store, settings)
        notices = await stack.enter_async_context(open_notification_activities(settings, target))
        attributes = await ensure_search_attributes(client)
        attempts = [await stack.enter_async_context(_attempts())] if traces is not None else []
        timing = timing or get_worker_timing(settings)
        shop = WorkerContext(client, store, settings, create_sandboxed_runner(), attributes, notices, timing, attempts)
        workers = [create_workflows_worker(shop)] if WORKFLOWS_QUEUE in queues else []
        parts: ActivityDeps | None = None
        if with_parts := sorted(queues & WORKER_FACTORIES.keys()):
            parts = await stack.enter_async_context(open_activity_deps(settings, store, meter))
            workers += [WORKER_FACTORIES[queue](shop, parts) for queue in with_parts]
        if settings.health_address is not None:
            health = HealthCheck(client, store, parts.memory if parts is not None else None, workers)
            await stack.enter_async_context(run_health_server(settings.health_address, health))
        if settings.metrics_address is not None:
            await stack.enter_async_context(
                run_gauge_sampler(_gauges(shop, TemporalTaskClient(client, target), meter), meter)
            )
        if parts is not None:
            # Last, when nothing else can fail: a process that does not start must not have claimed the store's key.
            await parts.claim_key()
            if CONTEXT_QUEUE in queues:
                from waystation.workers.memory import run_drain_loop  # noqa: PLC0415  it loads the embedded engine

                await parts.outbox_drainer.drain()
                await stack.enter_async_context(run_drain_loop(parts.outbox_drainer))
                if traces is not None:
                    await stack.enter_async_context(_fed(traces, settings, store, parts))
        if settings.versioning:
            # Before the first workflow starts and before workers poll: without a current build, nothing is started.
            await TemporalDeploymentClient(client).ensure_current(get_build_id(settings))
        if WORKFLOWS_QUEUE in queues and settings.retention_days is not None:
            await ensure_retention_workflow(client, await store.get_store_id())
        await stack.enter_async_context(run_workers(workers))
        yield client


@asynccontextmanager
async def _attempts() -> AsyncGenerator[Interceptor]:
    """Record spans of attempts at activities."""
    with pause_gc_for_imports():
        from waystation.runtime.telemetry import build_trace_resource, open_tracing_interceptor  # noqa: PLC0415  it loads the SDK

    async with open_tracing_interceptor(build_trace_resource()) as attempts:
        yield attempts


@asynccontextmanager
async def _fed(target: TraceTarget, settings: Settings, store: SqlStore, parts: ActivityDeps) -> AsyncGenerator[None]:
    """Export the spans of tasks, from workers that redact: their texts may be requested."""
    from waystation.runtime.telemetry import (  # noqa: PLC0415
        SdkSpanBuilder,
        TraceFeed,
        build_trace_resource,
        create_span_exporter,
        run_trace_feed,
    )

    async with AsyncExitStack() as stack:
        exporter = create_span_exporter()
        stack.callback(exporter.shutdown)
        holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        named = {
            name: PROVIDERS.get(endpoint.kind, endpoint.kind) for name, endpoint in settings.named_endpoints.items()
        }
        asked = partial(load_task_redactor, parts.redactor, store) if target.include_content else None
        people = _people(settings, parts) if target.include_content else None
        feed = TraceFeed(store, exporter, SdkSpanBuilder(build_trace_resource()), holder, named, asked, people)
        await stack.enter_async_context(run_trace_feed(feed))
        yield


def _people(settings: Settings, parts: ActivityDeps) -> "KnownPeopleRedactor | None":
    """Return the redactor of known people's names in spans; None if the policy shows names."""
    from waystation.plugins.redaction.people import ORDINARY_WORDS  # noqa: PLC0415
    from waystation.runtime.telemetry import KnownPeopleRedactor  # noqa: PLC0415  it loads the SDK
    from waystation.security.placeholders import compute_fingerprint  # noqa: PLC0415

    if (
        parts.vault is None
        or get_redaction_level(TextDestination.TITLE, parts.redacted_documents.rules.policy) < RedactionLevel.NAMES
    ):
        return None
    return KnownPeopleRedactor(parts.vault, partial(compute_fingerprint, load_oldest_key(settings)), ORDINARY_WORDS)


def _runtime(settings: Settings) -> Runtime:
    if settings.metrics_address is None:
        return get_worker_runtime()
    return create_prometheus_runtime(*parse_listen_address("WAYSTATION_METRICS_ADDRESS", settings.metrics_address))


def _gauges(shop: WorkerContext, tasks: TemporalTaskClient, meter: Meter) -> tuple[Gauge, ...]:
    outbox = Gauge("outbox_passages", shop.store.count_pending_passages, meter.set_pending_passages)
    paused = Gauge("paused_tasks", tasks.count_waiting_tasks, meter.set_paused_tasks)
    limits = Gauge("rate_limits", partial(_sample_rate_limits, shop, meter), meter.set_waiting_calls)
    # Without its search attribute the server cannot count paused tasks.
    return (outbox, limits, paused) if shop.search_attributes else (outbox, limits)


async def _sample_rate_limits(shop: WorkerContext, meter: Meter) -> int:
    """Record the rate limits of all models. Returns how many calls wait for them."""
    fixed, waiting = shop.settings.fixed_limits, 0
    for scope, state, now in await shop.store.build_limit_repository().list_limit_states():
        status = build_limit_status(state, fixed.get((scope.endpoint, scope.model), NO_LIMITS), now)
        waiting += status.waiting
        for kind, limit in status.limits.iter_limits():
            meter.set_rate_limit(scope.model, kind, limit, status.remaining.get(kind) or 0.0)
    return waiting


@asynccontextmanager
async def run_workers(workers: Sequence[Worker]) -> AsyncGenerator[None]:
    """Let the workers poll until the block ends, then stop all at once: one after another, their graces would
    add up.
    """
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        try:
            yield
        finally:
            await asyncio.gather(*(worker.shutdown() for worker in workers))
