import asyncio
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.agents import AgentActivities
from tests.crew import CALL_TOKENS, CREW_PLAN, RESEARCH_TOKENS, WORK_TOKENS, Call, Crew, Gate, terms
from tests.readers import ANYONE
from tests.running import Counter, at_work, dev_server, opened_parts, request, until, working
from tests.workflows_live.history import events, everything_written, kinds
from waystation.agents.leg import AgentFinished, LegRequest
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import RunRef, TaskRef
from waystation.privacy.ports import Redactor
from waystation.tasks.task import TaskPhase, TaskRow, task_id_of
from waystation.testing import PlainRedactor
from workers.parts import ActivityDeps
from workflows.task import TaskWorkflow


async def first_leg(parts: ActivityDeps) -> LegRequest:
    """Of a researcher whose task is planned."""
    task = TaskRef(store_id=await parts.store.store_id(), tenant="t", session="s", task_id=task_id_of(request()))
    row = TaskRow(ref=task, request=request(), terms=terms(), submitted_at=utc_now())
    await parts.store.register(row, ())
    await parts.store.save_plan(task.task_id, CREW_PLAN)
    run = RunRef(**task.model_dump(), step_id="harbours", role="research")
    return LegRequest(run=run, leg=1, limit=Limit(tokens=50_000), terms=terms().agent)


async def test_an_attempt_that_was_given_up_writes_nothing_more(tmp_path: Path, redactor: Redactor) -> None:
    gate = Gate(Call("harbours", 2))
    crew = Crew(before=gate)
    async with opened_parts(tmp_path, redactor, crew) as parts:
        request, activities = await first_leg(parts), AgentActivities(parts.loop)
        zombie = asyncio.create_task(ActivityEnvironment().run(activities.research, request))
        await gate.reached.wait()
        second = await ActivityEnvironment().run(activities.research, request)
        transcript = await parts.store.load(request.run.run_id, ANYONE)
        totals = await parts.store.totals(request.run.run_id)
        gate.opened.set()
        with pytest.raises(ApplicationError) as refused:
            await zombie
        assert refused.value.type == "StaleFenceError"
        assert await parts.store.load(request.run.run_id, ANYONE) == transcript
        assert await parts.store.totals(request.run.run_id) == totals
        assert await ActivityEnvironment().run(activities.research, request) == second
    assert isinstance(second, AgentFinished)
    assert totals.usage.fresh == RESEARCH_TOKENS
    assert totals.possibly_billed > CALL_TOKENS
    assert crew.calls.count(Call("harbours", 2)) == 2
    assert crew.calls.count(Call("harbours", 1)) == 1


async def test_a_task_continues_as_new_only_when_every_agent_is_back(tmp_path: Path) -> None:
    gate = Gate(Call("harbours", 3))

    async def one_after_the_other(call: Call) -> None:
        if call == Call("tides", 7):
            await gate.reached.wait()
        await gate(call)

    crew = Crew(before=one_after_the_other)
    async with (
        dev_server("limit.historyCount.suggestContinueAsNew=5") as client,
        at_work(client, tmp_path, PlainRedactor({}), crew) as counter,
    ):
        await counter.submit()
        task = counter.task()

        async def one_is_back() -> bool:
            states = {step.id: step.state for step in (await task.query(TaskWorkflow.progress)).steps}
            return states.get("tides") == "done"

        async def continued() -> str:
            return (await events(task))[0].workflow_execution_started_event_attributes.continued_execution_run_id

        await until(one_is_back)
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

    async def until_the_worker_stops(call: Call) -> None:
        if call == Call("harbours", 2):
            in_a_call.set()
            await activity.wait_for_worker_shutdown()

    crew = Crew(before=until_the_worker_stops)
    async with dev_server(cached=False) as server, opened_parts(tmp_path, redactor, crew) as parts:
        counter = Counter(server, parts.store)
        async with working(server, parts):
            await counter.submit()
            await in_a_call.wait()
        async with working(server, parts):
            progress = await counter.task().result()
            said = await events(counter.task())
    assert progress.phase is TaskPhase.DONE
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
    assert {step.id: step.legs for step in progress.steps}["harbours"] == 2
    assert "yielded" in everything_written(said)
    assert kinds(said).count("activity_task_failed") == 0
    assert len(crew.calls) == len(set(crew.calls))
