"""Requests for money that nobody looks at, and a provider that wants money itself."""

from datetime import timedelta
from pathlib import Path

from temporalio.client import Client

from tests.support.task_model import STEP_SHARE_TOKENS, ModelCall, ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import TaskSubmitter, run_platform, wait_until
from waystation.agents.action_approvals import AUTHORISED_IN_ADVANCE, TopUpPolicy, UnattendedPolicy
from waystation.kernel.amount import Amount
from waystation.kernel.errors import SpendingLimitReached
from waystation.privacy.ports import Redactor
from waystation.tasks import approvals
from waystation.tasks.task import TaskConfig, TaskPhase
from waystation.workflows.task import TaskWorkflow


def ahead(decided: UnattendedPolicy) -> TaskConfig:
    return make_tight_budget_config().replace(unattended=decided)


async def paused(counter: TaskSubmitter) -> bool:
    progress = await counter.get_task_handle().query(TaskWorkflow.progress)
    return progress.phase is TaskPhase.PAUSED


async def test_raises_that_were_authorised_in_advance_are_used_before_anybody_is_asked(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    top_up = TopUpPolicy(amount=Amount(tokens=1_000), times=1)  # it leaves too little for another agent's call
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=ahead(UnattendedPolicy(top_up=top_up)))
        await wait_until(lambda: paused(counter))
        progress = await counter.get_task_handle().query(TaskWorkflow.progress)
        given, *waiting = progress.approvals
        assert (given.decision, given.by, given.granted) == ("approved", AUTHORISED_IN_ADVANCE, top_up.amount)
        assert [asked.decision for asked in waiting] == ["pending"] * len(waiting)
        assert waiting
        await counter.get_task_handle().cancel()


async def test_at_the_deadline_the_agents_deliver_what_they_have(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    decided = UnattendedPolicy(answer_within=timedelta(seconds=1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=ahead(decided))
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.PARTIAL
    assert {asked.decision for asked in progress.approvals} == {"expired"}
    reasons = {step.reason for step in progress.steps if step.state == "partial"}
    assert "its budget request was not answered by its deadline" in reasons


async def test_an_overdue_request_that_shall_wait_still_takes_its_answer(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    decided = UnattendedPolicy(answer_within=timedelta(milliseconds=200), at_deadline="wait")
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=ahead(decided))

        async def overdue() -> bool:
            return any(
                "is overdue" in note for note in (await counter.get_task_handle().query(TaskWorkflow.progress)).notes
            )

        await wait_until(overdue)

        async def over() -> bool:
            progress = await counter.get_task_handle().query(TaskWorkflow.progress)
            for asked in progress.approvals:
                if asked.decision == "pending":
                    answer = {"request_id": asked.request_id, "tokens": 10 * STEP_SHARE_TOKENS}
                    await counter.get_task_handle().signal(approvals.APPROVE_BUDGET, answer)
            return progress.phase.over

        await wait_until(over)
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert any("is overdue: it was not answered by its deadline" in note for note in progress.notes)


async def test_a_spending_limit_at_the_provider_pauses_and_an_approval_goes_on_behind_the_last_turn(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    refused = [ModelCall("harbours", 3)]

    async def out_of_money(call: ModelCall) -> None:
        if call in refused:
            refused.remove(call)
            raise SpendingLimitReached("the provider's account has no credit")

    crew = ScriptedTaskModel(before=out_of_money)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit()

        async def asked() -> bool:
            return bool((await counter.get_task_handle().query(TaskWorkflow.progress)).approvals)

        await wait_until(asked)
        (request,) = (await counter.get_task_handle().query(TaskWorkflow.progress)).approvals
        assert (request.agent, request.requested) == ("harbours", Amount())
        assert request.reason == "the provider's account has no credit"
        await counter.get_task_handle().signal(approvals.APPROVE_BUDGET, {})
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert crew.calls.count(ModelCall("harbours", 3)) == 2
    assert crew.calls.count(ModelCall("harbours", 2)) == 1
    assert progress.totals.possibly_billed == 0
