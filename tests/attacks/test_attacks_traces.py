"""What spans are to say nothing of: words of errors, names of schedules, names of fields that a model chose."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from tests.support.store_values import make_charge, make_intent, make_question, make_task_request, make_task_row
from tests.tasks.test_event_repository import take_run_fence
from waystation.activities.activity_errors import translating_errors
from waystation.agents.redaction import TextRedactor, VaultPlaceholderFactory, load_task_redactor
from waystation.config.settings import Settings
from waystation.context.transcript import Message, Text, ToolResult, ToolUse
from waystation.documents.documents import SourceDocument
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import ModelUnavailable, RequestConflict
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import TextDestination, VaultEntry
from waystation.runtime.redaction_setup import create_redactor
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.telemetry import (
    ActivityTracingInterceptor,
    KnownPeopleRedactor,
    SdkSpanBuilder,
    TraceFeed,
    build_trace_resource,
)
from waystation.security.placeholders import compute_fingerprint

NAME = "Ada Lovelace"


class Failing(ActivityInboundInterceptor):
    """An activity that fails as ours do."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def execute_activity(self, input: ExecuteActivityInput) -> NoReturn:
        with translating_errors():
            raise self._error from ValueError(NAME)


async def attempted(error: Exception, workflow_id: str = "task-0123456789abcdef") -> Sequence[ReadableSpan]:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracing = ActivityTracingInterceptor(provider.get_tracer("test")).intercept_activity(Failing(error))

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


async def test_documents_named_after_people_and_fields_that_a_model_named_are_redacted_in_what_was_said(
    store: SqlStore, tmp_path: Path
) -> None:
    document = f"Interview with {NAME}.md"
    exporter = InMemorySpanExporter()
    with closing(create_redactor(Settings(home=tmp_path), b"k" * 32)) as redactor:
        redactors = partial(load_task_redactor, redactor, store)
        feed = TraceFeed(store, exporter, SdkSpanBuilder(build_trace_resource()), "one", {}, redactors)
        await feed.send()
        task = make_task_row(make_task_request("first"))
        await store.register_task(task, [SourceDocument(name=document, text="Blue light scatters.")])
        fence = await take_run_fence(store, task)
        said = Text(text=f"It is blue [{document}:1].")
        call = ToolUse(id="c1", name="crm__put", input={NAME: {"mobile of Grace Hopper": 1}})
        await store.commit_message(fence, 0, make_question(0))
        await store.record_and_count_intents(fence, make_intent("turn-0"))
        await store.commit_reply(
            fence, 1, Message(id="m1", role="assistant", blocks=(said, call)), make_charge("turn-0")
        )
        given = Message(id="m2", role="user", blocks=(ToolResult(tool_use_id="c1", content="done"),))
        await store.commit_message(fence, 2, given)
        await feed.send()
    sent = [str(value) for span in exporter.get_finished_spans() for value in (span.attributes or {}).values()]
    assert any("It is blue" in words for words in sent)
    assert [words for words in sent if "Lovelace" in words or "Hopper" in words] == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("ask maria gonzalez's desk", "ask <PERSON_1>'s desk"),
        ("MARIA\nGONZALEZ, maria_gonzalez", "<PERSON_1>, <PERSON_1>"),
        ("jean-luc picard; o'brien. j. f. kerr", "<PERSON_2>; <PERSON_3>. <PERSON_4>"),
        ("maria gonzalezes and mariagonzalez", "maria gonzalezes and mariagonzalez"),
        ("Will you? I will.", "<PERSON_5> you? I will."),
        ("<PERSON_1> of picard", "<PERSON_1> of picard"),
    ],
)
async def test_whom_the_vault_knows_no_span_names_whatever_the_letters(said: str, shown: str, store: SqlStore) -> None:
    vault, key = store.build_vault(AesGcmCipher(b"k" * 32, "vault")), b"k" * 32
    people, made = KnownPeopleRedactor(vault, partial(compute_fingerprint, key), frozenset({"will"})), dict[str, str]()
    for number, name in enumerate(["Maria Gonzalez", "Jean-Luc Picard", "O'Brien", "J. F. Kerr", "Will"], 1):
        digits = compute_fingerprint(key, "t", "PERSON", name)
        placeholder = f"<PERSON_{digits[:12]}>"
        await vault.store_originals(
            "t", [VaultEntry(type="PERSON", placeholder=placeholder, fingerprint=digits, text=name)]
        )
        made[f"<PERSON_{number}>"] = placeholder
    for number, placeholder in made.items():
        said, shown = said.replace(number, placeholder), shown.replace(number, placeholder)
    assert await people.hide_known_names({said}, "t") == {said: shown}
    assert await people.hide_known_names({said}, "other") == {said: said}


async def test_a_person_of_the_task_is_in_no_span_in_small_letters_either(store: SqlStore, tmp_path: Path) -> None:
    exporter, key = InMemorySpanExporter(), b"k" * 32
    vault = store.build_vault(AesGcmCipher(key, "vault"))
    with closing(create_redactor(Settings(home=tmp_path), key)) as redactor:
        keeping = TextRedactor(
            redactor, VaultPlaceholderFactory(vault, partial(compute_fingerprint, key), utc_now), titles="redacted"
        )
        await keeping.redact(
            [f"{NAME} wrote it."], TextDestination.COMPRESSED, make_task_row(make_task_request("first")).ref.tenant
        )
        people = KnownPeopleRedactor(vault, partial(compute_fingerprint, key), frozenset())
        redactors = partial(load_task_redactor, keeping, store)
        feed = TraceFeed(store, exporter, SdkSpanBuilder(build_trace_resource()), "one", {}, redactors, people)
        await feed.send()
        task = make_task_row(make_task_request("first"))
        await store.register_task(task, [SourceDocument(name="a.md", text="Blue light scatters.")])
        fence = await take_run_fence(store, task)
        await store.commit_message(fence, 0, make_question(0))
        await store.record_and_count_intents(fence, make_intent("turn-0"))
        said = Text(text="blue, and by=ada_lovelace, who: ada lovelace")
        await store.commit_reply(fence, 1, Message(id="m1", role="assistant", blocks=(said,)), make_charge("turn-0"))
        await feed.send()
    sent = [str(value) for span in exporter.get_finished_spans() for value in (span.attributes or {}).values()]
    assert any("blue" in words for words in sent)
    assert [words for words in sent if "lovelace" in words.lower()] == []
