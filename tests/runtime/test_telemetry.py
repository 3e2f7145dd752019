"""Spans on their way from the store to a receiver: in its order, under their ids, by one process at a time."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest
import requests
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan, run_otlp_receiver
from tests.support.store_values import make_charge, make_intent, make_question, make_reply
from tests.tasks.test_event_repository import register_task, take_run_fence
from waystation.agents.leg import AgentFinished, LegState
from waystation.agents.redaction import load_task_redactor
from waystation.kernel.errors import BadInput, RedactionFailed
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.privacy.ports import Redactor
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.telemetry import (
    SdkSpanBuilder,
    TraceFeed,
    build_trace_resource,
    create_span_exporter,
    open_tracing_interceptor,
    run_trace_feed,
)
from waystation.tasks.spans import make_span_id
from waystation.testing.doubles import PlainRedactor

PROVIDER = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER"
OVER = AgentFinished(state=LegState.model_validate({"totals": {}}))


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with run_otlp_receiver() as opened:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", opened.url)
        yield opened


def feed_of(
    store: SqlStore, holder: str = "one", redactor: Redactor | None = None, exporter: SpanExporter | None = None
) -> TraceFeed:
    redactor_of = None if redactor is None else partial(load_task_redactor, redactor, store)
    return TraceFeed(
        store, exporter or create_span_exporter(), SdkSpanBuilder(build_trace_resource()), holder, {}, redactor_of
    )


async def begun(store: SqlStore, name: str = "first") -> str:
    task = await register_task(store, name)
    await store.save_task_title(task.ref.task_id, "Sky")
    return task.ref.task_id


async def worked(store: SqlStore, name: str = "first", turns: int = 2) -> str:
    """A task whose agent has done a leg of so many turns."""
    task = await register_task(store, name)
    fence = await take_run_fence(store, task)
    await store.commit_message(fence, 0, make_question(0))
    for turn in range(turns):
        await store.record_and_count_intents(fence, make_intent(f"turn-{turn}"))
        await store.commit_reply(fence, 2 * turn + 1, make_reply(turn), make_charge(f"turn-{turn}"))
        await store.commit_message(fence, 2 * turn + 2, make_question(turn + 1))
    await store.commit_outcome(fence, 1, OVER)
    return task.ref.task_id


def names(spans: Sequence[ReceivedSpan]) -> list[str]:
    return [span.name for span in spans]


async def test_what_is_committed_goes_out_once_and_in_order(store: SqlStore, receiver: OtlpReceiver) -> None:
    feed = feed_of(store)
    await feed.send()
    await begun(store)
    await feed.send()
    assert names(receiver.spans) == ["invoke_workflow task"]
    await worked(store)
    for _ in range(3):
        await feed.send()
    assert names(receiver.spans) == ["invoke_workflow task", "chat model", "chat model", "invoke_agent research-1"]
    assert receiver.spans[0].resource["service.name"] == "waystation"


async def test_a_crash_between_sending_and_keeping_how_far_sends_the_same_ids_again(
    store: SqlStore, receiver: OtlpReceiver
) -> None:
    await feed_of(store).send()
    await worked(store)
    crashing = feed_of(store)

    class Crashed(SqlStore):
        async def mark_traces_sent(self, cursor: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise LookupError

    crashing.store = Crashed(store.database, store._clock, await store.get_store_id())  # pyright: ignore[reportPrivateUsage]
    with suppress(LookupError):
        await crashing.send()
    first = [(span.name, span.span_id) for span in receiver.spans]
    assert first
    await feed_of(store).send()
    assert [(span.name, span.span_id) for span in receiver.spans] == first * 2


async def test_who_cannot_take_spans_now_gets_them_later(
    store: SqlStore, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.FAILURE

    await feed_of(store).send()
    await worked(store)
    away = feed_of(store, exporter=Refusing())
    for _ in range(3):
        await away.send()
    assert [record.message for record in caplog.records] == [
        "the receiver of spans does not answer: spans are sent when it does"
    ]
    away.exporter = create_span_exporter()
    await away.send()
    assert len(receiver.spans) == 4
    assert caplog.records[-1].message == "spans are being sent again"


class Credentials:
    """A package that has them."""

    @staticmethod
    def load() -> Callable[[], requests.Session]:
        return requests.Session


def installed(**_: str) -> list[type[Credentials]]:
    return [Credentials]


@pytest.mark.parametrize("provided", [False, True])
async def test_a_redirect_takes_nothing_and_spans_wait_for_who_does(
    store: SqlStore, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, *, provided: bool
) -> None:
    if provided:
        monkeypatch.setenv(PROVIDER, "ours")
        for module in ("waystation.runtime.telemetry", "opentelemetry.exporter.otlp.proto.http._common"):
            monkeypatch.setattr(f"{module}.entry_points", installed)
    feed = feed_of(store)
    await feed.send()
    receiver.redirects = True
    await begun(store)
    await feed.send()
    assert not receiver.spans
    receiver.redirects = False
    await feed.send()
    assert names(receiver.spans) == ["invoke_workflow task"]


async def test_what_is_too_large_for_the_receiver_goes_in_smaller_parts_and_holds_up_no_other_span(
    store: SqlStore, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    feed = feed_of(store)
    await feed.send()
    await worked(store)
    receiver.most_bytes = 1_200
    await feed.send()
    assert names(receiver.spans) == ["invoke_workflow task", "chat model", "chat model", "invoke_agent research-1"]
    assert len(receiver.raw) > 1
    receiver.most_bytes = 10
    for name in ("second", "another"):
        await worked(store, name)
        await feed.send()
    told = [record.getMessage() for record in caplog.records]
    assert told == ["spans left out because they are too large for the receiver: 4 spans so far"], (
        "8 are not twice as many and more"
    )
    await worked(store, "one more")
    await feed.send()
    assert (
        caplog.records[-1].getMessage() == "spans left out because they are too large for the receiver: 12 spans so far"
    )
    receiver.most_bytes = None
    await begun(store, "third")
    await feed.send()
    assert names(receiver.spans)[4:] == ["invoke_workflow task"]


@pytest.mark.usefixtures("receiver")
def test_credentials_that_nobody_has_are_refused_by_the_name_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROVIDER, "nobody")
    with pytest.raises(
        BadInput, match=f"{PROVIDER} names the credentials provider 'nobody', which no installed package provides"
    ):
        create_span_exporter()


class Doing(ActivityInboundInterceptor):
    """An activity that is done."""

    def __init__(self) -> None:
        """Nothing follows it."""

    async def execute_activity(self, input: ExecuteActivityInput) -> None:
        """See base class."""


async def test_attempts_that_are_too_large_together_go_in_smaller_parts(receiver: OtlpReceiver) -> None:
    receiver.most_bytes = 600
    async with open_tracing_interceptor(build_trace_resource()) as attempts:
        attempt = attempts.intercept_activity(Doing())
        given = ExecuteActivityInput(fn=len, args=[], executor=None, headers={})
        for _ in range(8):
            await ActivityEnvironment().run(attempt.execute_activity, given)
    assert names(receiver.spans) == ["RunActivity:unknown"] * 8
    assert len(receiver.raw) > 1


async def test_of_two_processes_one_sends_and_the_other_when_it_is_gone(
    store: SqlStore, receiver: OtlpReceiver
) -> None:
    one, other = feed_of(store, "one"), feed_of(store, "other")
    await one.send()
    await worked(store)
    await other.send()
    assert not receiver.spans
    assert await store.acquire_trace_lease("one", timedelta(seconds=-1)), "it is killed, and its time passes"
    await other.send()
    assert len(receiver.spans) == 4


async def test_what_happened_before_goes_out_only_with_what_happens_next(
    store: SqlStore, receiver: OtlpReceiver
) -> None:
    going_on = await begun(store)
    await begun(store, "over")
    feed = feed_of(store)
    await feed.send()
    assert not receiver.spans
    await worked(store)
    await feed.send()
    assert names(receiver.spans)[0] == "invoke_workflow task", "its parents come, too"
    assert {str(span.attributes["waystation.task.id"]) for span in receiver.spans} == {going_on}


async def test_a_process_that_stops_sends_what_it_committed_last(store: SqlStore, receiver: OtlpReceiver) -> None:
    async with run_trace_feed(feed_of(store), timedelta(hours=1)):
        while not await store.acquire_trace_lease("one", timedelta(minutes=1)):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        await worked(store)
    assert len(receiver.spans) == 4


async def test_what_was_said_goes_out_where_it_is_asked_for_and_redacted_alone(
    store: SqlStore, receiver: OtlpReceiver
) -> None:
    await feed_of(store).send()
    await worked(store)
    await feed_of(store, redactor=PlainRedactor({"Reply": "REPLY", "Question": "QUESTION"})).send()
    (chat, *_) = [span for span in receiver.spans if span.operation == "chat"]
    said = json.loads(str(chat.attributes["gen_ai.output.messages"]))
    parts = [{"type": "text", "content": "REPLY 0 – “so”"}]
    assert said == [{"role": "assistant", "parts": parts, "finish_reason": ""}]
    assert not [body for body in receiver.raw if b"Reply" in body or b"Question" in body]


class Helpless(PlainRedactor):
    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        raise RedactionFailed("it does not answer")


async def test_what_cannot_be_redacted_stays_here_and_holds_up_no_span(store: SqlStore, receiver: OtlpReceiver) -> None:
    await feed_of(store).send()
    await worked(store)
    await feed_of(store, redactor=Helpless({})).send()
    (chat, *_) = [span for span in receiver.spans if span.operation == "chat"]
    assert chat.attributes["waystation.said"] == "not redacted"
    assert len(receiver.spans) == 4
    assert not [body for body in receiver.raw if b"Reply" in body or b"Question" in body]


async def test_a_trace_is_sampled_whole_by_the_standard_variables(
    store: SqlStore, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "harbour")
    await feed_of(store).send()
    tasks = [await worked(store, f"task {number}") for number in range(12)]
    await feed_of(store).send()
    sent = {str(span.attributes["waystation.task.id"]) for span in receiver.spans}
    assert 0 < len(sent) < len(tasks)
    assert len(receiver.spans) == 4 * len(sent)
    assert receiver.spans[0].resource["service.name"] == "harbour"
    assert {span.span_id for span in receiver.spans if not span.parent} == {make_span_id(task) for task in sent}
