import asyncio
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from tests.support.delegating_model import (
    SUBAGENT_TOKENS,
    SUBMIT_FINDINGS_CALL,
    DelegatingTaskModel,
    find_tool_results,
    index_steps,
    make_delegate_call,
    make_delegating_task_config,
    make_four_delegate_calls,
)
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    CALL_TOKENS,
    SCRIPTED_PLAN,
    WORK_TOKENS,
    CallGate,
    CancellationIgnoringGate,
    ModelCall,
)
from tests.support.temporal_platform import (
    TaskSubmitter,
    open_activity_deps,
    run_all_workers,
    run_platform,
    start_dev_server,
    wait_until,
)
from tests.support.workflow_history import fetch_events, join_all_strings, list_event_kinds
from waystation.context.transcript import Fence
from waystation.kernel.amount import Amount
from waystation.kernel.errors import StaleFenceError
from waystation.privacy.ports import Redactor
from waystation.tasks.signals import EDIT_CONTEXT, ContextEditInput
from waystation.tasks.task import TaskPhase
from waystation.workflows.task import TaskWorkflow

FOUR = {"harbours": [make_four_delegate_calls(), [SUBMIT_FINDINGS_CALL]]}
ONE = {"harbours": [[make_delegate_call("beacons")], [SUBMIT_FINDINGS_CALL]]}
DELEGATING_TOKENS = WORK_TOKENS - 7 * CALL_TOKENS + 2 * CALL_TOKENS
"""What a task costs whose first researcher delegates, without its subagents."""


async def test_four_subagents_work_side_by_side_and_their_results_come_back_in_one_message(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    begun: set[str] = set()
    together = asyncio.Event()

    async def all_begun(call: ModelCall) -> None:
        if "." in call.step:
            begun.add(call.step)
            if len(begun) == 4:
                together.set()
            await together.wait()

    crew = DelegatingTaskModel(before=all_begun, scripts=FOUR)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_delegating_task_config())
        progress = await counter.get_task_handle().result()
        said = await fetch_events(counter.get_task_handle())
        child = server.get_workflow_handle(f"{counter.get_task_handle().id}/harbours.2")
        description = await child.describe()
    assert progress.phase is TaskPhase.DONE
    assert [step.id for step in progress.steps[:5]] == ["harbours", *(f"harbours.{n}" for n in range(1, 5))]
    assert progress.budget.spent == Amount(tokens=DELEGATING_TOKENS + 4 * SUBAGENT_TOKENS)
    assert progress.budget.reserved == Amount()
    shown = find_tool_results(crew, "harbours", 2)
    assert len(shown) == 4
    for number, result in enumerate(shown, 1):
        assert result.content.startswith(f'<subagent id="harbours.{number}" role="research"')
        assert "1 result from pilot.md" in result.content
        assert not result.is_error
    assert await description.static_summary() == "harbours.2: bars"
    assert list_event_kinds(said).count("start_child_workflow_execution_initiated") == 4
    assert "the bar shifts in autumn" not in join_all_strings(said)
    assert "the bar shifts in autumn" in crew.heard[ModelCall("harbours.1", 1)].messages[0].text


async def test_subagents_delegate_further_down_to_their_depth_and_no_deeper(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    scripts = {
        "harbours": [[make_delegate_call("beacons", 60)], [SUBMIT_FINDINGS_CALL]],
        "harbours.1": [[make_delegate_call("lamps", 50)], [SUBMIT_FINDINGS_CALL]],
    }
    crew = DelegatingTaskModel(scripts=scripts)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_delegating_task_config())
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert [step.id for step in progress.steps[:3]] == ["harbours", "harbours.1", "harbours.1.1"]
    offered = {call.step: {tool.name for tool in asked.tools} for call, asked in crew.heard.items()}
    assert "delegate" in offered["harbours"] & offered["harbours.1"]
    assert "delegate" not in offered["harbours.1.1"]
    assert 'id="harbours.1.1"' in find_tool_results(crew, "harbours.1", 2)[0].content


