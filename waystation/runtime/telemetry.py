"""Exports spans by OTLP over HTTP, built from what the store has, in the order of its events; and records a span for
each attempt at an activity.

Progress is stored after sending: a process that crashes in between sends spans again, under the same ids.
OpenTelemetry's SDK reads its own variables. No provider is installed globally, so that other instrumentations export
nothing and no call counts twice.

Spans of attempts have no children: a killed attempt has none. Workflows have none either: they would last as long as a
task, and their decisions are in the store's events.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.metadata import entry_points
from json import dumps
from typing import NamedTuple

import requests
from opentelemetry import context as contexts
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)
from pydantic import BaseModel, JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from waystation import __version__
from waystation.kernel.errors import BadInput, RedactionFailed, StoreError
from waystation.kernel.scopes import TaskScope
from waystation.kernel.temporal_names import SCHEDULE_ID_PREFIX, get_installation_prefix
from waystation.kernel.text import format_count
from waystation.kernel.value import ARGUMENTS, is_unusual_name, iter_strings, map_strings
from waystation.privacy.policy import FINGERPRINT_DIGITS, NameCandidate, TextDestination, iter_name_candidates
from waystation.privacy.ports import Redactor, Vault
from waystation.tasks.ports import TraceSource
from waystation.tasks.spans import TraceSpan, make_span_id, make_trace_id
from waystation.tasks.traces import TaskTraceData, TraceCursor, build_spans

_INTERVAL = timedelta(seconds=5)
_LEASE = timedelta(seconds=30)
"""Time after which another process takes over from one that was killed."""
_LAST_WORD = timedelta(seconds=5)
"""Maximum time at shutdown to send what the last turns committed."""
_EVENTS_AT_ONCE = 500
_SPANS_AT_ONCE = 256
_REDIRECT, _FAULT, _TOO_LARGE = 300, 400, 413
_CREDENTIALS = tuple(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{one}CREDENTIAL_PROVIDER" for one in ("", "TRACES_"))
_SCOPE = "waystation"
_CONVENTION_WORDS = frozenset(
    {"text", "tool_call", "tool_call_response", "user", "assistant"}
    | {"type", "role", "parts", "name", "content", "finish_reason"}
)
"""Words of the semantic conventions themselves, which need no redaction."""
_PERSON = "PERSON"
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_log = logging.getLogger(__name__)


class _GivenIds(IdGenerator):
    """Generates the span ids that the store has."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        """See base class."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """See base class."""
        return self.span_id


class _Collected(SpanProcessor):
    """Collects ended spans until they are taken."""

    def __init__(self) -> None:
        self.ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """See base class."""
        self.ended.append(span)


class SdkSpanBuilder:
    """Builds SDK spans from ours, under the SDK's sampler, limits and resource, which its variables set."""

    def __init__(self, resource: Resource) -> None:
        self._ids, self._collected = _GivenIds(), _Collected()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(self._collected)

    def build_spans(self, spans: Sequence[TraceSpan]) -> Sequence[ReadableSpan]:
        """Build the spans of sampled traces; a trace is sampled as a whole."""
        tracer, self._collected.ended = self._provider.get_tracer(_SCOPE), []
        for span in spans:
            self._ids.trace_id, self._ids.span_id = int(span.trace_id, 16), int(span.span_id, 16)
            if not self._provider.sampler.should_sample(None, self._ids.trace_id, span.name).decision.is_sampled():
                continue
            started = tracer.start_span(
                span.name,
                set_span_in_context(NonRecordingSpan(_context(span.trace_id, span.parent)))
                if span.parent
                else contexts.Context(),
                kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
                attributes={**span.attributes},
                links=[
                    Link(_context(one.trace_id, one.span_id), {"waystation.link": one.reason}) for one in span.links
                ],
                start_time=_nanoseconds(span.start),
            )
            for event in span.events:
                started.add_event(event.name, {**event.attributes}, _nanoseconds(event.at))
            if span.error:
                started.set_attribute("error.type", span.error)
                started.set_status(Status(StatusCode.ERROR))
            started.end(_nanoseconds(span.end))
        return self._collected.ended


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=_SAMPLED)


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000


