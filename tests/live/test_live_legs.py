import asyncio
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    CALL_TOKENS,
    RESEARCH_TOKENS,
    SCRIPTED_PLAN,
    WORK_TOKENS,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
)
from tests.support.temporal_platform import (
    DOCUMENTS,
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
    run_platform,
    start_dev_server,
    wait_until,
)
from tests.support.workflow_history import fetch_events, join_all_strings, list_event_kinds
from waystation.activities.agents import AgentActivities
from waystation.agents.leg import AgentFinished, LegRequest
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import RunRef, TaskRef
from waystation.privacy.ports import Redactor
from waystation.tasks.task import TaskPhase, TaskRow, make_task_id
from waystation.testing.doubles import PlainRedactor
from waystation.workers.activity_deps import ActivityDeps
from waystation.workflows.task import TaskWorkflow


async def first_leg(parts: ActivityDeps) -> LegRequest:
    """Of a researcher whose task is planned."""
    task = TaskRef(
        store_id=await parts.store.get_store_id(), tenant="t", session="s", task_id=make_task_id(make_task_request())
    )
    row = TaskRow(ref=task, request=make_task_request(), config=make_task_config(), submitted_at=utc_now())
    await parts.store.register_task(row, DOCUMENTS)
    await parts.store.save_plan(task.task_id, SCRIPTED_PLAN)
    run = RunRef(**task.model_dump(), step_id="harbours", role="research")
    return LegRequest(run=run, leg=1, limit=Limit(tokens=50_000), config=make_task_config().default)


async def test_an_attempt_that_was_given_up_writes_nothing_more(tmp_path: Path, redactor: Redactor) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    crew = ScriptedTaskModel(before=gate)
    async with open_activity_deps(tmp_path, redactor, crew) as parts:
        request, activities = await first_leg(parts), AgentActivities(parts.agent_loop)
        zombie = asyncio.create_task(ActivityEnvironment().run(activities.run_research_leg, request))
        await gate.reached.wait()
        second = await ActivityEnvironment().run(activities.run_research_leg, request)
        transcript = await parts.store.load_transcript(request.run.run_id, SYSTEM_SCOPE)
        totals = await parts.store.get_run_usage(request.run.run_id)
        gate.opened.set()
        with pytest.raises(ApplicationError) as refused:
            await zombie
        assert refused.value.type == "StaleFenceError"
        assert await parts.store.load_transcript(request.run.run_id, SYSTEM_SCOPE) == transcript
        assert await parts.store.get_run_usage(request.run.run_id) == totals
        assert await ActivityEnvironment().run(activities.run_research_leg, request) == second
    assert isinstance(second, AgentFinished)
    assert totals.usage.fresh == RESEARCH_TOKENS
    assert totals.possibly_billed > CALL_TOKENS
    assert crew.calls.count(ModelCall("harbours", 2)) == 2
    assert crew.calls.count(ModelCall("harbours", 1)) == 1


async def test_a_task_continues_as_new_only_when_every_agent_is_back(tmp_path: Path) -> None:
    gate = CallGate(ModelCall("harbours", 3))

    async def one_after_the_other(call: ModelCall) -> None:
        if call == ModelCall("tides", 7):
            await gate.reached.wait()
        await gate(call)

    crew = ScriptedTaskModel(before=one_after_the_other)
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=5") as client,
        run_platform(client, tmp_path, PlainRedactor({}), crew) as counter,
    ):
        await counter.submit()
        task = counter.get_task_handle()

        async def one_is_back() -> bool:
            states = {step.id: step.state for step in (await task.query(TaskWorkflow.progress)).steps}
            return states.get("tides") == "done"

        async def continued() -> str:
            return (await fetch_events(task))[0].workflow_execution_started_event_attributes.continued_execution_run_id

        await wait_until(one_is_back)
        while_one_works = await continued()
        gate.opened.set()
        progress = await task.result()
        at_the_end = await continued()
    assert not while_one_works
    assert at_the_end
    assert progress.phase is TaskPhase.DONE
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
    assert len(crew.calls) == len(set(crew.calls))


async def test_a_stopping_worker_ends_its_legs_at_a_turn_and_another_one_goes_on(
    tmp_path: Path, redactor: Redactor
) -> None:
    in_a_call = asyncio.Event()

    async def until_the_worker_stops(call: ModelCall) -> None:
        if call == ModelCall("harbours", 2):
            in_a_call.set()
            await activity.wait_for_worker_shutdown()

    crew = ScriptedTaskModel(before=until_the_worker_stops)
    async with start_dev_server(cached=False) as server, open_activity_deps(tmp_path, redactor, crew) as parts:
        counter = TaskSubmitter(server, parts.store)
        async with run_all_workers(server, parts):
            await counter.submit()
            await in_a_call.wait()
        async with run_all_workers(server, parts):
            progress = await counter.get_task_handle().result()
            said = await fetch_events(counter.get_task_handle())
    assert progress.phase is TaskPhase.DONE
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
    assert {step.id: step.legs for step in progress.steps}["harbours"] == 2
    assert "yielded" in join_all_strings(said)
    assert list_event_kinds(said).count("activity_task_failed") == 0
    assert len(crew.calls) == len(set(crew.calls))
