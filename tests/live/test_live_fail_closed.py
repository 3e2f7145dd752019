"""Redaction that fails, on a real server: nothing goes on, the run says why it waits, and it does not wait for ever."""

import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import ModelCall, ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import (
    TENANT,
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
    wait_until,
)
from waystation.budgets.budget import BudgetMode
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.plugins.redaction.secrets import find_whole_text_matches
from waystation.runtime.store_setup import open_store
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.task import TaskPhase, TaskProgress
from waystation.testing.doubles import PlainRedactor, RecordingMeter
from waystation.workers import activity_deps as wiring
from waystation.workflows.task import TaskWorkflow

SLOW = r"recognizers: [{name: slow, supported_entity: SLOW, patterns: [{regex: '(?=x)(x+x+)+y', score: 1}]}]"
ENDLESS = "x" * 1_500
DOCUMENTS = (SourceDocument(name="pilot.md", text=f"Keep to starboard.\n{ENDLESS}\n"),)
HANGS = "Nobody gets beyond these words."
ATTEMPTS = 3
WHY = "your own recogniser 'slow' took more than 0.02 s"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: TemporalClient) -> Settings:
    monkeypatch.setattr("waystation.plugins.redaction.rules.SECONDS_PER_CHUNK", 0.02)
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
    (tmp_path / "rules.yaml").write_text(SLOW)
    given = {"home": tmp_path, "tenant": TENANT, "recognisers": tmp_path / "rules.yaml", "languages": ["en"]}
    # In this process, where the tests can make it slow.
    return Settings.model_validate({**given, "redaction_attempts": ATTEMPTS, "redaction_processes": 0})


@asynccontextmanager
async def at_work(server: TemporalClient, settings: Settings, crew: ScriptedTaskModel) -> AsyncGenerator[TaskSubmitter]:
    """Workers as they are in production, but for the model."""
    async with (
        aclosing(await open_store(settings)) as store,
        wiring.open_activity_deps(settings, store, RecordingMeter()) as parts,
        run_all_workers(server, replace(parts, model=crew), settings=settings),
    ):
        yield TaskSubmitter(server, store)


async def waits_of(settings: Settings, task_id: str) -> tuple[str, ...]:
    """What `waystation show` says of why it waits."""
    async with await Client.connect(settings) as client:
        return (await client.get_task(task_id)).waiting_for


async def progress_of(counter: TaskSubmitter) -> TaskProgress:
    return await counter.get_task_handle().query(TaskWorkflow.progress)


async def attempts_of(counter: TaskSubmitter) -> int:
    described = (await counter.get_task_handle().describe()).raw_description
    return max((pending.attempt for pending in described.pending_activities), default=0)


async def test_a_text_that_fails_in_every_attempt_is_left_out_and_workers_that_come_and_go_change_nothing(
    server: TemporalClient, settings: Settings
) -> None:
    crew = ScriptedTaskModel()
    async with at_work(server, settings, crew) as counter:
        task_id = (await counter.submit(documents=DOCUMENTS)).task_id

        async def waiting() -> bool:
            return bool(await waits_of(settings, task_id))

        await wait_until(waiting)
        assert (await waits_of(settings, task_id))[0].startswith(
            f"the activity RunResearchAgent is being retried: {WHY}"
        )
    async with at_work(server, settings, crew) as counter:
        assert await attempts_of(counter) > 1
        progress = await counter.get_task_handle().result()
        transcript = await counter.store.load_transcript(f"{task_id}/harbours", SYSTEM_SCOPE)
    result = next(result for message in transcript.messages for result in message.tool_results)
    assert progress.phase is TaskPhase.DONE
    assert ENDLESS not in transcript.model_dump_json()
    assert result.content.startswith("pilot.md could not be redacted")
    assert "Text that could not be redacted was left out and replaced by a placeholder." in progress.notes
    assert crew.calls.count(ModelCall("harbours", 1)) == 1


