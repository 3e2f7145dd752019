from pathlib import Path

from temporalio.client import Client

from tests.crew import CALL_TOKENS, NOTE, Call, Gate
from tests.delegating import HAND_IN, DelegatingCrew, delegate, delegating, four, results, steps
from tests.running import Task, at_work, until
from waystation.kernel.amount import Amount, Limit
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.task import Approval, TaskPhase, TaskProgress
from workflows.task import TaskWorkflow

FOUR = {"harbours": [four(), [HAND_IN]]}
LONG = [*[[NOTE]] * 60, [HAND_IN]]
"""More than is left over when the others are done."""
TIGHT = delegating(budget=50_000, agent_budget=20_000)


async def until_asked(task: Task, agent: str) -> Approval:
    async def asked() -> bool:
        return any(request.agent == agent for request in (await task.query(TaskWorkflow.progress)).approvals)

    await until(asked)
    return next(one for one in (await task.query(TaskWorkflow.progress)).approvals if one.agent == agent)


async def until_steps(task: Task, state: str, count: int) -> TaskProgress:
    async def so_many() -> bool:
        progress = await task.query(TaskWorkflow.progress)
        return sum(step.state == state for step in progress.steps) >= count

    await until(so_many)
    return await task.query(TaskWorkflow.progress)


async def test_a_subagent_that_ran_out_is_asked_for_while_its_siblings_go_on_and_goes_on_when_it_is_granted_more(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = DelegatingCrew(scripts={**FOUR, "harbours.2": LONG})
    async with at_work(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=TIGHT)
        task = counter.task()
        paused = await until_asked(task, "harbours.2")
        siblings = await until_steps(task, "done", 4)
        await task.signal(APPROVE_BUDGET, {"request_id": paused.request_id, "tokens": 20_000})
        progress = await task.result()
    assert {step.id for step in siblings.steps if step.state == "done"} >= {"harbours.1", "harbours.3", "harbours.4"}
    assert siblings.phase is TaskPhase.PAUSED
    assert progress.phase is TaskPhase.DONE
    assert steps(progress)["harbours.2"].spent == Amount(tokens=CALL_TOKENS * len(LONG))
    assert progress.budget.limit == Limit(tokens=TIGHT.budget.amount.tokens + 20_000)
    assert len(crew.calls) == len(set(crew.calls))


async def test_a_subagent_that_waits_for_a_person_goes_on_with_what_its_siblings_hand_back(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = Gate(Call("tides", 1), *(Call(f"harbours.{number}", 3) for number in (1, 3, 4)))
    crew = DelegatingCrew(before=gate, scripts={**FOUR, "harbours.2": [*[[NOTE]] * 13, [HAND_IN]]})
    async with at_work(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=TIGHT)
        asked = await until_asked(counter.task(), "harbours.2")
        gate.opened.set()
        progress = await counter.task().result()
    assert asked.decision == "pending"
    assert progress.phase is TaskPhase.DONE
    assert [(one.request_id, one.decision) for one in progress.approvals] == [("harbours.2-1", "withdrawn")]
    assert progress.budget.limit == TIGHT.budget
    assert progress.budget.reserved == Amount()
    assert steps(progress)["harbours.2"].spent == Amount(tokens=CALL_TOKENS * 14)


async def test_a_denied_subagent_is_a_result_that_its_parent_works_with(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = DelegatingCrew(scripts={"harbours": [[delegate("beacons")], [HAND_IN]], "harbours.1": LONG})
    async with at_work(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=TIGHT)
        task = counter.task()
        asked = await until_asked(task, "harbours.1")
        await task.signal(DENY_BUDGET, {"request_id": asked.request_id})
        progress = await task.result()
    assert {step.id: step.state for step in progress.steps[:2]} == {"harbours": "done", "harbours.1": "partial"}
    assert progress.phase is TaskPhase.PARTIAL
    (result,) = results(crew, "harbours", 2)
    assert 'state="partial"' in result.content
    assert "It ended early: a person denied it more" in result.content
