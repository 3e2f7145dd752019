"""What spans are to say nothing of: words of errors, names of schedules, names of fields that a model chose."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.attempts import reported
from waystation.adapters.traces import AttemptTraces
from waystation.domain.errors import ModelUnavailable, RequestConflict

NAME = "Ada Lovelace"


class Failing(ActivityInboundInterceptor):
    """An activity that fails as ours do."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def execute_activity(self, input: ExecuteActivityInput) -> NoReturn:
        with reported():
            raise self._error from ValueError(NAME)


async def attempted(error: Exception, workflow_id: str = "task-0123456789abcdef") -> Sequence[ReadableSpan]:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracing = AttemptTraces(provider.get_tracer("test")).intercept_activity(Failing(error))

    async def attempt() -> None:
        with pytest.raises(ApplicationError):
            await tracing.execute_activity(ExecuteActivityInput(fn=attempt, args=[], executor=None, headers={}))

    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_id=workflow_id)
    await environment.run(attempt)
    return kept.get_finished_spans()


@pytest.mark.parametrize(
    ("error", "kind"), [(RequestConflict(f"{NAME} was used before"), "RequestConflict"), (KeyError(NAME), "KeyError")]
)
async def test_an_attempt_that_failed_has_the_kind_of_its_error_and_neither_words_nor_paths(
    error: Exception, kind: str
) -> None:
    (span,) = await attempted(error)
    assert (span.attributes or {})["error.type"] == kind
    assert not span.status.is_ok
    for words in (NAME, __file__, "Traceback"):
        assert words not in span.to_json()


async def test_what_another_server_refuses_is_no_failure_of_an_attempt_and_says_nothing_either() -> None:
    (span,) = await attempted(ModelUnavailable(NAME))
    assert "error.type" not in (span.attributes or {})
    assert NAME not in span.to_json()


async def test_an_attempt_of_a_scheduled_run_does_not_name_the_schedule() -> None:
    (span,) = await attempted(KeyError(NAME), "schedule-0123456789abcdef-ada-lovelace-2026-11-25T00:00:00Z")
    assert "ada-lovelace" not in span.to_json()
