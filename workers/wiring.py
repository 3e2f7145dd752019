"""The composition root: settings become workers that poll, with what belongs to them."""

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
from waystation.agents.redaction import redactor_for
from waystation.config.settings import Settings, TraceTarget, trace_target, unknown_variables
from waystation.config.values import address_of
from waystation.kernel.files import private_folder
from waystation.kernel.imports import loading
from waystation.kernel.temporal_names import CONTEXT_QUEUE, WORKFLOWS_QUEUE
from waystation.privacy.policy import Place, Treatment, treatment
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.stores import data_converter, first_key, opened_store, require_key_of
from waystation.runtime.temporal.connect import connect, ensure_search_attributes, find_target
from waystation.runtime.temporal.metrics import TemporalMeter, prometheus_runtime, worker_runtime
from waystation.runtime.temporal.orders import keep_retention
from waystation.runtime.temporal.tasks import TemporalTasks
from waystation.tasks.spans import PROVIDERS
from workers.health import Gauge, Health, sampled, served_health
from workers.outside import opened_notices
from workers.parts import Parts, opened_parts
from workers.queues import WORKER_WITH_PARTS, WorkerTiming, Workshop, served_queues, timing_of, workflows_worker
from workers.sandbox import sandboxed
from workers.shutdown import stop_on_signals

if TYPE_CHECKING:
    from waystation.runtime.telemetry import KnownPeople


async def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Run this process's workers until a signal, then let the legs reach a turn boundary. Raises as below."""
    stop_on_signals()
    for sentence in unknown_variables():
        say(sentence)
    try:
        async with running_workers(settings):
            say("workers run; Ctrl-C stops")
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        say("stopped")


@asynccontextmanager
async def running_workers(settings: Settings, timing: WorkerTiming | None = None) -> AsyncGenerator[Client]:
    """The workers of this process, polling; at the end they finish their turns and yield.

    `timing` is that of the settings unless given.

    Raises:
        Unreachable: no Temporal server answers, or it does not have the namespace.
        BadInput: a queue or an address that cannot be served; another process has the embedded memory open.
        MemoryUnavailable, StoreError: memory or store cannot be opened.
    """
    queues, traces = served_queues(settings), trace_target()
    runtime = _runtime(settings)
    meter = TemporalMeter(runtime.metric_meter)
    target = find_target(settings)
    client = await connect(target, data_converter(settings), runtime)
    async with AsyncExitStack() as stack:
        private_folder(settings.home)
        store = await stack.enter_async_context(aclosing(await opened_store(settings)))
        await require_key_of(store, settings)
        notices = await stack.enter_async_context(opened_notices(settings, target))
        attributes = await ensure_search_attributes(client)
        attempts = [await stack.enter_async_context(_attempts())] if traces is not None else []
        timing = timing or timing_of(settings)
        shop = Workshop(client, store, settings, sandboxed(), attributes, notices, timing, attempts)
        workers = [workflows_worker(shop)] if WORKFLOWS_QUEUE in queues else []
        parts: Parts | None = None
        if with_parts := sorted(queues & WORKER_WITH_PARTS.keys()):
            parts = await stack.enter_async_context(opened_parts(settings, store, meter))
            workers += [WORKER_WITH_PARTS[queue](shop, parts) for queue in with_parts]
        if settings.health_address is not None:
            health = Health(client, store, parts.memory if parts is not None else None, workers)
            await stack.enter_async_context(served_health(settings.health_address, health))
        if settings.metrics_address is not None:
            await stack.enter_async_context(sampled(_gauges(shop, TemporalTasks(client, target), meter), meter))
        if parts is not None:
            # Last, when nothing else can fail: a process that does not start must not leave its key behind.
            await parts.claim_key()
            if CONTEXT_QUEUE in queues:
                from workers.memory import draining  # noqa: PLC0415  it loads the embedded engine

                await parts.archive.drain()
                await stack.enter_async_context(draining(parts.archive))
                if traces is not None:
                    await stack.enter_async_context(_fed(traces, settings, store, parts))
        if WORKFLOWS_QUEUE in queues and settings.retention_days is not None:
            await keep_retention(client, await store.store_id())
        await stack.enter_async_context(polling(workers))
        yield client


@asynccontextmanager
async def _attempts() -> AsyncGenerator[Interceptor]:
    """Spans of attempts at activities."""
    with loading():
        from waystation.runtime.telemetry import trace_resource, traced_attempts  # noqa: PLC0415  it loads the SDK

    async with traced_attempts(trace_resource()) as attempts:
        yield attempts


@asynccontextmanager
async def _fed(target: TraceTarget, settings: Settings, store: SqlStore, parts: Parts) -> AsyncGenerator[None]:
    """The spans of tasks, from those workers that redact: what was said may be asked for."""
    from waystation.runtime.telemetry import SpanMaker, TraceFeed, fed, span_exporter, trace_resource  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        exporter = span_exporter()
        stack.callback(exporter.shutdown)
        holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        named = {name: PROVIDERS[endpoint.kind] for name, endpoint in settings.named_endpoints.items()}
        asked = partial(redactor_for, parts.redactor, store) if target.said else None
        people = _people(settings, parts) if target.said else None
        feed = TraceFeed(store, exporter, SpanMaker(trace_resource()), holder, named, asked, people)
        await stack.enter_async_context(fed(feed))
        yield


def _people(settings: Settings, parts: Parts) -> "KnownPeople | None":
    """Whom spans do not name; None where the policy has names shown."""
    from waystation.plugins.redaction.people import ORDINARY_WORDS  # noqa: PLC0415
    from waystation.plugins.redaction.placeholders import fingerprint  # noqa: PLC0415
    from waystation.runtime.telemetry import KnownPeople  # noqa: PLC0415  it loads the SDK

    if parts.vault is None or treatment(Place.TITLE, parts.redacted.rules.policy) < Treatment.NAMES:
        return None
    return KnownPeople(parts.vault, partial(fingerprint, first_key(settings)), ORDINARY_WORDS)


def _runtime(settings: Settings) -> Runtime:
    if settings.metrics_address is None:
        return worker_runtime()
    return prometheus_runtime(*address_of("WAYSTATION_METRICS_ADDRESS", settings.metrics_address))


def _gauges(shop: Workshop, tasks: TemporalTasks, meter: Meter) -> tuple[Gauge, ...]:
    outbox = Gauge("outbox_passages", shop.store.count_waiting, meter.passages_waiting)
    paused = Gauge("paused_tasks", tasks.count_waiting_tasks, meter.tasks_paused)
    # Without its attribute the server cannot tell.
    return (outbox, paused) if shop.search_attributes else (outbox,)


@asynccontextmanager
async def polling(workers: Sequence[Worker]) -> AsyncGenerator[None]:
    """Let them poll until the block ends, and then stop all at once: one after another, graces would add up."""
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        try:
            yield
        finally:
            await asyncio.gather(*(worker.shutdown() for worker in workers))
