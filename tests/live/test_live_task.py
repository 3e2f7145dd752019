import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from tests.support.history_payloads import iter_search_attributes
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    QUOTED_SENTENCE,
    SCRIPTED_PLAN,
    WORK_TOKENS,
    CallGate,
    CancellationIgnoringGate,
    ModelCall,
    ScriptedTaskModel,
    make_tight_budget_config,
)
from tests.support.temporal_platform import (
    RUNNERS,
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
    run_platform,
    start_dev_server,
    wait_until,
)
from tests.support.workflow_history import fetch_current_details, fetch_events, join_all_strings, list_event_kinds
from waystation.budgets.budget import BudgetAccount, BudgetMode
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import ModelRejected, ModelUnavailable
from waystation.kernel.temporal_names import PENDING_ATTRIBUTE, PHASE_ATTRIBUTE, TOKENS_ATTRIBUTE
from waystation.privacy.ports import Redactor
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.details import STEP_STATE_MARKS
from waystation.tasks.task import TaskPhase, TaskProgress, session_hash
from waystation.workflows.task_runtime import PENDING, PHASE, SESSION, TOKENS

IN_THE_DOCUMENT = "The wreck lies under the northern mark."
IN_THE_INSTRUCTIONS = "Write for a pilot who has never seen the estuary."


@pytest.mark.parametrize("runner", RUNNERS)
async def test_a_task_runs_to_its_report(runner: str, server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(), runner=RUNNERS[runner]()) as counter:
        admission = await counter.submit()
        progress = await counter.get_task_handle().result()
        stored = (await counter.store.get_task(admission.task_id, SYSTEM_SCOPE)).progress
        assert progress.phase is TaskPhase.DONE
        assert [step.state for step in progress.steps] == ["done"] * 4
        assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
        assert progress.budget.reserved.is_zero
        assert stored is not None
        assert stored.replace(state=None) == progress
        assert progress.report is not None
        assert QUOTED_SENTENCE in await counter.store.get_text(progress.report, SYSTEM_SCOPE)