class KnownPeopleRedactor(NamedTuple):
    """Replaces names of people that the vault knows, in texts of spans that are redacted already.

    The models by which Presidio recognises names miss those in lower case. So each sequence of one to five words is
    looked up.
    """

    vault: Vault
    fingerprint: Callable[[str, str, str], str]
    """Fingerprint of tenant, type and value, ignoring case; placeholders begin with it."""
    ordinary: Set[str]
    """Lower-case words that, alone, are a name only as the vault spells it."""

    async def hide_known_names(self, texts: Collection[str], tenant: str) -> Mapping[str, str]:
        """Return the redacted version of each text. Raises StoreError, WrongKey."""
        found = {text: await asyncio.to_thread(self._placeholders, text, tenant) for text in texts}
        wanted = {placeholder for names in found.values() for placeholder in names.values()}
        known = await self.vault.load_originals(tenant, wanted)
        return {text: self._shown(text, names, known) for text, names in found.items()}

    def _placeholders(self, text: str, tenant: str) -> Mapping[NameCandidate, str]:
        values = {one: self.fingerprint(tenant, _PERSON, one.value) for one in iter_name_candidates(text)}
        return {one: f"<{_PERSON}_{digits[:FINGERPRINT_DIGITS]}>" for one, digits in values.items()}

    def _shown(self, text: str, names: Mapping[NameCandidate, str], known: Mapping[str, str]) -> str:
        parts, position = list[str](), 0
        for one, placeholder in names.items():
            if one.start >= position and self._is_meant(one, known.get(placeholder)):
                parts += (text[position : one.start], placeholder)
                position = one.end
        return "".join((*parts, text[position:]))

    def _is_meant(self, one: NameCandidate, spelled: str | None) -> bool:
        return spelled is not None and (
            one.words > 1 or one.value == spelled or one.value.casefold() not in self.ordinary
        )


@dataclass
class TraceFeed:
    """Sends unsent spans of the store. Of the processes that share a store one does this, the others wait."""

    store: TraceSource
    exporter: SpanExporter
    span_builder: SdkSpanBuilder
    holder: str
    """Identifies this process as the holder of the lease."""
    providers: Mapping[str, str]
    """Provider behind each endpoint, by endpoint name."""
    load_redactor: Callable[[TaskScope], Awaitable[Redactor]] | None = None
    """Loads the redactor of a task's texts; None: texts are not exported."""
    people: KnownPeopleRedactor | None = None
    """Also hides known people in texts; None: names are shown."""
    _away: bool = field(default=False, init=False)

    async def send(self) -> None:
        """Send all current spans, if this process has the lease and the receiver takes them.

        Raises StoreError.
        """
        while await self.store.acquire_trace_lease(self.holder, _LEASE):
            places = await self.store.list_unsent_tenant_traces(_EVENTS_AT_ONCE)
            if not places:
                return
            for place in places:
                if not await self._sent(place):
                    return

    async def _sent(self, cursor: TraceCursor) -> bool:
        spans = [one for task_id in cursor.tasks for one in await self._spans(cursor, task_id)]
        for first in range(0, len(spans), _SPANS_AT_ONCE):
            batch = self.span_builder.build_spans(
                [await self._spoken(*one) for one in spans[first : first + _SPANS_AT_ONCE]]
            )
            taken = not batch or await asyncio.to_thread(self.exporter.export, batch) is SpanExportResult.SUCCESS
            self._tell(taken=taken)
            if not taken or not await self.store.acquire_trace_lease(self.holder, _LEASE):
                return False
        await self.store.mark_traces_sent(cursor)
        return True

    async def _spans(self, cursor: TraceCursor, task_id: str) -> Sequence[tuple[TaskScope, TraceSpan]]:
        """Return spans that have finished since, and their tasks."""
        found = await self.store.load_task_trace_data(cursor, task_id)
        if found is None:
            return ()
        task, after = found
        reader = TaskScope(tenant=task.tenant, session=task.session, task_id=task.task_id)
        spans = build_spans(await self._with_transcripts(task, reader), after, self.providers)
        return [(reader, span) for span in spans]

    async def _with_transcripts(self, task: TaskTraceData, reader: TaskScope) -> TaskTraceData:
        runs = {
            agent: run.replace(transcript=await self.store.load_transcript(run.transcript.run_id, reader))
            for agent, run in task.runs.items()
        }
        return task.replace(runs=runs)

    async def _spoken(self, task: TaskScope, span: TraceSpan) -> TraceSpan:
        """Return the span with its texts, redacted as titles are, if they are requested.

        A text that cannot be redacted is left out, and delays no other span. Raises StoreError.
        """
        if self.load_redactor is None or not span.content:
            return span
        said = {**span.content}
        found = {text for body in said.values() for _, text in iter_strings(body, ARGUMENTS, is_unusual_name)}
        texts = sorted(found - _CONVENTION_WORDS)
        try:
            redacted = await (await self.load_redactor(task)).redact(texts, TextDestination.TITLE, task.tenant)
        except RedactionFailed:
            return span.replace(attributes={**span.attributes, "waystation.said": "not redacted"})
        shown = {text: one.text for text, one in zip(texts, redacted, strict=True)}
        if self.people is not None:
            hidden = await self.people.hide_known_names(set(shown.values()), task.tenant)
            shown = {text: hidden[one] for text, one in shown.items()}
        words = {
            name: _json(map_strings(body, lambda text: shown.get(text, text), is_unusual_name))
            for name, body in said.items()
        }
        return span.replace(attributes={**span.attributes, **words})

    def _tell(self, *, taken: bool) -> None:
        """Log once when the receiver stops taking spans, and once when it takes them again."""
        if self._away is taken:
            self._away = not taken
            _log.warning(
                "spans are being sent again"
                if taken
                else "the receiver of spans does not answer: spans are sent when it does"
            )


