from pathlib import Path

from temporalio.client import Client

from tests.support.delegating_model import (
    SUBMIT_FINDINGS_CALL,
    DelegatingTaskModel,
    find_tool_results,
    index_steps,
    make_delegate_call,
    make_delegating_task_config,
    make_four_delegate_calls,
)
from tests.support.task_model import CALL_TOKENS, TAKE_NOTE_CALL, CallGate, ModelCall
from tests.support.temporal_platform import TaskHandle, run_platform, wait_until
from waystation.kernel.amount import Amount, Limit
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.task import ApprovalRequest, TaskPhase, TaskProgress
from waystation.workflows.task import TaskWorkflow

FOUR = {"harbours": [make_four_delegate_calls(), [SUBMIT_FINDINGS_CALL]]}
LONG = [*[[TAKE_NOTE_CALL]] * 60, [SUBMIT_FINDINGS_CALL]]
"""More than is left over when the others are done."""
TIGHT = make_delegating_task_config(budget=50_000, agent_budget=20_000)


async def until_asked(task: TaskHandle, agent: str) -> ApprovalRequest:
    async def asked() -> bool:
        return any(request.agent == agent for request in (await task.query(TaskWorkflow.progress)).approvals)

    await wait_until(asked)
    return next(one for one in (await task.query(TaskWorkflow.progress)).approvals if one.agent == agent)


async def until_steps(task: TaskHandle, state: str, count: int) -> TaskProgress:
    async def so_many() -> bool:
        progress = await task.query(TaskWorkflow.progress)
        return sum(step.state == state for step in progress.steps) >= count

    await wait_until(so_many)
    return await task.query(TaskWorkflow.progress)


async def test_a_subagent_that_ran_out_is_asked_for_while_its_siblings_go_on_and_goes_on_when_it_is_granted_more(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = DelegatingTaskModel(scripts={**FOUR, "harbours.2": LONG})
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=TIGHT)
        task = counter.get_task_handle()
        paused = await until_asked(task, "harbours.2")
        siblings = await until_steps(task, "done", 4)
        await task.signal(APPROVE_BUDGET, {"request_id": paused.request_id, "tokens": 20_000})
        progress = await task.result()
    assert {step.id for step in siblings.steps if step.state == "done"} >= {"harbours.1", "harbours.3", "harbours.4"}
    assert siblings.phase is TaskPhase.PAUSED
    assert progress.phase is TaskPhase.DONE
    assert index_steps(progress)["harbours.2"].spent == Amount(tokens=CALL_TOKENS * len(LONG))
    assert progress.budget.limit == Limit(tokens=TIGHT.budget.amount.tokens + 20_000)
    assert len(crew.calls) == len(set(crew.calls))


async def test_a_subagent_that_waits_for_a_person_goes_on_with_what_its_siblings_hand_back(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("tides", 1), *(ModelCall(f"harbours.{number}", 3) for number in (1, 3, 4)))
    crew = DelegatingTaskModel(
        before=gate, scripts={**FOUR, "harbours.2": [*[[TAKE_NOTE_CALL]] * 13, [SUBMIT_FINDINGS_CALL]]}
    )
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=TIGHT)
        asked = await until_asked(counter.get_task_handle(), "harbours.2")
        gate.opened.set()
        progress = await counter.get_task_handle().result()
    assert asked.decision == "pending"
    assert progress.phase is TaskPhase.DONE
    assert [(one.request_id, one.decision) for one in progress.approvals] == [("harbours.2-1", "withdrawn")]
    assert progress.budget.limit == TIGHT.budget
    assert progress.budget.reserved == Amount()
    assert index_steps(progress)["harbours.2"].spent == Amount(tokens=CALL_TOKENS * 14)


async def test_a_denied_subagent_is_a_result_that_its_parent_works_with(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = DelegatingTaskModel(
        scripts={"harbours": [[make_delegate_call("beacons")], [SUBMIT_FINDINGS_CALL]], "harbours.1": LONG}
    )
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=TIGHT)
        task = counter.get_task_handle()
        asked = await until_asked(task, "harbours.1")
        await task.signal(DENY_BUDGET, {"request_id": asked.request_id})
        progress = await task.result()
    assert {step.id: step.state for step in progress.steps[:2]} == {"harbours": "done", "harbours.1": "partial"}
    assert progress.phase is TaskPhase.PARTIAL
    (result,) = find_tool_results(crew, "harbours", 2)
    assert 'state="partial"' in result.content
    assert "It ended early: a person denied its budget request" in result.content