async def test_cancelling_a_task_cancels_its_subagents(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    gate = CallGate(*(ModelCall(f"harbours.{number}", 2) for number in range(1, 5)))
    crew = DelegatingTaskModel(before=gate, scripts=FOUR)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_delegating_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        await task.cancel()
        gate.opened.set()

        async def over() -> bool:
            return (await task.describe()).close_time is not None

        await wait_until(over)
        states = [
            (await server.get_workflow_handle(f"{task.id}/harbours.{number}").describe()).status
            for number in range(1, 5)
        ]
        row = await counter.store.get_task(task.id, SYSTEM_SCOPE)
    assert WorkflowExecutionStatus.RUNNING not in states
    assert row.progress is not None
    assert row.progress.phase is TaskPhase.CANCELLED
    assert row.progress.budget.reserved == Amount()


async def test_a_subagent_whose_leg_does_not_hear_of_the_cancellation_does_nothing_after_it(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CancellationIgnoringGate(ModelCall("harbours.1", 1))
    async with run_platform(server, tmp_path, redactor, DelegatingTaskModel(before=gate, scripts=ONE)) as counter:
        await counter.submit(under=make_delegating_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        await task.cancel()
        gate.opened.set()
        with pytest.raises(WorkflowFailureError):
            await task.result()
        child = await server.get_workflow_handle(f"{task.id}/harbours.1").describe()
    assert child.status is WorkflowExecutionStatus.CANCELED


async def test_a_cancelled_agent_that_is_taken_back_to_its_delegations_hears_what_was_delivered_unpaid(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours.4", 2))
    crew = DelegatingTaskModel(before=gate, scripts=FOUR)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_delegating_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()

        async def three_delivered() -> bool:
            seen = index_steps(await task.query(TaskWorkflow.progress))
            # Cancelled at work, the other step of the plan would end partial, and with it the task.
            delivered = sum(seen[f"harbours.{number}"].state == "done" for number in range(1, 5))
            return seen["tides"].state == "done" and delivered == 3

        await wait_until(three_delivered)
        await task.cancel()
        gate.opened.set()

        async def over() -> bool:
            return (await task.describe()).close_time is not None

        await wait_until(over)
        crew.calls.clear()
        await counter.edit(ContextEditInput(action="rewind", agent="harbours", message="m2"))
        progress = await task.result()
    assert progress.phase is TaskPhase.DONE
    assert not any(call.step.startswith("harbours.") for call in crew.calls)
    assert crew.calls[0] == ModelCall("harbours", 2)
    told = [result.content for result in find_tool_results(crew, "harbours", 2)]
    assert ['state="done"' in text for text in told] == [True, True, True, False]
    assert "the task was cancelled" in told[3]


async def test_a_subagent_whose_workflow_somebody_terminates_delivers_what_it_has(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours.1", 3))
    crew = DelegatingTaskModel(before=gate, scripts=ONE)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_delegating_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        await server.get_workflow_handle(f"{task.id}/harbours.1").terminate()
        progress = await task.result()
        nobody_stopped = Fence(run_id=f"{task.id}/harbours.1", number=1)
        with pytest.raises(StaleFenceError):
            await counter.store.drop_intent(nobody_stopped, "turn-3")
        gate.opened.set()
    assert progress.phase is TaskPhase.PARTIAL
    assert index_steps(progress)["harbours.1"].reason == "someone ended its workflow"
    assert "The white beacon" in find_tool_results(crew, "harbours", 2)[0].content, "its note is its result"


async def test_workers_that_come_back_repeat_no_subagent_and_no_turn(tmp_path: Path, redactor: Redactor) -> None:
    in_a_call = asyncio.Event()

    async def until_the_worker_stops(call: ModelCall) -> None:
        if call == ModelCall("harbours.3", 2):
            in_a_call.set()
            await activity.wait_for_worker_shutdown()

    crew = DelegatingTaskModel(before=until_the_worker_stops, scripts=FOUR)
    async with start_dev_server(cached=False) as server, open_activity_deps(tmp_path, redactor, crew) as parts:
        counter = TaskSubmitter(server, parts.store)
        async with run_all_workers(server, parts):
            await counter.submit(under=make_delegating_task_config())
            await in_a_call.wait()
        async with run_all_workers(server, parts):
            progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert index_steps(progress)["harbours.3"].spent == Amount(tokens=SUBAGENT_TOKENS)
    assert len(crew.calls) == len(set(crew.calls))


async def test_a_task_continues_as_new_while_its_agents_delegate_and_nothing_is_lost(
    tmp_path: Path, redactor: Redactor
) -> None:
    crew = DelegatingTaskModel(scripts=FOUR)
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=40") as server,
        run_platform(server, tmp_path, redactor, crew) as counter,
    ):
        await counter.submit(under=make_delegating_task_config())
        progress = await counter.get_task_handle().result()
        newest = (await fetch_events(counter.get_task_handle()))[0].workflow_execution_started_event_attributes
    assert newest.continued_execution_run_id
    assert progress.phase is TaskPhase.DONE
    assert progress.budget.spent == Amount(tokens=DELEGATING_TOKENS + 4 * SUBAGENT_TOKENS)
    assert len(crew.calls) == len(set(crew.calls))


async def test_an_edit_reaches_a_subagent_between_two_legs(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    gate = CallGate(ModelCall("harbours.1", 2))
    crew = DelegatingTaskModel(before=gate, scripts=ONE)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_delegating_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        await task.signal(EDIT_CONTEXT, {"action": "pin", "agent": "harbours.1", "message": "m2"})
        gate.opened.set()
        progress = await task.result()
    (edit,) = progress.context_edits
    assert (edit.agent, edit.state) == ("harbours.1", "done")
    assert progress.phase is TaskPhase.DONE
    assert len(crew.calls) == len(set(crew.calls))


async def test_agents_whose_task_has_no_terms_for_it_do_not_delegate(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = DelegatingTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit()
        assert (await counter.get_task_handle().result()).phase is TaskPhase.DONE
    offered = {call: {tool.name for tool in asked.tools} for call, asked in crew.heard.items()}
    assert {call.step for call in offered} == {"plan", *(step.id for step in SCRIPTED_PLAN.steps)}
    assert [call for call, tools in offered.items() if "delegate" in tools] == []