async def test_what_a_task_spends_is_upserted_with_its_phase_and_otherwise_once_a_minute(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit()
        await counter.get_task_handle().result()
        upserts = [
            dict(iter_search_attributes(event))
            for event in await fetch_events(counter.get_task_handle())
            if event.HasField("upsert_workflow_search_attributes_event_attributes")
        ]
    shown = [(upsert[PHASE_ATTRIBUTE], upsert[PENDING_ATTRIBUTE]) for upsert in upserts]
    assert all(before != after for before, after in pairwise(shown))
    assert int(upserts[-1][TOKENS_ATTRIBUTE]) == WORK_TOKENS


async def test_both_researchers_are_scheduled_before_either_is_done(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit()
        await counter.get_task_handle().result()
        said = await fetch_events(counter.get_task_handle())
        research = [number for number, kind in enumerate(list_event_kinds(said)) if kind == "RunResearchAgent"]
        done = [
            number
            for number, event in enumerate(said)
            if event.activity_task_completed_event_attributes.scheduled_event_id - 1 in research
        ]
        assert len(research) == 2
        assert max(research) < min(done)


async def test_histories_hold_nothing_of_the_work_and_nothing_private(
    server: Client, tmp_path: Path, presidio: Redactor
) -> None:
    asked = make_task_request(
        question="What did anna.berg@example.org say about the bar?", instructions=IN_THE_INSTRUCTIONS
    )
    documents = [SourceDocument(name="pilot.md", text=f"{IN_THE_DOCUMENT}\n")]
    async with run_platform(server, tmp_path, presidio, ScriptedTaskModel()) as counter:
        await counter.submit(asked, documents=documents)
        report = (await counter.get_task_handle().result()).report
        for said in (await fetch_events(counter.get_task_handle()), await fetch_events(counter.session)):
            written = join_all_strings(said)
            assert "about the bar?" in written
            for private in (
                IN_THE_INSTRUCTIONS,
                IN_THE_DOCUMENT,
                QUOTED_SENTENCE,
                SCRIPTED_PLAN.steps[0].goal,
                "anna.berg",
            ):
                assert private not in written
        assert report is not None
        assert QUOTED_SENTENCE in await counter.store.get_text(report, SYSTEM_SCOPE)


async def test_a_task_can_be_followed_in_the_temporal_ui(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    gate = CallGate(ModelCall("write", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit()
        await gate.reached.wait()
        shown = await fetch_current_details(counter.get_task_handle())
        described = await counter.get_task_handle().describe()
        gate.opened.set()
        await counter.get_task_handle().result()
        said = await fetch_events(counter.get_task_handle())
        done = await counter.get_task_handle().describe()
        found = [
            workflow.id
            async for workflow in server.list_workflows(f'{PHASE_ATTRIBUTE} = "done" AND {TOKENS_ATTRIBUTE} > 1000')
        ]
    assert f"- {STEP_STATE_MARKS['done']} **harbours** Harbours (research): done, 1 leg, 3,150 of 5,000 tokens" in shown
    assert f"- {STEP_STATE_MARKS['working']} **write** Write (writing): working" in shown
    assert await described.static_summary() == "How is the bar crossed?"
    summaries = [
        event.user_metadata.summary.data.decode()
        for event, kind in zip(said, list_event_kinds(said), strict=True)
        if kind.startswith("Run")
    ]
    assert [summary.split(":")[0] for summary in summaries] == ['"harbours', '"tides', '"weigh', '"write']
    attributes = done.typed_search_attributes
    assert attributes.get(SESSION) == session_hash("pilots", "autumn")
    assert attributes.get(PHASE) == "done"
    assert attributes.get(TOKENS) == WORK_TOKENS
    assert attributes.get(PENDING) == 0
    assert found == [counter.get_task_handle().id]


async def test_a_server_without_our_search_attributes_carries_a_task_to_its_end(
    tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        start_dev_server(search_attributes=False) as bare,
        run_platform(bare, tmp_path, redactor, ScriptedTaskModel(), search_attributes=False) as counter,
    ):
        await counter.submit()
        progress = await counter.get_task_handle().result()
        said = await fetch_events(counter.get_task_handle())
    assert progress.phase is TaskPhase.DONE
    assert "upsert_workflow_search_attributes" not in list_event_kinds(said)
    assert said[0].workflow_execution_started_event_attributes.search_attributes.indexed_fields == {}


async def test_with_our_search_attributes_they_are_upserted(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit()
        await counter.get_task_handle().result()
        assert "upsert_workflow_search_attributes" in list_event_kinds(await fetch_events(counter.get_task_handle()))


async def test_in_mode_hard_a_spent_budget_ends_in_a_partial_report_and_nobody_is_asked(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        admission = await counter.submit(under=make_tight_budget_config(BudgetMode.HARD))
        progress = await counter.get_task_handle().result()
        assert progress.phase is TaskPhase.PARTIAL
        assert progress.approvals == ()
        assert await counter.store.list_audit_entries(admission.task_id, SYSTEM_SCOPE) == ()
        assert [step.state for step in progress.steps] == ["partial", "partial", "done", "done"]
        assert progress.report is not None
        assert "the mode is hard" in await counter.store.get_text(progress.report, SYSTEM_SCOPE)


async def test_a_cancelled_task_stops_its_agents_stores_a_report_and_settles(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("tides", 2), ModelCall("harbours", 3))
    crew = ScriptedTaskModel(before=gate)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        admission = await counter.submit()
        await gate.reached.wait()
        await counter.get_task_handle().cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await counter.get_task_handle().result()
        assert isinstance(failed.value.cause, CancelledError)
        described = await counter.get_task_handle().describe()
        progress = (await counter.store.get_task(admission.task_id, SYSTEM_SCOPE)).progress
        account = await counter.session.query("account", result_type=BudgetAccount)
        gate.opened.set()
    assert described.status is WorkflowExecutionStatus.CANCELED
    assert progress is not None
    assert progress.phase is TaskPhase.CANCELLED
    assert [step.state for step in progress.steps] == ["partial", "partial", "skipped", "skipped"]
    assert progress.report is not None
    assert {call.step for call in crew.calls} == {"plan", "harbours", "tides"}
    assert progress.totals.possibly_billed > 0
    assert account == BudgetAccount(limit=Limit(), spent=progress.budget.spent)


async def test_a_cancellation_while_planning_ends_in_a_report_that_names_what_was_spent(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("plan", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        admission = await counter.submit()
        await gate.reached.wait()
        await counter.get_task_handle().cancel()
        with pytest.raises(WorkflowFailureError):
            await counter.get_task_handle().result()
        progress = (await counter.store.get_task(admission.task_id, SYSTEM_SCOPE)).progress
        account = await counter.session.query("account", result_type=BudgetAccount)
        gate.opened.set()
    assert progress is not None
    assert progress.phase is TaskPhase.CANCELLED
    assert progress.totals.possibly_billed > 0
    assert account == BudgetAccount(limit=Limit(), spent=progress.totals.spent)


async def test_a_cancellation_that_planning_does_not_hear_of_ends_the_task_before_any_step(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CancellationIgnoringGate(ModelCall("plan", 1))
    crew = ScriptedTaskModel(before=gate)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        admission = await counter.submit()
        await gate.reached.wait()
        await counter.get_task_handle().cancel()
        gate.opened.set()
        with pytest.raises(WorkflowFailureError) as failed:
            await counter.get_task_handle().result()
        progress = (await counter.store.get_task(admission.task_id, SYSTEM_SCOPE)).progress
    assert isinstance(failed.value.cause, CancelledError)
    assert progress is not None
    assert progress.phase is TaskPhase.CANCELLED
    assert {call.step for call in crew.calls} == {"plan"}
    assert progress.budget.reserved == Amount()


async def test_a_cancellation_while_the_report_is_stored_is_too_late(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    reached, opened = asyncio.Event(), asyncio.Event()

    class SlowStore(SqlStore):
        async def save_task_progress(self, task_id: str, progress: TaskProgress) -> None:
            reached.set()
            await opened.wait()
            await super().save_task_progress(task_id, progress)

    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts:
        slow = replace(parts, store=SlowStore(parts.store.database, utc_now, await parts.store.get_store_id()))
        async with run_all_workers(server, slow):
            counter = TaskSubmitter(server, parts.store)
            await counter.submit()
            await reached.wait()
            await counter.get_task_handle().cancel()
            opened.set()
            progress = await counter.get_task_handle().result()
            account = await counter.session.query("account", result_type=BudgetAccount)
    assert progress.phase is TaskPhase.DONE
    assert progress.report is not None
    assert account == BudgetAccount(limit=Limit(), spent=Amount(tokens=WORK_TOKENS))


async def test_a_model_that_rejects_the_planning_fails_the_task_with_the_cause(
    server: Client, tmp_path: Path, redactor: Redactor, caplog: pytest.LogCaptureFixture
) -> None:
    async def no_key(call: ModelCall) -> None:
        raise ModelRejected("the provider does not accept this key")

    crew = ScriptedTaskModel(before=no_key)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        admission = await counter.submit()
        with pytest.raises(WorkflowFailureError) as failed:
            await counter.get_task_handle().result()
        progress = (await counter.store.get_task(admission.task_id, SYSTEM_SCOPE)).progress
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.message == "the provider does not accept this key"
    assert crew.calls == [ModelCall("plan", 1)]
    assert progress is not None
    assert progress.phase is TaskPhase.FAILED
    assert progress.notes == ("the provider does not accept this key",)
    assert progress.totals.spent == Amount()
    assert [entry.getMessage() for entry in caplog.records if entry.levelname == "ERROR"] == []


async def test_a_busy_provider_is_asked_again_when_it_said_and_once_each_time(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    refusals = 2

    async def busy(call: ModelCall) -> None:
        if call == ModelCall("harbours", 2) and crew.calls.count(call) <= refusals:
            raise ModelUnavailable("rate limit", retry_after=0.01, possibly_billed=False)

    crew = ScriptedTaskModel(before=busy)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit()
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert crew.calls.count(ModelCall("harbours", 2)) == refusals + 1
    assert crew.calls.count(ModelCall("harbours", 1)) == 1
    assert progress.totals.possibly_billed == 0
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)


async def test_the_delay_that_the_provider_named_is_the_one_that_is_kept(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async def closed_for_today(call: ModelCall) -> None:
        raise ModelUnavailable("rate limit", retry_after=36_000.0, possibly_billed=False)

    crew = ScriptedTaskModel(before=closed_for_today)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit()

        async def waits() -> bool:
            return any(activity.HasField("next_attempt_schedule_time") for activity in await pending())

        async def pending() -> list[PendingActivityInfo]:
            return list((await counter.get_task_handle().describe()).raw_description.pending_activities)

        await wait_until(waits)
        (planning,) = await pending()
        await counter.get_task_handle().terminate()
    delay = planning.next_attempt_schedule_time.seconds - planning.last_attempt_complete_time.seconds
    assert delay in {35_999, 36_000, 36_001}
    assert crew.calls == [ModelCall("plan", 1)]