async def test_by_setting_a_person_is_asked_and_a_denial_ends_the_step_with_what_it_has(
    server: TemporalClient, settings: Settings
) -> None:
    crew = ScriptedTaskModel()
    async with at_work(server, settings.replace(redaction_failure="pause"), crew) as counter:
        await counter.submit(documents=DOCUMENTS)

        async def asked(number: int) -> bool:
            return len([one for one in (await progress_of(counter)).approvals if one.agent == "harbours"]) == number

        await wait_until(lambda: asked(1))
        (request_,) = [one for one in (await progress_of(counter)).approvals if one.agent == "harbours"]
        assert request_.reason.startswith(f"a text could not be redacted in {ATTEMPTS} attempts: {WHY}")
        await counter.get_task_handle().signal(APPROVE_BUDGET, {"request_id": request_.request_id})
        await wait_until(lambda: asked(2))  # nobody has mended the recogniser
        for one in (await progress_of(counter)).approvals:
            if one.decision == "pending":
                await counter.get_task_handle().signal(DENY_BUDGET, {"request_id": one.request_id})
        await wait_until(lambda: over(counter))
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.PARTIAL
    assert {step.id: step.state for step in progress.steps}["harbours"] == "partial"
    assert crew.calls.count(ModelCall("harbours", 1)) == 1


async def over(counter: TaskSubmitter) -> bool:
    """Deny whatever is asked for meanwhile."""
    progress = await progress_of(counter)
    for one in progress.approvals:
        if one.decision == "pending":
            await counter.get_task_handle().signal(DENY_BUDGET, {"request_id": one.request_id})
    return progress.phase.over


async def test_a_question_that_cannot_be_redacted_fails_the_task_with_the_reason_and_asks_no_model(
    server: TemporalClient, settings: Settings
) -> None:
    crew = ScriptedTaskModel()
    async with at_work(server, settings, crew) as counter:
        await counter.submit(make_task_request(instructions=ENDLESS), make_task_config(mode=BudgetMode.HARD), DOCUMENTS)
        await wait_until(lambda: over(counter))
        progress = await progress_of(counter)
    assert progress.phase is TaskPhase.FAILED
    assert crew.calls == []


async def test_a_text_whose_redaction_hangs_twice_is_put_aside_without_another_attempt_at_the_work(
    server: TemporalClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, crew = threading.Event(), ScriptedTaskModel()

    def hanging(text: str) -> object:
        if HANGS in text:
            released.wait()
        return find_whole_text_matches(text)

    monkeypatch.setattr("waystation.plugins.redaction.search.find_whole_text_matches", hanging)
    documents = (SourceDocument(name="pilot.md", text=f"Keep to starboard.\n{HANGS}\n"),)
    hurried = settings.replace(redaction_seconds=2)
    async with at_work(server, hurried, crew) as counter:
        task_id = (await counter.submit(documents=documents)).task_id
        progress = await counter.get_task_handle().result()
        transcript = await counter.store.load_transcript(f"{task_id}/harbours", SYSTEM_SCOPE)
    released.set()
    assert progress.phase is TaskPhase.DONE
    assert HANGS not in transcript.model_dump_json()
    (note,) = [one for one in progress.notes if "in time" in one]
    assert " could not be redacted in time and was replaced by <UNREDACTED_TEXT_" in note
    assert crew.calls.count(ModelCall("harbours", 1)) == 1


async def test_while_redaction_is_down_no_model_is_asked_and_it_is_waited_for(
    server: TemporalClient, settings: Settings
) -> None:
    redactor, crew = PlainRedactor({}), ScriptedTaskModel()
    async with (
        open_activity_deps(settings.home, redactor, crew) as parts,
        run_all_workers(server, parts, settings=settings),
    ):
        counter = TaskSubmitter(server, parts.store)
        task_id = (await counter.submit()).task_id
        redactor.failing = True

        async def waiting() -> bool:
            calls = len(crew.calls)
            return bool(await waits_of(settings, task_id)) and calls == len(crew.calls)

        await wait_until(waiting)
        calls = len(crew.calls)
        assert (await waits_of(settings, task_id))[0].endswith(": the redactor was told to fail")
        assert len(crew.calls) == calls
        redactor.failing = False
        assert (await counter.get_task_handle().result()).phase is TaskPhase.DONE