def _json(body: JsonValue) -> str:
    return body if isinstance(body, str) else dumps(body, ensure_ascii=False)


@asynccontextmanager
async def run_trace_feed(feed: TraceFeed, interval: timedelta = _INTERVAL) -> AsyncGenerator[None]:
    """Send spans now and at every interval until the block ends, then send the rest."""
    stopping = asyncio.Event()
    following = asyncio.create_task(_follow(feed, interval, stopping))
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait([following], timeout=_LAST_WORD.total_seconds())  # the next process sends the rest
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _follow(feed: TraceFeed, interval: timedelta, stopping: asyncio.Event) -> None:
    last = False
    while not last:
        last = stopping.is_set()
        with suppress(StoreError):  # the next iteration retries
            await feed.send()
        with suppress(TimeoutError):
            async with asyncio.timeout(interval.total_seconds()):
                await stopping.wait()


def build_trace_resource() -> Resource:
    """Build the resource of all spans; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it."""
    own = Resource({"service.name": _SCOPE, "service.version": __version__})
    found = Resource.create()
    unnamed = str(found.attributes.get("service.name", "")).startswith("unknown_service")
    return found.merge(own) if unnamed else own.merge(found)


class OtlpExporter(OTLPSpanExporter):
    """The SDK's exporter, which does not follow redirects but counts them as success: here a redirect is a failure, and
    spans wait.

    A batch that is too large for the receiver is halved, and a single such span left out.
    """

    _heard: int | None = None
    """Status of the last answer to the last batch."""
    _left_out = _told_of = 0
    """Spans left out so far, and how many of them were logged."""

    def __init__(self) -> None:
        """Build the exporter. Raises BadInput for a credentials provider that is not installed."""
        session = _session()
        session.hooks["response"].append(self._hear)
        super().__init__(session=session)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See base class. Spans left out are logged with their number: at the first, and whenever it has doubled."""
        result = self._in_parts(spans)
        if self._left_out > 2 * self._told_of:
            self._told_of = self._left_out
            _log.warning(
                "spans left out because they are too large for the receiver: %s so far",
                format_count(self._told_of, "span"),
            )
        return result

    def _in_parts(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        heard, self._heard = self._heard, None
        if heard != _TOO_LARGE:
            return result
        if len(spans) == 1:
            self._left_out += 1
            return SpanExportResult.SUCCESS
        half = len(spans) // 2
        first = self._in_parts(spans[:half])
        return self._in_parts(spans[half:]) if first is SpanExportResult.SUCCESS else first

    def _hear(self, answer: requests.Response, **_: object) -> requests.Response:
        if _REDIRECT <= answer.status_code < _FAULT:
            answer.status_code = _FAULT
        self._heard = answer.status_code
        return answer


def _session() -> requests.Session:
    """Build the HTTP session, with the credentials provider that OpenTelemetry's variables name: the SDK would hide
    such a session from us.
    """
    variable = next(filter(os.environ.get, _CREDENTIALS), None)
    if variable is None:
        return requests.Session()
    named = os.environ[variable]
    found = [one.load()() for one in entry_points(group="opentelemetry_otlp_credential_provider", name=named)]
    if not found:
        raise BadInput(
            f"{variable} names the credentials provider {named!r}, which no installed package provides: install a "
            "package with this provider"
        )
    if not isinstance(found[0], requests.Session):
        raise BadInput(
            f"{variable} names the credentials provider {named!r}, which does not return a requests.Session: name "
            "another provider"
        )
    return found[0]


def create_span_exporter() -> SpanExporter:
    """Create the exporter that OpenTelemetry's variables describe. Raises BadInput if they contradict each other."""
    # We log once that no receiver takes spans; the SDK would log it for every batch.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    try:
        return OtlpExporter()
    except (ValueError, OSError) as error:
        raise BadInput(
            f"OTEL_EXPORTER_OTLP_…: spans cannot be sent with these settings ({type(error).__name__})"
        ) from None


@asynccontextmanager
async def open_tracing_interceptor(resource: Resource) -> AsyncGenerator["ActivityTracingInterceptor"]:
    """Open the interceptor that records a span for each attempt at an activity; at the end the last spans are sent."""
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(create_span_exporter()))
    try:
        yield ActivityTracingInterceptor(provider.get_tracer(_SCOPE))
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD.total_seconds()):
                await asyncio.to_thread(provider.shutdown)


class ActivityTracingInterceptor(Interceptor):
    """Records a span for each attempt at an activity, in its task's trace.

    Temporal's own interceptor would include error messages and the paths of the code that raised them.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return _OfTask(next, self._tracer)


class _OfTask(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, tracer: Tracer) -> None:
        super().__init__(next)
        self._tracer = tracer

    async def execute_activity(self, input: ExecuteActivityInput) -> object:
        info, given = activity.info(), [_task_of(one) for one in list[object](input.args)]
        task_id = "".join(given[:1]) or _own_id(info).partition("/")[0]
        parent = NonRecordingSpan(_context(make_trace_id(task_id), make_span_id(task_id)))
        with self._tracer.start_as_current_span(
            f"RunActivity:{info.activity_type}",
            set_span_in_context(parent) if task_id.startswith("task-") else contexts.Context(),
            kind=SpanKind.SERVER,
            attributes=_whose(info),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await super().execute_activity(input)
            except Exception as error:
                said = error if isinstance(error, ApplicationError) else None
                if said is None or said.category is not ApplicationErrorCategory.BENIGN:
                    span.set_attribute("error.type", (said.type if said else None) or type(error).__name__)
                    span.set_status(Status(StatusCode.ERROR))
                raise


def _whose(info: activity.Info) -> Mapping[str, str]:
    """Return the ids, named as Temporal's interceptor does; without that of a scheduled run, which has the schedule's
    name.
    """
    found = {
        "temporalWorkflowID": "" if _own_id(info).startswith(SCHEDULE_ID_PREFIX) else info.workflow_id or "",
        "temporalRunID": info.workflow_run_id or "",
        "temporalActivityID": info.activity_id,
    }
    return {name: value for name, value in found.items() if value}


def _own_id(info: activity.Info) -> str:
    """Return the workflow id without the installation's prefix; empty if no workflow made the call."""
    return (info.workflow_id or "").removeprefix(get_installation_prefix(info.task_queue))


def _task_of(given: object, depth: int = 3) -> str:
    """Return the task id of the first reference in an activity's input; empty if there is none."""
    if not isinstance(given, BaseModel) or not depth:
        return ""
    found: object = getattr(given, "task_id", "")
    inner = (_task_of(getattr(given, name), depth - 1) for name in type(given).model_fields)
    return found if isinstance(found, str) and found else next(filter(None, inner), "")
